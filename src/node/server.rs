//! A region server from start to stop.

use crate::frontend::native::{self, Service};
use crate::node::agent::Agent;
use crate::node::identity::{FORMAT, Holdings, Identity, IdentityError};
use crate::node::masters::MasterGroup;
use crate::node::routes::{PeerBook, Routes};
use crate::protocol::connection::Caller;
use crate::protocol::handshake::{Secret, Unprotected, check_bind_address};
use crate::protocol::pool::Pool;
use crate::protocol::{
    ClusterId, ControlRequest, ControlResponse, Error, ErrorCode, Hello, Purpose, Request, Response, Role, VERSION,
    Welcome,
};
use crate::region::ServerId;
use crate::replication::limits::{COMPACT_BYTES_PER_SECOND, COMPACTIONS_MAX, INDEX_BUILDS_MAX};
use crate::replication::{Context, LeaseBook, PeerMessage, Replica, Timing};
use bytes::Bytes;
use env::{BoxFuture, Env, Listener, Task, watch};
use std::any::Any;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use storage::LogOptions;
use tokio::sync::Semaphore;

#[derive(Clone)]
pub struct ServerOptions {
    /// Where to listen, `host:port`.
    pub listen: String,
    /// Where others find this server, if not where it listens.
    pub advertise: Option<String>,
    pub masters: Vec<String>,
    pub secret: Option<Secret>,
    pub timing: Timing,
    pub report_every: Duration,
    pub segment_bytes: u64,
    /// For cached records, the regions' indexes and their logs' buffers together.
    pub memory_bytes: usize,
    /// Writes are refused when less than this is free on the disk.
    pub reserve_bytes: u64,
    /// What compactions may read and write in a second.
    pub compact_bytes_per_second: u64,
}

impl ServerOptions {
    pub fn new(listen: impl Into<String>, masters: Vec<String>) -> ServerOptions {
        ServerOptions {
            listen: listen.into(),
            advertise: None,
            masters,
            secret: None,
            timing: Timing::DEFAULT,
            report_every: Duration::from_millis(300),
            segment_bytes: storage::limits::SEGMENT_BYTES_DEFAULT,
            memory_bytes: storage::limits::MEMORY_BYTES_DEFAULT,
            reserve_bytes: 64 << 20,
            compact_bytes_per_second: COMPACT_BYTES_PER_SECOND,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Unprotected(#[from] Unprotected),
    #[error("take the data folder: {0}")]
    Lock(std::io::Error),
    #[error("listen on {address}: {source}")]
    Listen { address: String, source: std::io::Error },
    #[error("no master's address is given, or not that of this master")]
    NoMasters,
    #[error("start the master: {0}")]
    Master(#[source] crate::master::raft::StartError),
}

pub(super) async fn listen(env: &Env, address: &str) -> Result<Box<dyn Listener>, StartError> {
    let listener = env.net().listen(address).await;
    listener.map_err(|source| StartError::Listen { address: address.to_owned(), source })
}

/// A running region server.
pub struct Server {
    env: Env,
    address: String,
    state: Arc<State>,
    tasks: Background,
    _lock: Box<dyn Any + Send + Sync>,
}

/// Tasks that end with the server.
type Background = Arc<Mutex<Vec<Task<()>>>>;

/// How a server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Others go on: leads are given away first, where a backup can take them.
    Alone,
    /// The whole cluster stops.
    WithAll,
}

/// What the listener and the tasks share.
struct State {
    routes: Routes,
    masters: MasterGroup,
    cluster: OnceLock<ClusterId>,
    /// Set once the master group has taken the server in.
    joined: OnceLock<Arc<Context>>,
    /// Why the server cannot be a member of this cluster.
    refused: watch::Sender<Option<String>>,
}

impl Server {
    /// Listens, and joins the cluster as soon as a master answers; until then requests are answered `Unavailable`.
    pub async fn start(env: Env, options: ServerOptions) -> Result<Server, StartError> {
        check_bind_address(&options.listen, options.secret.is_some())?;
        if options.masters.is_empty() {
            return Err(StartError::NoMasters);
        }
        let lock = env.disk().lock("LOCK").await.map_err(StartError::Lock)?;
        let identity = Identity::load(&env).await?;
        let holdings = Holdings::load(&env).await?;
        let listener = listen(&env, &options.listen).await?;
        let address = listener.local_address();
        let hello =
            Hello { version: VERSION, purpose: Purpose::Client, cluster: identity.as_ref().map(|id| id.cluster) };
        let pool = Pool::new(env.clone(), Caller { hello, secret: options.secret.clone() });
        let masters = MasterGroup::new(env.clone(), pool, options.masters.clone(), MASTER_CALL_MAX);
        let state = Arc::new(State {
            routes: Routes::default(),
            masters,
            cluster: OnceLock::new(),
            joined: OnceLock::new(),
            refused: watch::channel(None).0,
        });
        let serve = native::serve(
            env.clone(),
            listener,
            state.clone(),
            native::Options { secret: options.secret.clone(), ..native::Options::default() },
        );
        let tasks = Background::default();
        keep(&tasks, env.spawn("listen", serve));
        let advertised = options.advertise.clone().unwrap_or_else(|| address.clone());
        let join = Join { env: env.clone(), options, state: state.clone(), identity, holdings, address: advertised };
        keep(&tasks, env.spawn("join", join.run(tasks.clone())));
        Ok(Server { env, address, state, tasks, _lock: lock })
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its identity, once the master group has taken it in.
    pub fn id(&self) -> Option<ServerId> {
        self.state.joined.get().map(|context| context.me)
    }

    /// Waits until the master group has refused the server, and says why: asking on, as it does, helps only once somebody
    /// has changed the masters.
    pub async fn refused(&self) -> String {
        let mut refused = self.state.refused.subscribe();
        let why = refused.wait_for(Option::is_some).await.ok().flatten();
        why.expect("the sender lives as long as the server")
    }

    /// Stops cleanly: every replica's log is flushed and closed.
    pub async fn stop(self, how: Stop) {
        if how == Stop::Alone {
            self.give_leads_away().await;
        }
        self.tasks.lock().expect("no holder panics").iter().for_each(Task::abort);
        let replicas = self.state.routes.all();
        let closing: Vec<Task<()>> = replicas
            .into_iter()
            .map(|replica| self.env.spawn("close", async move { replica.close(false).await }))
            .collect();
        for task in closing {
            let _ = task.await;
        }
    }

    async fn give_leads_away(&self) {
        for replica in self.state.routes.all() {
            replica.resign();
        }
        let deadline = self.env.now() + RESIGN_MAX;
        while self.env.now() < deadline && self.state.routes.all().iter().any(Replica::could_resign) {
            self.env.sleep(Duration::from_millis(20)).await;
        }
    }
}

fn keep(tasks: &Background, task: Task<()>) {
    tasks.lock().expect("no holder panics").push(task);
}

/// One call to one master.
const MASTER_CALL_MAX: Duration = Duration::from_millis(1500);
/// Between two tries to register.
const REGISTER_PAUSE: Duration = Duration::from_millis(100);
/// How long a stop waits for backups to take over.
const RESIGN_MAX: Duration = Duration::from_millis(1500);

/// Becoming a member of the cluster.
struct Join {
    env: Env,
    options: ServerOptions,
    state: Arc<State>,
    identity: Option<Identity>,
    holdings: Holdings,
    address: String,
}

impl Join {
    async fn run(mut self, tasks: Background) {
        let incarnation = self.env.random();
        let identity = self.register(incarnation).await;
        if self.identity.is_none() {
            while let Err(error) = identity.store(&self.env).await {
                tracing::error!(%error, "cannot write the server's identity");
                self.env.sleep(Duration::from_secs(1)).await;
            }
        }
        tracing::info!(server = %identity.server, address = self.address, "joined the cluster");
        let _ = self.state.cluster.set(identity.cluster);
        let hello =
            Hello { version: VERSION, purpose: Purpose::Peer(identity.server), cluster: Some(identity.cluster) };
        let pool = Pool::new(self.env.clone(), Caller { hello, secret: self.options.secret.clone() });
        let peers = Arc::new(PeerBook::new(pool));
        let context = self.context(&identity, peers.clone());
        let _ = self.state.joined.set(context.clone());
        keep(&tasks, self.env.spawn("beat", beat(context.clone())));
        let agent = Agent {
            context,
            routes: self.state.routes.clone(),
            peers,
            masters: self.state.masters.clone(),
            holdings: self.holdings,
            incarnation,
            report_every: self.options.report_every,
            reserve_bytes: self.options.reserve_bytes,
            known: 0,
        };
        keep(&tasks, self.env.spawn("agent", agent.run()));
    }

    /// Asks until a master takes the server in.
    async fn register(&mut self, incarnation: u64) -> Identity {
        loop {
            let request = ControlRequest::Register {
                id: self.identity.as_ref().map(|identity| identity.server),
                cluster: self.identity.as_ref().map(|identity| identity.cluster),
                incarnation,
                address: self.address.clone(),
            };
            match self.state.masters.control(request).await {
                Ok(ControlResponse::Registered { id, cluster }) => {
                    return Identity { format: FORMAT, cluster, server: id };
                }
                Ok(other) => tracing::error!(?other, "a master answered a registration with something else"),
                Err(error) if error.code == ErrorCode::Invalid => {
                    let is_news = |refused: &mut Option<String>| {
                        let is_news = refused.as_ref() != Some(&error.message);
                        *refused = Some(error.message.clone());
                        is_news
                    };
                    if self.state.refused.send_if_modified(is_news) {
                        tracing::error!(%error, "the master group refuses this server");
                    }
                }
                Err(error) => tracing::debug!(%error, "no master has taken the server in yet"),
            }
            self.env.sleep(REGISTER_PAUSE).await;
        }
    }

    fn context(&self, identity: &Identity, peers: Arc<PeerBook>) -> Arc<Context> {
        let timing = self.options.timing;
        let mut log = LogOptions::new(identity.cluster.0).with_memory(self.options.memory_bytes);
        log.segment_bytes = self.options.segment_bytes;
        Arc::new(Context {
            env: self.env.clone(),
            me: identity.server,
            cluster: identity.cluster,
            timing,
            log,
            leases: Mutex::new(LeaseBook::new(timing, self.env.random(), self.env.now())),
            peers,
            masters: Arc::new(self.state.masters.clone()),
            disk_full: AtomicBool::new(false),
            index_builds: Arc::new(Semaphore::new(INDEX_BUILDS_MAX)),
            compactions: Arc::new(Semaphore::new(COMPACTIONS_MAX)),
            compact_bytes_per_second: self.options.compact_bytes_per_second,
        })
    }
}

/// Sends the beacons by which this server holds its leases.
async fn beat(context: Arc<Context>) {
    loop {
        let beacons = context.leases().beacons(context.now());
        for (to, beacon) in beacons {
            context.peers.send(to, PeerMessage::Beacon(beacon));
        }
        context.env.sleep(context.timing.beacon).await;
    }
}

impl Service for State {
    fn identity(&self) -> Welcome {
        Welcome { cluster: self.cluster.get().copied(), role: Role::Server }
    }

    fn request(&self, request: Request) -> BoxFuture<'static, Response> {
        match request {
            Request::Read(request) => match self.routes.find(request.region) {
                Ok(replica) => Box::pin(async move { replica.read(request).await }),
                Err(error) => answer(Response::Error(error)),
            },
            Request::Write(request) => match self.routes.find(request.region) {
                Ok(replica) => Box::pin(async move { replica.write(request).await }),
                Err(error) => answer(Response::Error(error)),
            },
            Request::Scan(request) => match self.routes.find(request.region) {
                Ok(replica) => Box::pin(async move { replica.scan(request).await }),
                Err(error) => answer(Response::Error(error)),
            },
            Request::Admin(request) => {
                let masters = self.masters.clone();
                Box::pin(async move { masters.admin(request).await.map_or_else(Response::Error, Response::Admin) })
            }
            Request::Control(_) => answer(Response::Error(Error::invalid("this is a region server, not a master"))),
        }
    }

    fn peer(&self, from: ServerId, message: PeerMessage) {
        let Some(context) = self.joined.get() else { return };
        match message {
            PeerMessage::Beacon(beacon) => {
                let ack = context.leases().heard(from, &beacon, context.now());
                context.peers.send(from, PeerMessage::BeaconAck(ack));
            }
            PeerMessage::BeaconAck(ack) => context.leases().acked(from, &ack, context.now()),
            PeerMessage::Region { region, epoch, body } => {
                if let Some(replica) = self.routes.get(region) {
                    replica.peer(from, epoch, body);
                }
            }
        }
    }

    fn raft(&self, _: Bytes) -> BoxFuture<'static, Result<Bytes, Error>> {
        Box::pin(async { Err(Error::invalid("this is a region server, not a master")) })
    }
}

fn answer(response: Response) -> BoxFuture<'static, Response> {
    Box::pin(std::future::ready(response))
}

//! One master: a member of the group, what it hears from servers, and its answers.
//!
//! A request's life: any master takes it. One that stands by passes it on to the active one, once ([`Ask::passed_on`] marks
//! it, so that two masters that each believe in the other do not play ball). The active one reads its catalog behind a read
//! index or proposes a command, and the answer goes back the same way.
//!
//! A master becomes active by confirming that it leads and has applied all that was committed; from then on it collects
//! reports ([`active`]) and runs a placement round each tick. What it collected is gone with its lead.

mod active;
mod admin;
mod control;

use super::placement::Patience;
use super::raft::{Group, GroupOptions, NoAnswer, RaftTiming, RaftTransport, Standing, StartError};
use super::state::{Catalog, Command, Outcome};
use crate::protocol::message::{
    AdminRequest, AdminResponse, ClusterId, ControlRequest, ControlResponse, Error, ErrorCode, Request, Response,
};
use active::Active;
use bytes::Bytes;
use env::{Env, Task, watch};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The clocks of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    pub raft: RaftTiming,
    /// Between two placement rounds.
    pub tick_ms: u64,
    /// A server that was not heard from for so long counts as dead for placement. Reports come a few times a second.
    pub liveness_ms: u64,
    pub patience: Patience,
    /// How long a request may take, passing on included.
    pub request_ms: u64,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            raft: RaftTiming { heartbeat_ms: 200, election_min_ms: 800, election_max_ms: 1600, data_ms: 5000 },
            tick_ms: 200,
            liveness_ms: 3000,
            patience: Patience { missing_ms: 10_000, learner_ms: 20_000, step_ms: 1000 },
            request_ms: 5000,
        }
    }
}

pub struct MasterOptions {
    pub id: u64,
    /// All masters and their addresses, this one too: the same list on each.
    pub masters: BTreeMap<u64, String>,
    /// Where in the node's data folder the log lives.
    pub folder: String,
    pub timing: Timing,
}

/// A running master.
pub struct Master {
    inner: Arc<Inner>,
    work: Task<()>,
}

struct Inner {
    env: Env,
    id: u64,
    masters: BTreeMap<u64, String>,
    timing: Timing,
    group: Group,
    transport: Arc<dyn RaftTransport>,
    active: Mutex<Option<Active>>,
    stopped: watch::Sender<Option<String>>,
}

/// What a master can be asked, as it is passed on to the active one.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Ask {
    what: What,
    passed_on: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum What {
    Admin(AdminRequest),
    Control(ControlRequest),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Told {
    Admin(AdminResponse),
    Control(ControlResponse),
}

/// The body of a call between masters.
#[derive(Serialize, Deserialize)]
enum Body {
    Raft(Bytes),
    Ask(Ask),
}

/// Why this master does not answer itself.
enum Refusal {
    /// Another may: nothing was done here.
    NotActive {
        leader: Option<u64>,
    },
    Error(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Error(error)
    }
}

impl Master {
    pub async fn start(
        env: Env,
        options: MasterOptions,
        transport: Arc<dyn RaftTransport>,
    ) -> Result<Master, StartError> {
        let MasterOptions { id, masters, folder, timing } = options;
        let carrier: Arc<dyn RaftTransport> = Arc::new(RaftCalls(transport.clone()));
        let group = GroupOptions { id, masters: masters.clone(), folder, timing: timing.raft, transport: carrier };
        let group = Group::start(&env, group).await?;
        let (stopped, _) = watch::channel(None);
        let active = Mutex::new(None);
        let inner = Arc::new(Inner { env, id, masters, timing, group, transport, active, stopped });
        let work = inner.env.spawn("master", inner.clone().work());
        Ok(Master { inner, work })
    }

    /// Answers a client, an operator or a region server.
    pub async fn handle(&self, request: Request) -> Response {
        let what = match request {
            Request::Admin(request) => What::Admin(request),
            Request::Control(request) => What::Control(request),
            _ => return Response::Error(Error::invalid("a master holds no data: ask a region server")),
        };
        match self.inner.serve(Ask { what, passed_on: false }).await {
            Ok(Told::Admin(response)) => Response::Admin(response),
            Ok(Told::Control(response)) => Response::Control(response),
            Err(error) => Response::Error(error),
        }
    }

    /// Answers another master's call.
    pub async fn raft(&self, body: Bytes) -> Result<Bytes, Error> {
        let bad = |error: &dyn std::fmt::Display| Error::invalid(format!("a call between masters: {error}"));
        match postcard::from_bytes(&body).map_err(|error| bad(&error))? {
            Body::Raft(call) => self.inner.group.answer(call).await.map_err(|error| bad(&error)),
            Body::Ask(ask) => {
                let told = self.inner.serve(ask).await;
                postcard::to_stdvec(&told).map(Bytes::from).map_err(|error| bad(&error))
            }
        }
    }

    /// The cluster, once it is founded and this master has heard of it.
    pub fn cluster(&self) -> Option<ClusterId> {
        self.inner.group.read(Catalog::cluster)
    }

    /// Whether this master believes that it is the active one.
    pub fn is_active(&self) -> bool {
        self.inner.active().is_some()
    }

    pub fn standing(&self) -> Standing {
        self.inner.group.standing()
    }

    /// This master's catalog, which may be behind the group's.
    pub fn catalog(&self) -> Catalog {
        self.inner.group.read(Catalog::clone)
    }

    /// Waits until this master has stopped by itself, which a failing disk makes it do, and says why.
    pub async fn stopped(&self) -> String {
        let mut stopped = self.inner.stopped.subscribe();
        let why = stopped.wait_for(Option::is_some).await.ok().flatten();
        why.unwrap_or_else(|| "it was asked to".to_owned())
    }

    /// Ends this master. Whoever still asks it gets an error.
    pub async fn stop(&self) {
        self.work.abort();
        self.inner.group.stop().await;
    }
}

impl Inner {
    fn active(&self) -> MutexGuard<'_, Option<Active>> {
        self.active.lock().expect("nothing panics under this lock")
    }

    fn now_ms(&self) -> u64 {
        self.env.now().since_origin().as_millis() as u64
    }

    fn request_limit(&self) -> Duration {
        Duration::from_millis(self.timing.request_ms)
    }

    // Requests.

    async fn serve(&self, ask: Ask) -> Result<Told, Error> {
        let passed_on = ask.passed_on;
        let here = match self.leader_elsewhere() {
            Some(leader) => Err(Refusal::NotActive { leader }),
            None => self.serve_here(ask.what.clone()).await,
        };
        match here {
            Ok(told) => Ok(told),
            Err(Refusal::Error(error)) => Err(error),
            Err(Refusal::NotActive { leader: Some(leader) }) if leader != self.id && !passed_on => {
                self.pass_on(leader, ask.what).await
            }
            Err(Refusal::NotActive { leader }) => Err(self.not_active(leader)),
        }
    }

    /// The leader that this master knows of, unless that is itself.
    fn leader_elsewhere(&self) -> Option<Option<u64>> {
        let leader = self.group.standing().leader;
        (leader != Some(self.id)).then_some(leader)
    }

    async fn serve_here(&self, what: What) -> Result<Told, Refusal> {
        match what {
            What::Admin(request) => self.admin(request).await.map(Told::Admin),
            What::Control(request) => self.control(request).await.map(Told::Control),
        }
    }

    fn not_active(&self, leader: Option<u64>) -> Error {
        match leader.and_then(|leader| self.masters.get(&leader)) {
            Some(address) => Error::unavailable(format!("not the active master; leader is {address}")),
            None => Error::unavailable("not the active master; no leader is known"),
        }
    }

    async fn pass_on(&self, leader: u64, what: What) -> Result<Told, Error> {
        let Some(address) = self.masters.get(&leader) else { return Err(self.not_active(None)) };
        let is_read = what.is_read();
        let lost = |error: std::io::Error| {
            let message = format!("the active master at {address} did not answer: {error}");
            Error::new(if is_read { ErrorCode::Unavailable } else { ErrorCode::Unknown }, message)
        };
        let body = Body::Ask(Ask { what, passed_on: true });
        let body = postcard::to_stdvec(&body).map_err(|error| Error::invalid(error.to_string()))?;
        let answer = self.transport.call(leader, address, body.into(), self.request_limit()).await.map_err(lost)?;
        postcard::from_bytes(&answer).map_err(|error| lost(std::io::Error::other(error)))?
    }

    async fn propose(&self, command: Command) -> Result<Outcome, Refusal> {
        let applied = self.group.propose(&self.env, command, self.request_limit()).await;
        Ok(applied.map_err(|error| self.refusal(error))??)
    }

    /// A read index: what is read afterwards is no older than the call.
    async fn confirm(&self) -> Result<(), Refusal> {
        self.group.confirm(&self.env, self.request_limit()).await.map_err(|error| self.refusal(error))
    }

    fn refusal(&self, error: NoAnswer) -> Refusal {
        match error {
            NoAnswer::NotActive { leader } => Refusal::NotActive { leader: leader.filter(|&leader| leader != self.id) },
            NoAnswer::Unknown => Refusal::Error(Error::new(ErrorCode::Unknown, error.to_string())),
            NoAnswer::Stopped(_) => Refusal::Error(Error::unavailable(error.to_string())),
        }
    }

    // Leading.

    async fn work(self: Arc<Self>) {
        let mut changes = self.group.watch();
        let tick = Duration::from_millis(self.timing.tick_ms);
        loop {
            let sleep = self.env.sleep(tick);
            tokio::select! {
                biased;
                () = changes.changed(), if self.active().is_none() => (),
                () = sleep => (),
            }
            let standing = self.group.standing();
            if let Some(why) = standing.stopped {
                tracing::error!(master = self.id, why, "the master has stopped");
                *self.active() = None;
                self.stopped.send_if_modified(|stopped| stopped.replace(why).is_none());
                return;
            }
            if standing.leader == Some(self.id) {
                self.lead(standing.term).await;
            } else {
                *self.active() = None;
            }
            self.group.tidy().await;
        }
    }

    async fn lead(&self, term: u64) {
        let asked_ms = self.now_ms();
        if self.confirm().await.is_err() || self.group.standing().term != term {
            return;
        }
        self.become_active(term, asked_ms);
        self.found().await;
        self.place().await;
    }

    fn become_active(&self, term: u64, asked_ms: u64) {
        let mut active = self.active();
        match active.as_mut() {
            Some(active) if active.term == term => active.confirmed_ms = asked_ms,
            _ => {
                tracing::info!(master = self.id, term, "active");
                tracing::trace!(target: "probe", name = "active", master = self.id, term);
                *active = Some(Active::new(term, self.now_ms(), self.timing.liveness_ms));
            }
        }
    }

    async fn found(&self) {
        if self.group.read(Catalog::cluster).is_some() {
            return;
        }
        let cluster = ClusterId(u128::from(self.env.random()) << 64 | u128::from(self.env.random()));
        // Without an answer the next tick tries again, and the first to be applied counts.
        let _ = self.propose(Command::Found { cluster }).await;
    }

    /// One placement round. A step that fails is planned again if it still makes sense.
    async fn place(&self) {
        let now_ms = self.now_ms();
        let steps = match self.active().as_mut() {
            Some(active) => self.group.read(|catalog| active.plan(catalog, &self.timing.patience, now_ms)),
            None => return,
        };
        let proposals = steps.into_iter().map(|step| {
            tracing::debug!(region = step.region.0, change = ?step.change, "placement");
            self.propose(Command::Change { region: step.region, epoch: step.epoch, change: step.change })
        });
        futures_util::future::join_all(proposals).await;
    }
}

impl What {
    /// Whether asking cannot change anything.
    fn is_read(&self) -> bool {
        matches!(
            self,
            What::Admin(AdminRequest::ListTables | AdminRequest::DescribeTable { .. } | AdminRequest::Status)
                | What::Control(ControlRequest::Report(_))
        )
    }
}

/// The transport as Raft uses it: its bodies marked as Raft's.
struct RaftCalls(Arc<dyn RaftTransport>);

impl RaftTransport for RaftCalls {
    fn call(
        &self,
        master: u64,
        address: &str,
        body: Bytes,
        deadline: Duration,
    ) -> env::BoxFuture<'static, std::io::Result<Bytes>> {
        match postcard::to_stdvec(&Body::Raft(body)) {
            Ok(body) => self.0.call(master, address, body.into(), deadline),
            Err(error) => Box::pin(std::future::ready(Err(std::io::Error::other(error)))),
        }
    }
}

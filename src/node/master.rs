//! A master from start to stop: a member of the master group behind a listener.

use crate::frontend::native::{self, Service};
use crate::master::transport::PoolTransport;
use crate::master::{Master, MasterOptions, Timing};
use crate::node::server::{StartError, listen};
use crate::protocol::handshake::{Secret, check_bind_address};
use crate::protocol::{ClusterId, Error, Request, Response, Role, Welcome};
use crate::region::ServerId;
use crate::replication::PeerMessage;
use bytes::Bytes;
use env::{BoxFuture, Env, Task};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone)]
pub struct MasterNodeOptions {
    pub id: u64,
    /// Where to listen, `host:port`; what the list of masters says of this one when not given.
    pub listen: Option<String>,
    /// All masters and their addresses, this one too: the same list on each.
    pub masters: BTreeMap<u64, String>,
    pub secret: Option<Secret>,
    pub timing: Timing,
}

impl MasterNodeOptions {
    pub fn new(id: u64, masters: BTreeMap<u64, String>) -> MasterNodeOptions {
        MasterNodeOptions { id, listen: None, masters, secret: None, timing: Timing::default() }
    }
}

/// A running master and its listener.
pub struct MasterNode {
    address: String,
    master: Arc<Master>,
    listening: Task<()>,
    _lock: Box<dyn Any + Send + Sync>,
}

impl MasterNode {
    pub async fn start(env: Env, options: MasterNodeOptions) -> Result<MasterNode, StartError> {
        let MasterNodeOptions { id, listen: address, masters, secret, timing } = options;
        let address = address.or_else(|| masters.get(&id).cloned()).ok_or(StartError::NoMasters)?;
        check_bind_address(&address, secret.is_some())?;
        let lock = env.disk().lock("LOCK").await.map_err(StartError::Lock)?;
        let listener = listen(&env, &address).await?;
        let address = listener.local_address();
        let transport = Arc::new(PoolTransport::new(&env, secret.clone()));
        let options = MasterOptions { id, masters, folder: "raft".to_owned(), timing };
        let master = Master::start(env.clone(), options, transport).await.map_err(StartError::Master)?;
        let master = Arc::new(master);
        let service = Arc::new(MasterService { master: master.clone() });
        let options = native::Options { secret, ..native::Options::default() };
        let listening = env.spawn("listen", native::serve(env.clone(), listener, service, options));
        Ok(MasterNode { address, master, listening, _lock: lock })
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn cluster(&self) -> Option<ClusterId> {
        self.master.cluster()
    }

    /// Waits until the master has stopped by itself, which a failing disk makes it do, and says why.
    pub async fn stopped(&self) -> String {
        self.master.stopped().await
    }

    pub async fn stop(self) {
        self.listening.abort();
        self.master.stop().await;
    }
}

struct MasterService {
    master: Arc<Master>,
}

impl Service for MasterService {
    fn identity(&self) -> Welcome {
        Welcome { cluster: self.master.cluster(), role: Role::Master }
    }

    fn request(&self, request: Request) -> BoxFuture<'static, Response> {
        let master = self.master.clone();
        Box::pin(async move { master.handle(request).await })
    }

    /// Region servers have nothing one-way to say to a master.
    fn peer(&self, _: ServerId, _: PeerMessage) {}

    fn raft(&self, body: Bytes) -> BoxFuture<'static, Result<Bytes, Error>> {
        let master = self.master.clone();
        Box::pin(async move { master.raft(body).await })
    }
}

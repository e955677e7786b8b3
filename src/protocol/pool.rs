//! One connection for each address, shared by all who call there.
//!
//! A connection is made by the first call that needs it; others wait for it rather than make their own. After a failure no
//! attempt is made for a pause that doubles, half of it random: a server that comes back meets its callers one by one. Calls
//! in that pause fail at once with the reason of the last failure, and their callers know of other servers or of a pause of
//! their own.

use crate::protocol::backoff::pause;
use crate::protocol::codec::Encoder;
use crate::protocol::connection::{CallError, Caller, ConnectError, Connection, PeerError};
use crate::protocol::limits::*;
use crate::protocol::message::{Error, Request, Response};
use crate::protocol::peer::PeerMessage;
use bytes::Bytes;
use env::{Env, Instant};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Connections of one caller. Cloning shares them.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    caller: Caller,
    slots: Mutex<BTreeMap<String, Arc<Slot>>>,
}

/// One address.
struct Slot {
    address: String,
    state: Mutex<State>,
    /// Held by the one who connects.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// Attempts that failed since the last that did not.
    failures: u32,
    retry_at: Instant,
    last_failure: Option<ConnectError>,
    /// One-way messages for the connection that a task is making; `None` when none is.
    waiting: Option<Vec<u8>>,
}

impl State {
    fn live(&mut self) -> Option<Connection> {
        self.connection = self.connection.take().filter(|connection| !connection.is_closed());
        self.connection.clone()
    }
}

impl Pool {
    pub fn new(env: Env, caller: Caller) -> Pool {
        Pool { inner: Arc::new(Inner { env, caller, slots: Mutex::default() }) }
    }

    /// The connection to `address`, made now if there is none.
    pub async fn connection(&self, address: &str, deadline: Instant) -> Result<Connection, ConnectError> {
        let slot = self.slot(address);
        if let Some(connection) = slot.state.lock().live() {
            return Ok(connection);
        }
        let env = &self.inner.env;
        let turn = env.timeout(deadline.since(env.now()), slot.turn.lock()).await;
        let _turn = turn.map_err(|_| ConnectError::Deadline { address: address.to_owned() })?;
        self.connect(&slot, deadline).await
    }

    pub async fn call(&self, address: &str, request: &Request, deadline: Instant) -> Result<Response, CallError> {
        self.connection(address, deadline).await?.call(request, deadline).await
    }

    /// A call between masters.
    pub async fn raft(&self, address: &str, body: &[u8], deadline: Instant) -> Result<Result<Bytes, Error>, CallError> {
        self.connection(address, deadline).await?.raft(body, deadline).await
    }

    /// Sends a one-way message, or begins to connect and sends it then. It may be lost on the way.
    pub fn peer(&self, address: &str, message: &PeerMessage) -> Result<(), PeerError> {
        let slot = self.slot(address);
        let mut state = slot.state.lock();
        if let Some(connection) = state.live() {
            return connection.peer(message);
        }
        let is_connecting = state.waiting.is_some();
        let waiting = state.waiting.get_or_insert_default();
        let appended = queue(waiting, message);
        drop(state);
        if !is_connecting {
            let pool = self.clone();
            self.inner.env.spawn("connect to peer", async move { pool.connect_to_peer(&slot).await });
        }
        appended
    }

    fn slot(&self, address: &str) -> Arc<Slot> {
        let mut slots = self.inner.slots.lock();
        if let Some(slot) = slots.get(address) {
            return slot.clone();
        }
        if slots.len() >= POOL_ADDRESSES_MAX {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.state.lock().live().is_some());
        }
        let slot = Slot { address: address.to_owned(), state: Mutex::default(), turn: Default::default() };
        slots.entry(address.to_owned()).or_insert(Arc::new(slot)).clone()
    }

    /// Connects, unless somebody just has, or has just failed to.
    async fn connect(&self, slot: &Slot, deadline: Instant) -> Result<Connection, ConnectError> {
        let env = &self.inner.env;
        {
            let mut state = slot.state.lock();
            if let Some(connection) = state.live() {
                return Ok(connection);
            }
            match &state.last_failure {
                Some(failure) if env.now() < state.retry_at => return Err(failure.clone()),
                _ => {}
            }
        }
        let deadline = deadline.min(env.now() + CONNECT_TIME_MAX);
        let opened = Connection::open(env, &slot.address, &self.inner.caller, deadline).await;
        self.record(&mut slot.state.lock(), &opened);
        opened
    }

    fn record(&self, state: &mut State, opened: &Result<Connection, ConnectError>) {
        match opened {
            Ok(connection) => {
                // Under the lock, so that no later message comes before these.
                if let Some(waiting) = &mut state.waiting {
                    // A connection that has ended already lost them, as it may any others.
                    let _ = connection.peer_frames(&std::mem::take(waiting));
                }
                state.connection = Some(connection.clone());
                state.failures = 0;
                state.last_failure = None;
            }
            Err(failure) => {
                let env = &self.inner.env;
                state.retry_at = env.now() + pause(state.failures, CONNECT_PAUSE_MIN, CONNECT_PAUSE_MAX, env.random());
                state.failures = state.failures.saturating_add(1);
                state.last_failure = Some(failure.clone());
            }
        }
    }

    async fn connect_to_peer(&self, slot: &Slot) {
        let env = &self.inner.env;
        let _turn = slot.turn.lock().await;
        let retry_at = slot.state.lock().retry_at;
        env.sleep(retry_at.since(env.now())).await;
        let connected = self.connect(slot, env.now() + CONNECT_TIME_MAX).await;
        let lost = slot.state.lock().waiting.take().unwrap_or_default();
        if let Err(failure) = connected {
            tracing::debug!(%failure, bytes = lost.len(), "messages to a peer are lost");
        }
    }
}

fn queue(waiting: &mut Vec<u8>, message: &PeerMessage) -> Result<(), PeerError> {
    let len = waiting.len();
    Encoder { out: waiting, frame_bytes_max: PEER_FRAME_BYTES_MAX }.peer(message)?;
    if waiting.len() > PEER_WAITING_BYTES_MAX {
        waiting.truncate(len);
        return Err(PeerError::Full);
    }
    Ok(())
}

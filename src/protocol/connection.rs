//! The calling side of a connection.
//!
//! Many calls share a [`Connection`]. A call appends its frame to a queue and waits; one task gives the whole queue to the
//! stream whenever the stream has taken the last one, so that requests of many callers leave with one write, and hands each
//! answer to the call whose id it carries. Ids are never used twice on a connection: an answer that comes after its call
//! was given up finds nobody and is dropped, and no call ever sees the answer of another.
//!
//! A call that fails says whether its request may have left ([`CallError::may_have_happened`]). A request that is still in the
//! queue when its call is given up is taken out again and never leaves.
//!
//! Bytes lost in a network partition leave a connection that is dead and does not know it. So a call whose deadline passes
//! while nothing at all arrives closes the connection; one-way connections, on which nothing would be missed, are probed.

use crate::protocol::codec::{self, Encoder, Malformed, Message, TooLarge};
use crate::protocol::handshake::{End, Secret, Transcript, random_nonce};
use crate::protocol::limits::*;
use crate::protocol::message::{Error, ErrorCode, Hello, Purpose, Request, Response, Welcome};
use crate::protocol::peer::PeerMessage;
use crate::protocol::wire::{Ended, Progress, Wire};
use bytes::Bytes;
use env::{Env, Instant, Sleep};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore, oneshot};

/// A connection that has been welcomed. Cloning shares it; the last to be dropped closes it.
#[derive(Clone)]
pub struct Connection {
    handle: Arc<Handle>,
}

/// Who calls, and for what.
#[derive(Clone, Debug)]
pub struct Caller {
    pub hello: Hello,
    /// With it the server must know it too.
    pub secret: Option<Secret>,
}

/// No connection was made; nothing was asked of anybody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nobody there, or gone in the middle of it. Try again, or elsewhere.
    #[error("connect to {address}: {reason}")]
    Unreachable { address: String, reason: String },
    #[error("connect to {address}: no answer in time")]
    Deadline { address: String },
    /// It answered, and does not want us: another version or cluster, too many connections, not our secret.
    #[error("{address} refuses the connection: {error}")]
    Refused { address: String, error: Error },
    /// It is not the server we want: it does not speak the protocol, or does not know the cluster's secret.
    #[error("{address} is not to be trusted: {reason}")]
    Untrusted { address: String, reason: String },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It will never fit.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection ended before the request left.
    #[error("not sent: {0}")]
    NotSent(Arc<str>),
    /// The request may have arrived; there will be no answer.
    #[error("sent, and then the connection ended: {0}")]
    Broken(Arc<str>),
    #[error("no answer in time")]
    Deadline { sent: bool },
}

impl CallError {
    /// Whether the server may have got the request, or may get it yet.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, CallError::Broken(_) | CallError::Deadline { sent: true })
    }

    /// Whether no change but one of configuration makes this server take us: it is of another cluster or version, or does not
    /// know our secret.
    pub fn is_refusal(&self) -> bool {
        match self {
            CallError::Connect(ConnectError::Refused { error, .. }) => error.code == ErrorCode::Invalid,
            CallError::Connect(ConnectError::Untrusted { .. }) => true,
            _ => false,
        }
    }
}

/// A one-way message that did not leave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Too much waits already.
    #[error("the peer does not keep up")]
    Full,
    #[error("the connection has ended: {0}")]
    Closed(Arc<str>),
}

impl Connection {
    pub async fn open(
        env: &Env,
        address: &str,
        caller: &Caller,
        deadline: Instant,
    ) -> Result<Connection, ConnectError> {
        let opening = open(env, address, caller);
        match env.timeout(deadline.since(env.now()), opening).await {
            Ok(opened) => opened,
            Err(_) => Err(ConnectError::Deadline { address: address.to_owned() }),
        }
    }

    /// Who answered.
    pub fn welcome(&self) -> &Welcome {
        &self.handle.welcome
    }

    pub fn is_closed(&self) -> bool {
        self.shared().state.lock().closed.is_some()
    }

    /// Sends `request` and waits for its answer. Dropping the future gives the call up and disturbs no other.
    pub async fn call(&self, request: &Request, deadline: Instant) -> Result<Response, CallError> {
        match self.exchange(deadline, |encoder, id| encoder.request(id, request)).await? {
            Message::Response(response) => Ok(response),
            _ => Err(CallError::Broken("the answer is none to a request".into())),
        }
    }

    /// A call between masters; the bytes mean something to them alone.
    pub async fn raft(&self, body: &[u8], deadline: Instant) -> Result<Result<Bytes, Error>, CallError> {
        match self.exchange(deadline, |encoder, id| encoder.raft(id, body)).await? {
            Message::RaftAnswer(answer) => Ok(Ok(answer)),
            Message::Response(Response::Error(error)) => Ok(Err(error)),
            _ => Err(CallError::Broken("the answer is none to a Raft call".into())),
        }
    }

    /// Queues a one-way message. It may be lost, like any other.
    pub fn peer(&self, message: &PeerMessage) -> Result<(), PeerError> {
        self.shared().queue_one_way(|out| Encoder { out, frame_bytes_max: PEER_FRAME_BYTES_MAX }.peer(message))
    }

    /// Queues whole frames of one-way messages.
    pub(super) fn peer_frames(&self, frames: &[u8]) -> Result<(), PeerError> {
        self.shared().queue_one_way(|out| {
            out.extend_from_slice(frames);
            Ok(())
        })
    }

    async fn exchange(
        &self,
        deadline: Instant,
        encode: impl Fn(&mut Encoder<'_>, u64) -> Result<(), TooLarge>,
    ) -> Result<Message, CallError> {
        let shared = self.shared();
        let mut sleep = shared.env.sleep(deadline.since(shared.env.now()));
        let _permit = tokio::select! {
            biased;
            permit = shared.calls.acquire() => permit.map_err(|_| CallError::NotSent(shared.reason()))?,
            () = &mut sleep => return Err(CallError::Deadline { sent: false }),
        };
        let mut waiting = shared.queue_call(&mut sleep, encode).await?;
        tokio::select! {
            biased;
            answer = &mut waiting.answer => answer.expect("each call is answered or told why not"),
            () = &mut sleep => waiting.give_up(),
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({})", self.shared().address)
    }
}

struct Handle {
    shared: Arc<Shared>,
    welcome: Welcome,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close("no longer used".into());
    }
}

/// What the calls and the connection's task have in common.
struct Shared {
    env: Env,
    address: String,
    frame_bytes_max: usize,
    state: Mutex<State>,
    /// The queue is no longer empty, or the connection is closed.
    work: Notify,
    /// The queue was taken, or the connection is closed.
    room: Notify,
    calls: Semaphore,
}

#[derive(Default)]
struct State {
    /// Whole frames that the task has not taken.
    queue: Vec<u8>,
    last_id: u64,
    /// Requests up to this id have been given to the stream.
    sent_id: u64,
    calls: BTreeMap<u64, oneshot::Sender<Result<Message, CallError>>>,
    closed: Option<Arc<str>>,
    /// Since when an answer is due and nothing at all has arrived.
    silent_since: Option<Instant>,
}

impl State {
    fn lost(&self, id: u64, reason: &Arc<str>) -> CallError {
        if id <= self.sent_id { CallError::Broken(reason.clone()) } else { CallError::NotSent(reason.clone()) }
    }
}

impl Shared {
    fn reason(&self) -> Arc<str> {
        self.state.lock().closed.clone().unwrap_or_else(|| "closed".into())
    }

    async fn queue_call(
        self: &Arc<Self>,
        sleep: &mut Sleep,
        encode: impl Fn(&mut Encoder<'_>, u64) -> Result<(), TooLarge>,
    ) -> Result<Waiting, CallError> {
        loop {
            let mut room = std::pin::pin!(self.room.notified());
            room.as_mut().enable();
            if let Some(waiting) = self.try_queue_call(&encode)? {
                return Ok(waiting);
            }
            tokio::select! {
                biased;
                () = room => {}
                () = &mut *sleep => return Err(CallError::Deadline { sent: false }),
            }
        }
    }

    /// `None` when the queue is full.
    fn try_queue_call(
        self: &Arc<Self>,
        encode: impl Fn(&mut Encoder<'_>, u64) -> Result<(), TooLarge>,
    ) -> Result<Option<Waiting>, CallError> {
        let mut state = self.state.lock();
        if let Some(reason) = &state.closed {
            return Err(CallError::NotSent(reason.clone()));
        }
        if state.queue.len() >= CALL_BUFFER_BYTES_MAX {
            return Ok(None);
        }
        let id = state.last_id + 1;
        encode(&mut Encoder { out: &mut state.queue, frame_bytes_max: self.frame_bytes_max }, id)?;
        state.last_id = id;
        state.silent_since.get_or_insert_with(|| self.env.now());
        let (sender, answer) = oneshot::channel();
        state.calls.insert(id, sender);
        drop(state);
        self.work.notify_one();
        Ok(Some(Waiting { shared: self.clone(), id, answer }))
    }

    fn queue_one_way(&self, append: impl FnOnce(&mut Vec<u8>) -> Result<(), TooLarge>) -> Result<(), PeerError> {
        let mut state = self.state.lock();
        if let Some(reason) = &state.closed {
            return Err(PeerError::Closed(reason.clone()));
        }
        if state.queue.len() >= PEER_BUFFER_BYTES_MAX {
            return Err(PeerError::Full);
        }
        append(&mut state.queue)?;
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Forgets a call. Whether its request has left; if not, it never will.
    fn give_up(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        let was_waiting = state.calls.remove(&id).is_some();
        let unsent = was_waiting && id > state.sent_id && codec::remove_frame(&mut state.queue, id);
        !unsent
    }

    fn close_if_silent(&self) {
        let silence = |since| self.env.now().since(since);
        if self.state.lock().silent_since.map(silence).is_some_and(|silence| silence >= SILENCE_MAX) {
            self.close("nothing arrives any more".into());
        }
    }

    fn close(&self, reason: Arc<str>) {
        let mut state = self.state.lock();
        if state.closed.is_some() {
            return;
        }
        for (id, call) in std::mem::take(&mut state.calls) {
            // A call that was given up meanwhile does not listen.
            let _ = call.send(Err(state.lost(id, &reason)));
        }
        state.queue = Vec::new();
        state.closed = Some(reason);
        drop(state);
        self.calls.close();
        self.room.notify_waiters();
        self.work.notify_one();
    }

    async fn run(self: Arc<Self>, mut wire: Wire, probing: Probing) {
        if let Err(broken) = self.work(&mut wire, probing).await {
            tracing::debug!(address = self.address, %broken, "connection ended");
            self.close(broken.to_string().into());
        }
    }

    /// Moves requests out and answers in until the connection is closed from either end.
    async fn work(&self, wire: &mut Wire, probing: Probing) -> Result<(), Broken> {
        let mut probe = self.env.sleep(PING_INTERVAL);
        while self.give_queue(wire) {
            tokio::select! {
                biased;
                progress = wire.progress(true) => match progress.map_err(Ended::Io)? {
                    Progress::Read => self.take_answers(wire)?,
                    Progress::Wrote => {}
                    Progress::End => return Err(Ended::Closed.into()),
                },
                () = self.work.notified() => {}
                () = &mut probe, if probing == Probing::On => {
                    self.probe(wire)?;
                    probe = self.env.sleep(PING_INTERVAL);
                }
            }
        }
        Ok(())
    }

    /// Hands the queue to the stream if that has taken the last one. False once closed.
    fn give_queue(&self, wire: &mut Wire) -> bool {
        let mut state = self.state.lock();
        if state.closed.is_some() {
            return false;
        }
        if wire.output_len() == 0 && !state.queue.is_empty() {
            wire.swap_output(&mut state.queue);
            state.sent_id = state.last_id;
            drop(state);
            self.room.notify_waiters();
        }
        true
    }

    fn take_answers(&self, wire: &mut Wire) -> Result<(), Broken> {
        self.heard();
        while let Some(frame) = wire.take_frame().map_err(Ended::Malformed)? {
            let id = frame.id;
            match frame.decode().map_err(Ended::Malformed)? {
                Message::Response(Response::Error(error)) if id == 0 => return Err(Broken::Told(error)),
                message @ (Message::Response(_) | Message::RaftAnswer(_)) => self.answer(id, message),
                Message::Ping => wire.output().pong(id).expect("a pong is short"),
                Message::Pong => {}
                _ => return Err(Broken::Unexpected),
            }
        }
        Ok(())
    }

    fn answer(&self, id: u64, message: Message) {
        let call = self.state.lock().calls.remove(&id);
        if let Some(call) = call {
            // A call that was given up meanwhile does not listen.
            let _ = call.send(Ok(message));
        }
    }

    fn heard(&self) {
        let mut state = self.state.lock();
        state.silent_since = (!state.calls.is_empty()).then(|| self.env.now());
    }

    fn probe(&self, wire: &mut Wire) -> Result<(), Broken> {
        let now = self.env.now();
        let since = *self.state.lock().silent_since.get_or_insert(now);
        if now.since(since) > PING_SILENCE_MAX {
            return Err(Broken::Silent);
        }
        wire.output().ping(0).expect("a ping is short");
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Probing {
    On,
    Off,
}

#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Ended(#[from] Ended),
    #[error("the server ended it: {0}")]
    Told(Error),
    #[error("the server sent something that is no answer")]
    Unexpected,
    #[error("nothing arrives any more")]
    Silent,
}

/// A call whose request is queued or sent.
struct Waiting {
    shared: Arc<Shared>,
    id: u64,
    answer: oneshot::Receiver<Result<Message, CallError>>,
}

impl Waiting {
    /// The deadline has passed.
    fn give_up(&mut self) -> Result<Message, CallError> {
        let sent = self.shared.give_up(self.id);
        // It may have come just now.
        if let Ok(answer) = self.answer.try_recv() {
            return answer;
        }
        if sent {
            self.shared.close_if_silent();
        }
        Err(CallError::Deadline { sent })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.give_up(self.id);
    }
}

/// An error's cause, where the error itself says only what was done: our own says that too.
fn without_context(error: &std::io::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

async fn open(env: &Env, address: &str, caller: &Caller) -> Result<Connection, ConnectError> {
    let unreachable = |reason: String| ConnectError::Unreachable { address: address.to_owned(), reason };
    let stream = env.net().connect(address).await.map_err(|error| unreachable(without_context(&error)))?;
    let mut wire = Wire::new(stream, GREETING_BYTES_MAX);
    let welcome = greet(env, &mut wire, caller).await.map_err(|failure| match failure {
        Greeting::Ended(Ended::Malformed(malformed)) => {
            ConnectError::Untrusted { address: address.to_owned(), reason: malformed.to_string() }
        }
        Greeting::Ended(ended) => unreachable(ended.to_string()),
        Greeting::Refused(error) => ConnectError::Refused { address: address.to_owned(), error },
        Greeting::Untrusted(reason) => {
            ConnectError::Untrusted { address: address.to_owned(), reason: reason.to_owned() }
        }
    })?;
    let (frame_bytes_max, probing) = match caller.hello.purpose {
        Purpose::Client | Purpose::Raft => (FRAME_BYTES_MAX, Probing::Off),
        Purpose::Peer(_) => (PEER_FRAME_BYTES_MAX, Probing::On),
    };
    wire.set_frame_bytes_max(frame_bytes_max);
    let shared = Arc::new(Shared {
        env: env.clone(),
        address: address.to_owned(),
        frame_bytes_max,
        state: Mutex::default(),
        work: Notify::new(),
        room: Notify::new(),
        calls: Semaphore::new(CALLS_PER_CONNECTION_MAX),
    });
    env.spawn("connection", shared.clone().run(wire, probing));
    Ok(Connection { handle: Arc::new(Handle { shared, welcome }) })
}

enum Greeting {
    Ended(Ended),
    Refused(Error),
    Untrusted(&'static str),
}

impl<E: Into<Ended>> From<E> for Greeting {
    fn from(ended: E) -> Greeting {
        Greeting::Ended(ended.into())
    }
}

/// The caller's part of the handshake.
async fn greet(env: &Env, wire: &mut Wire, caller: &Caller) -> Result<Welcome, Greeting> {
    wire.output().hello(&caller.hello).expect("a hello is short");
    let (welcome, proof, asked) = match next_message(wire).await? {
        Message::Welcome { welcome, proof } => (welcome, proof, None),
        Message::Challenge(challenge) => {
            let Some(secret) = &caller.secret else {
                return Err(Greeting::Untrusted(
                    "it asks for the cluster's secret, and we have none (--secret-file FILE)",
                ));
            };
            let nonce = random_nonce(env);
            let proof =
                Transcript { challenge: &challenge, nonce: &nonce, hello: &caller.hello }.prove(secret, End::Caller);
            wire.output().proof(&nonce, &proof).expect("a proof is short");
            match next_message(wire).await? {
                Message::Welcome { welcome, proof } => (welcome, proof, Some((challenge, nonce))),
                _ => return Err(Greeting::Untrusted("it answers a proof with something else than a welcome")),
            }
        }
        _ => return Err(Greeting::Untrusted("it answers a hello with something else than a welcome")),
    };
    match (&caller.secret, asked, proof) {
        (None, ..) => Ok(welcome),
        (Some(secret), Some((challenge, nonce)), Some(proof))
            if Transcript { challenge: &challenge, nonce: &nonce, hello: &caller.hello }.is_proof(
                secret,
                End::Server,
                &proof,
            ) =>
        {
            Ok(welcome)
        }
        (Some(_), None, _) => Err(Greeting::Untrusted("it does not ask for the cluster's secret, which we have")),
        (Some(_), Some(_), _) => Err(Greeting::Untrusted("it does not know the cluster's secret")),
    }
}

async fn next_message(wire: &mut Wire) -> Result<Message, Greeting> {
    match wire.next_frame().await?.decode().map_err(|malformed: Malformed| Ended::Malformed(malformed))? {
        Message::Response(Response::Error(error)) => Err(Greeting::Refused(error)),
        message => Ok(message),
    }
}

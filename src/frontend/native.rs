//! The answering side of the native protocol.
//!
//! Promises: requests of a connection start in the order in which they came, run at the same time, and are answered as they
//! end; answers that are ready together leave with one write. A connection that misbehaves is told so where possible, closed,
//! and disturbs no other; what one connection may hold of the server is bounded ([`limits`](crate::frontend::limits)).
//!
//! A connection's life: accepted, if there are not too many; greeted, with a proof of the cluster's secret where there is one
//! ([`handshake`](crate::protocol::handshake)); then one task reads frames, starts a future for each request, polls those that
//! run, and writes, until either end closes. When too many run, or answers are not fetched, it stops reading, and the other
//! end's writes wait in turn.

use crate::frontend::limits::*;
use crate::protocol::codec::{Frame, Malformed, Message, Nonce};
use crate::protocol::handshake::{End, Secret, Transcript, random_nonce};
use crate::protocol::limits::{FRAME_BYTES_MAX, GREETING_BYTES_MAX, PEER_FRAME_BYTES_MAX};
use crate::protocol::message::*;
use crate::protocol::peer::PeerMessage;
use crate::protocol::wire::{Ended, Progress, Wire};
use crate::region::ServerId;
use bytes::Bytes;
use env::{BoxFuture, Env, Instant, Listener, Stream, Task};
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;

/// What a node does with what it is asked.
pub trait Service: Send + Sync + 'static {
    /// Who the node is, for each connection anew.
    fn identity(&self) -> Welcome;
    /// Called in the order of a connection's requests, from the connection's own task: it must not wait. The future is
    /// dropped if the connection ends first; what must not be left halfway does not live in it.
    fn request(&self, request: Request) -> BoxFuture<'static, Response>;
    /// Called in the order in which `from` sent, as [`Service::request`] is.
    fn peer(&self, from: ServerId, message: PeerMessage);
    fn raft(&self, body: Bytes) -> BoxFuture<'static, Result<Bytes, Error>>;
}

#[derive(Clone, Debug)]
pub struct Options {
    pub secret: Option<Secret>,
    pub connections_max: usize,
    pub requests_per_connection_max: usize,
    pub greeting_time_max: Duration,
    pub idle_time_max: Duration,
    pub stall_time_max: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            secret: None,
            connections_max: CONNECTIONS_MAX,
            requests_per_connection_max: REQUESTS_PER_CONNECTION_MAX,
            greeting_time_max: GREETING_TIME_MAX,
            idle_time_max: IDLE_TIME_MAX,
            stall_time_max: STALL_TIME_MAX,
        }
    }
}

/// Answers all who connect, for ever. Dropping the future closes the listener and all connections.
pub async fn serve(env: Env, mut listener: Box<dyn Listener>, service: Arc<dyn Service>, options: Options) {
    let free = Arc::new(Semaphore::new(options.connections_max));
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    let server = Arc::new(Server { env: env.clone(), service, options });
    let tasks = Tasks::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept a connection");
                env.sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Ok(place) = free.clone().try_acquire_owned() {
            let server = server.clone();
            tasks.spawn(&env, "native connection", async move {
                server.connection(stream, peer).await;
                drop(place);
            });
        } else if let Ok(place) = refusals.clone().try_acquire_owned() {
            let server = server.clone();
            tasks.spawn(&env, "refuse connection", async move {
                server.refuse(stream).await;
                drop(place);
            });
        }
    }
}

/// Running tasks, which end with it.
#[derive(Clone, Default)]
struct Tasks {
    running: Arc<Mutex<Running>>,
}

#[derive(Default)]
struct Running {
    last: u64,
    tasks: BTreeMap<u64, Task<()>>,
}

impl Tasks {
    fn spawn(&self, env: &Env, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        running.last += 1;
        let id = running.last;
        let all = Arc::downgrade(&self.running);
        let task = env.spawn(name, async move {
            work.await;
            if let Some(all) = all.upgrade() {
                all.lock().tasks.remove(&id);
            }
        });
        running.tasks.insert(id, task);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.values().for_each(Task::abort);
    }
}

struct Server {
    env: Env,
    service: Arc<dyn Service>,
    options: Options,
}

/// Why a connection is closed from this end.
#[derive(Debug, thiserror::Error)]
enum Closing {
    /// Not worth a word: the other end is gone, or does not listen.
    #[error(transparent)]
    Ended(#[from] Ended),
    #[error("{0}")]
    Stalled(&'static str),
    /// The last words, and the request that they are about (0: none).
    #[error("{error}")]
    Error { id: u64, error: Error },
    /// The other end speaks another language; the last words are in it.
    #[error("not the native protocol")]
    Foreign(&'static [u8]),
}

impl Closing {
    fn error(error: Error) -> Closing {
        Closing::Error { id: 0, error }
    }
}

impl Server {
    async fn connection(&self, stream: Stream, peer: String) {
        let mut wire = Wire::new(stream, GREETING_BYTES_MAX);
        let closing = match self.talk(&mut wire).await {
            Ok(()) => return,
            Err(closing) => closing,
        };
        tracing::debug!(peer, reason = %closing, "connection closed");
        self.say_goodbye(&mut wire, closing).await;
    }

    async fn refuse(&self, stream: Stream) {
        let mut wire = Wire::new(stream, GREETING_BYTES_MAX);
        let message = format!("{} connections are open, which is the limit", self.options.connections_max);
        self.say_goodbye(&mut wire, Closing::error(Error::unavailable(message))).await;
    }

    async fn say_goodbye(&self, wire: &mut Wire, closing: Closing) {
        match closing {
            Closing::Ended(Ended::Malformed(malformed)) => {
                wire.output().error(0, &Error::invalid(malformed.to_string()))
            }
            Closing::Ended(_) | Closing::Stalled(_) => return,
            Closing::Error { id, error } => wire.output().error(id, &error),
            Closing::Foreign(words) => wire.output_bytes().extend_from_slice(words),
        }
        // Whether it hears them is its own affair.
        let _ = self.env.timeout(LAST_WORDS_TIME_MAX, wire.finish()).await;
    }

    async fn talk(&self, wire: &mut Wire) -> Result<(), Closing> {
        let greeting = self.env.timeout(self.options.greeting_time_max, self.greet(wire));
        let purpose = greeting.await.map_err(|_| Closing::Stalled("no handshake in time"))??;
        wire.set_frame_bytes_max(match purpose {
            Purpose::Client | Purpose::Raft => FRAME_BYTES_MAX,
            Purpose::Peer(_) => PEER_FRAME_BYTES_MAX,
        });
        let mut talk = Talk {
            server: self,
            wire,
            purpose,
            running: FuturesUnordered::new(),
            last_read: self.env.now(),
            last_wrote: self.env.now(),
        };
        talk.run().await
    }

    /// The server's part of the handshake.
    async fn greet(&self, wire: &mut Wire) -> Result<Purpose, Closing> {
        let hello = match next_message(wire).await? {
            Message::Hello(hello) => hello,
            _ => return Err(Closing::error(Error::invalid("a connection begins with a hello"))),
        };
        let proof = match &self.options.secret {
            None => None,
            Some(secret) => {
                let challenge = random_nonce(&self.env);
                wire.output().challenge(&challenge).expect("a challenge is short");
                Some(check_proof(secret, &challenge, &hello, next_message(wire).await?)?)
            }
        };
        let welcome = self.service.identity();
        if let (Some(theirs), Some(ours)) = (hello.cluster, welcome.cluster)
            && theirs != ours
        {
            let message = format!("this node belongs to cluster {:032x}, not to {:032x}", ours.0, theirs.0);
            return Err(Closing::error(Error::invalid(message)));
        }
        wire.output().welcome(&welcome, proof.as_ref()).expect("a welcome is short");
        Ok(hello.purpose)
    }
}

/// The server's own proof, if the caller's is good.
fn check_proof(secret: &Secret, challenge: &Nonce, hello: &Hello, answer: Message) -> Result<[u8; 32], Closing> {
    let Message::Proof { nonce, proof } = answer else {
        return Err(Closing::error(Error::invalid("a challenge is answered with a proof")));
    };
    let transcript = Transcript { challenge, nonce: &nonce, hello };
    if transcript.is_proof(secret, End::Caller, &proof) {
        Ok(transcript.prove(secret, End::Server))
    } else {
        Err(Closing::error(Error::invalid("this is not the cluster's secret")))
    }
}

/// A message of the handshake. The first bytes tell who it is that speaks no such thing.
async fn next_message(wire: &mut Wire) -> Result<Message, Closing> {
    loop {
        match wire.take_frame() {
            Ok(Some(frame)) => return decode(frame),
            Ok(None) => {}
            Err(malformed) => {
                return Err(foreign(wire.input()).map_or(Closing::Ended(malformed.into()), Closing::Foreign));
            }
        }
        if wire.progress(true).await.map_err(Ended::Io)? == Progress::End {
            return Err(Ended::Closed.into());
        }
    }
}

fn decode(frame: Frame) -> Result<Message, Closing> {
    let id = frame.id;
    frame.decode().map_err(|malformed| Closing::Error { id, error: Error::invalid(malformed.to_string()) })
}

/// What to tell who speaks another protocol than ours, if it is one that people have pointed at the wrong port before.
fn foreign(input: &[u8]) -> Option<&'static [u8]> {
    const HTTP: &[&[u8]] = &[b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI "];
    let start = input.first_chunk::<4>()?;
    if HTTP.iter().any(|method| start == *method) {
        return Some(
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
              This port speaks Steadfast's native protocol, not HTTP.\r\n",
        );
    }
    let is_text = start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
    is_text.then_some(b"-ERR this port speaks Steadfast's native protocol, not RESP or plain text\r\n")
}

/// What runs for one request.
enum Work {
    Request(BoxFuture<'static, Response>),
    Raft(BoxFuture<'static, Result<Bytes, Error>>),
}

enum Answer {
    Response(Response),
    Raft(Result<Bytes, Error>),
}

struct Started {
    id: u64,
    work: Work,
}

impl Future for Started {
    type Output = (u64, Answer);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<(u64, Answer)> {
        let id = self.id;
        match &mut self.work {
            Work::Request(request) => request.as_mut().poll(context).map(|response| (id, Answer::Response(response))),
            Work::Raft(raft) => raft.as_mut().poll(context).map(|answer| (id, Answer::Raft(answer))),
        }
    }
}

/// A connection after its handshake.
struct Talk<'a> {
    server: &'a Server,
    wire: &'a mut Wire,
    purpose: Purpose,
    running: FuturesUnordered<Started>,
    last_read: Instant,
    last_wrote: Instant,
}

impl Talk<'_> {
    async fn run(&mut self) -> Result<(), Closing> {
        let env = &self.server.env;
        let interval = self.server.options.stall_time_max.min(self.server.options.idle_time_max) / 4;
        let mut watch = env.sleep(interval);
        loop {
            self.start_requests().await?;
            let read = self.may_read();
            tokio::select! {
                biased;
                Some((id, answer)) = self.running.next(), if self.may_answer() => self.answer(id, answer),
                progress = self.wire.progress(read) => match progress.map_err(Ended::Io)? {
                    Progress::Read => self.last_read = env.now(),
                    Progress::Wrote => self.last_wrote = env.now(),
                    Progress::End => return Ok(()),
                },
                () = &mut watch => {
                    self.check_progress(env.now())?;
                    watch = env.sleep(interval);
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        self.running.len() < self.server.options.requests_per_connection_max
            && self.wire.output_len() < ANSWER_BYTES_MAX
    }

    fn may_read(&self) -> bool {
        self.has_room() && !self.wire.has_frame()
    }

    fn may_answer(&self) -> bool {
        self.wire.output_len() < ANSWER_BYTES_MAX
    }

    async fn start_requests(&mut self) -> Result<(), Closing> {
        while self.has_room() {
            match self.wire.take_frame().map_err(Ended::Malformed)? {
                Some(frame) => self.start(frame).await?,
                None => break,
            }
        }
        Ok(())
    }

    async fn start(&mut self, frame: Frame) -> Result<(), Closing> {
        let (id, kind) = (frame.id, frame.kind);
        let service = &self.server.service;
        let work = match (self.purpose, decode(frame)?) {
            (Purpose::Client, Message::Request(request)) => Work::Request(service.request(request)),
            (Purpose::Raft, Message::Raft(body)) => Work::Raft(service.raft(body)),
            (Purpose::Peer(from), Message::Peer(message)) => {
                service.peer(from, message);
                return Ok(());
            }
            (_, Message::Ping) => {
                self.wire.output().pong(id).expect("a pong is short");
                return Ok(());
            }
            _ => {
                let message = format!("a message of kind {kind:#04x} has no place on this connection");
                return Err(Closing::Error { id, error: Error::invalid(message) });
            }
        };
        // Most answers are ready at once, and need no place among those that are not.
        let mut running = Started { id, work };
        match poll_fn(|context| Poll::Ready(Pin::new(&mut running).poll(context))).await {
            Poll::Ready((id, answer)) => self.answer(id, answer),
            Poll::Pending => self.running.push(running),
        }
        Ok(())
    }

    fn answer(&mut self, id: u64, answer: Answer) {
        match answer {
            Answer::Response(response) => self.wire.output().response(id, &response),
            Answer::Raft(Ok(body)) => {
                if let Err(too_large) = self.wire.output().raft_answer(id, &body) {
                    self.wire.output().error(id, &Error::invalid(too_large.to_string()));
                }
            }
            Answer::Raft(Err(error)) => self.wire.output().error(id, &error),
        }
    }

    fn check_progress(&mut self, now: Instant) -> Result<(), Closing> {
        let options = &self.server.options;
        if self.wire.is_drained() {
            self.last_wrote = now;
        }
        if !self.may_read() {
            self.last_read = now;
        }
        let is_half_read = !self.wire.input().is_empty() && self.may_read();
        if now.since(self.last_wrote) > options.stall_time_max {
            Err(Closing::Stalled("answers are not fetched"))
        } else if is_half_read && now.since(self.last_read) > options.stall_time_max {
            Err(Closing::Stalled("half a frame came, and no more"))
        } else if self.running.is_empty() && now.since(self.last_read) > options.idle_time_max {
            Err(Closing::Stalled("nothing was asked for long"))
        } else {
            Ok(())
        }
    }
}

impl From<Malformed> for Closing {
    fn from(malformed: Malformed) -> Closing {
        Closing::Ended(malformed.into())
    }
}

#[cfg(test)]
mod tests;

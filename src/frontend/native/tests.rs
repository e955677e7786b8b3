//! A toy service behind a real front end, called by real connections, on a simulated node.

use super::*;
use crate::protocol::codec::{self, Encoder};
use crate::protocol::connection::Caller;
use crate::protocol::peer::{Beacon, PeerBody};
use crate::protocol::{CallError, ConnectError, Connection, Pool};
use crate::region::{Epoch, RegionId, Seqno};
use bytes::BytesMut;
use env::sim::single;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);

/// Answers a read with its keys as values, after as many milliseconds as the region's number says.
struct Echo {
    env: Env,
    /// The first key of each request, as they came.
    started: Mutex<Vec<Bytes>>,
    peers: Mutex<Vec<(ServerId, PeerMessage)>>,
    /// Requests that run now, and the most that ever did.
    running: Arc<(AtomicUsize, AtomicUsize)>,
}

impl Service for Echo {
    fn identity(&self) -> Welcome {
        Welcome { cluster: Some(ClusterId(7)), role: Role::Server }
    }

    fn request(&self, request: Request) -> BoxFuture<'static, Response> {
        let Request::Read(read) = request else {
            return Box::pin(async { Response::Error(Error::invalid("this is a toy")) });
        };
        self.started.lock().push(read.keys[0].clone());
        let (env, running) = (self.env.clone(), self.running.clone());
        running.1.fetch_max(running.0.fetch_add(1, Relaxed) + 1, Relaxed);
        Box::pin(async move {
            if read.region.0 > 0 {
                env.sleep(MS * read.region.0 as u32).await;
            }
            running.0.fetch_sub(1, Relaxed);
            Response::Read(read.keys.into_iter().map(Some).collect())
        })
    }

    fn peer(&self, from: ServerId, message: PeerMessage) {
        self.peers.lock().push((from, message));
    }

    fn raft(&self, body: Bytes) -> BoxFuture<'static, Result<Bytes, Error>> {
        Box::pin(async move { if body.is_empty() { Err(Error::unavailable("not now")) } else { Ok(body) } })
    }
}

/// A front end and what its callers need.
struct Stage {
    env: Env,
    address: String,
    service: Arc<Echo>,
    server: Task<()>,
}

impl Stage {
    async fn new(env: &Env, options: Options) -> Stage {
        let listener = env.net().listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_address();
        let service = Arc::new(Echo {
            env: env.clone(),
            started: Mutex::default(),
            peers: Mutex::default(),
            running: Arc::default(),
        });
        let server = env.spawn("serve", serve(env.clone(), listener, service.clone(), options));
        Stage { env: env.clone(), address, service, server }
    }

    fn deadline(&self) -> Instant {
        self.env.now() + Duration::from_secs(5)
    }

    async fn open(&self, caller: &Caller) -> Result<Connection, ConnectError> {
        Connection::open(&self.env, &self.address, caller, self.deadline()).await
    }

    /// A connection that speaks bytes.
    async fn raw(&self) -> Stream {
        self.env.net().connect(&self.address).await.unwrap()
    }

    /// Fails if a fresh client is not served.
    async fn assert_serves(&self) {
        let connection = self.open(&client()).await.expect("still welcomes");
        let response = connection.call(&read(0, "alive"), self.deadline()).await;
        assert_eq!(response, Ok(echo("alive")), "still answers");
    }
}

fn caller(purpose: Purpose) -> Caller {
    Caller { hello: Hello { version: VERSION, purpose, cluster: None }, secret: None }
}

fn client() -> Caller {
    caller(Purpose::Client)
}

fn read(delay_ms: u64, key: &str) -> Request {
    let keys = vec![Bytes::copy_from_slice(key.as_bytes())];
    Request::Read(ReadRequest { region: RegionId(delay_ms), form: KeyForm::User, keys })
}

fn echo(key: &str) -> Response {
    Response::Read(vec![Some(Bytes::copy_from_slice(key.as_bytes()))])
}

fn encoded(encode: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut Encoder { out: &mut out, frame_bytes_max: PEER_FRAME_BYTES_MAX });
    out
}

fn hello(hello: &Hello) -> Vec<u8> {
    encoded(|encoder| encoder.hello(hello).unwrap())
}

async fn send(stream: &mut Stream, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
}

/// All that comes until the other end closes.
async fn hear_out(env: &Env, stream: &mut Stream) -> Vec<u8> {
    let mut heard = Vec::new();
    let limit = Duration::from_secs(3600);
    env.timeout(limit, stream.read_to_end(&mut heard)).await.expect("closed in time").expect("closed in order");
    heard
}

fn messages(bytes: &[u8]) -> Vec<(u64, Message)> {
    let mut buffer = BytesMut::from(bytes);
    let mut messages = Vec::new();
    while let Some(frame) = codec::take_frame(&mut buffer, FRAME_BYTES_MAX).unwrap() {
        messages.push((frame.id, frame.decode().unwrap()));
    }
    assert!(buffer.is_empty(), "half a frame at the end");
    messages
}

/// The error that is the last message in `bytes`.
fn last_error(bytes: &[u8]) -> (u64, Error) {
    match messages(bytes).pop() {
        Some((id, Message::Response(Response::Error(error)))) => (id, error),
        other => panic!("an error, not {other:?}"),
    }
}

#[test]
fn requests_start_in_order_run_together_and_are_answered_as_they_end() {
    single(1, |env| async move {
        let stage = Stage::new(&env, Options::default()).await;
        let connection = stage.open(&client()).await.unwrap();
        assert_eq!(connection.welcome(), &stage.service.identity());
        let start = env.now();
        let calls = (0..100u64).map(|i| {
            let (connection, deadline) = (connection.clone(), stage.deadline());
            async move {
                // The later the shorter; every tenth is answered at once.
                let request = read(if i % 10 == 0 { 0 } else { 1000 - 5 * i }, &format!("{i}"));
                assert_eq!(connection.call(&request, deadline).await, Ok(echo(&format!("{i}"))));
            }
        });
        calls.collect::<FuturesUnordered<_>>().collect::<Vec<()>>().await;
        assert!(env.now().since(start) < Duration::from_millis(1100), "one after the other");
        let expected: Vec<Bytes> = (0..100).map(|i| format!("{i}").into()).collect();
        assert_eq!(*stage.service.started.lock(), expected);
    });
}

/// redis/redis-py#2624 and its like: a call that was given up left its answer to the next.
#[test]
fn cancelled_calls_never_mix_answers() {
    single(2, |env| async move {
        let stage = Stage::new(&env, Options::default()).await;
        let connection = stage.open(&client()).await.unwrap();
        let mut cancelled = 0;
        for i in 0..1000 {
            let key = format!("{i}");
            let request = read(env.random_below(4), &key);
            let call = connection.call(&request, stage.deadline());
            match env.timeout(MS * env.random_below(4) as u32, call).await {
                Ok(response) => assert_eq!(response, Ok(echo(&key))),
                Err(_) => cancelled += 1,
            }
        }
        assert!((200..900).contains(&cancelled), "{cancelled} of 1000 calls were cancelled");
        assert_eq!(connection.call(&read(0, "after"), stage.deadline()).await, Ok(echo("after")));
    });
}

#[test]
fn a_deadline_is_kept_and_a_slow_answer_closes_nothing() {
    single(3, |env| async move {
        let stage = Stage::new(&env, Options::default()).await;
        let connection = stage.open(&client()).await.unwrap();
        let start = env.now();
        let slow = connection.call(&read(60_000, "slow"), start + 300 * MS).await;
        assert_eq!(slow, Err(CallError::Deadline { sent: true }));
        assert!(slow.unwrap_err().may_have_happened());
        let took = env.now().since(start);
        assert!((300 * MS..310 * MS).contains(&took), "{took:?}");
        assert_eq!(connection.call(&read(0, "next"), stage.deadline()).await, Ok(echo("next")));
    });
}

/// Nothing tells a connection that it is dead but its silence.
#[test]
fn a_deadline_in_silence_closes_the_connection() {
    single(4, |env| async move {
        let mut listener = env.net().listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_address();
        let deaf = env.spawn("deaf server", async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let welcome = Welcome { cluster: None, role: Role::Server };
            send(&mut stream, &encoded(|encoder| encoder.welcome(&welcome, None).unwrap())).await;
            std::future::pending::<()>().await;
            drop(stream);
        });
        let deadline = env.now() + Duration::from_secs(5);
        let connection = Connection::open(&env, &address, &client(), deadline).await.unwrap();
        let other = env.spawn("other call", {
            let connection = connection.clone();
            async move { connection.call(&read(0, "other"), deadline).await }
        });
        for _ in 0..5 {
            assert!(!connection.is_closed());
            let call = connection.call(&read(0, "x"), env.now() + 100 * MS).await;
            assert_eq!(call, Err(CallError::Deadline { sent: true }));
        }
        assert!(connection.is_closed(), "half a second of silence");
        assert!(matches!(other.await.unwrap(), Err(CallError::Broken(_))));
        assert!(matches!(connection.call(&read(0, "x"), deadline).await, Err(CallError::NotSent(_))));
        deaf.abort();
    });
}

#[test]
fn calls_on_a_connection_that_ends_know_whether_they_were_sent() {
    single(5, |env| async move {
        let stage = Stage::new(&env, Options::default()).await;
        let connection = stage.open(&client()).await.unwrap();
        let call = |key: &'static str| {
            let (connection, deadline) = (connection.clone(), stage.deadline());
            env.spawn("call", async move { connection.call(&read(60_000, key), deadline).await })
        };
        let sent = call("sent");
        env.sleep(10 * MS).await;
        stage.server.abort();
        env.sleep(10 * MS).await;
        assert!(matches!(sent.await.unwrap(), Err(CallError::Broken(_))));
        assert!(matches!(call("late").await.unwrap(), Err(CallError::NotSent(_))));
        assert_eq!(stage.service.started.lock().len(), 1);
        let refused = stage.open(&client()).await.unwrap_err();
        assert!(matches!(refused, ConnectError::Unreachable { .. }), "{refused}");
    });
}

#[test]
fn a_request_that_is_given_up_in_the_queue_never_leaves() {
    single(6, |env| async move {
        let mut listener = env.net().listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_address();
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let server = env.spawn("server that does not read yet", async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let welcome = Welcome { cluster: None, role: Role::Server };
            send(&mut stream, &encoded(|encoder| encoder.welcome(&welcome, None).unwrap())).await;
            gone.await.unwrap();
            hear_out(&Env::current(), &mut stream).await
        });
        let deadline = env.now() + Duration::from_secs(5);
        let connection = Connection::open(&env, &address, &client(), deadline).await.unwrap();
        let big = "x".repeat(1 << 20);
        let blocking = env.spawn("blocking call", {
            let connection = connection.clone();
            async move { connection.call(&read(0, &big), deadline).await }
        });
        env.sleep(10 * MS).await;
        let call = connection.call(&read(0, "given up"), env.now() + 100 * MS).await;
        assert_eq!(call, Err(CallError::Deadline { sent: false }));
        let cancelled = env.timeout(10 * MS, connection.call(&read(0, "cancelled"), deadline)).await;
        assert!(cancelled.is_err());
        go.send(()).unwrap();
        env.sleep(10 * MS).await;
        drop(connection);
        blocking.abort();
        let heard = messages(&server.await.unwrap());
        assert_eq!(heard.len(), 2, "the hello and the first request");
    });
}

#[test]
fn each_kind_of_malformed_frame_ends_its_connection_alone() {
    let welcomed = hello(&client().hello);
    let frame = |id: u64, kind: u8, body: &[u8]| {
        let len = (9 + body.len()) as u32;
        [&len.to_le_bytes()[..], &id.to_le_bytes(), &[kind], body].concat()
    };
    let peer = encoded(|encoder| encoder.peer(&PeerMessage::Beacon(Beacon { number: 1, claims: vec![] })).unwrap());
    // What is sent after the hello, and the request that the error is about.
    let cases: Vec<(&str, Vec<u8>, u64)> = vec![
        ("too long", u32::MAX.to_le_bytes().to_vec(), 0),
        ("just too long", ((FRAME_BYTES_MAX + 1) as u32).to_le_bytes().to_vec(), 0),
        ("too short", 8u32.to_le_bytes().to_vec(), 0),
        ("of no kind", frame(5, 0xee, b""), 5),
        ("with nothing in it", frame(6, 0x10, b""), 6),
        ("cut short", frame(7, 0x10, &[0; 12]), 7),
        ("with a count of four billion", frame(8, 0x10, &[&[0; 9][..], &[0xff; 4]].concat()), 8),
        ("with more behind it", frame(9, 0x05, b"more"), 9),
        ("that is no postcard", frame(10, 0x13, &[0xff; 30]), 10),
        ("of the handshake", welcomed.clone(), 0),
        ("that is an answer", encoded(|encoder| encoder.response(11, &echo("x"))), 11),
        ("between servers", peer, 0),
        ("between masters", encoded(|encoder| encoder.raft(12, b"x").unwrap()), 12),
    ];
    single(7, |env| async move {
        let stage = Stage::new(&env, Options::default()).await;
        let bystander = stage.open(&client()).await.unwrap();
        for (name, bytes, about) in cases {
            let mut stream = stage.raw().await;
            send(&mut stream, &welcomed).await;
            // A request before it is answered all the same.
            send(&mut stream, &encoded(|encoder| encoder.request(1, &read(0, "before")).unwrap())).await;
            send(&mut stream, &bytes).await;
            let heard = hear_out(&env, &mut stream).await;
            let (id, error) = last_error(&heard);
            assert_eq!((id, error.code), (about, ErrorCode::Invalid), "a frame {name}: {error}");
            assert!(messages(&heard).contains(&(1, Message::Response(echo("before")))), "a frame {name}");
        }
        let call = bystander.call(&read(0, "x"), stage.deadline()).await;
        assert_eq!(call, Ok(echo("x")), "others notice nothing");
        stage.assert_serves().await;
    });
}

#[test]
fn random_bytes_do_no_harm() {
    single(8, |env| async move {
        let options = Options { greeting_time_max: 100 * MS, stall_time_max: 100 * MS, ..Options::default() };
        let stage = Stage::new(&env, options).await;
        for i in 0..200 {
            let mut bytes = if i % 2 == 0 { hello(&client().hello) } else { Vec::new() };
            for _ in 0..env.random_below(60) {
                bytes.extend_from_slice(&env.random().to_le_bytes()[..1 + i % 8]);
            }
            let mut stream = stage.raw().await;
            send(&mut stream, &bytes).await;
            hear_out(&env, &mut stream).await;
        }
        stage.assert_serves().await;
    });
}

#[test]
fn another_version_or_cluster_is_told_so() {
    single(9, |env| async move {
        let stage = Stage::new(&env, Options::default()).await;
        let mut future = client();
        future.hello.version = 99;
        let refused = stage.open(&future).await.unwrap_err();
        let ConnectError::Refused { error, .. } = &refused else { panic!("{refused}") };
        assert_eq!(error.code, ErrorCode::Invalid);
        assert!(error.message.contains("version 99") && error.message.contains("version 1"), "{error}");

        let mut stranger = client();
        stranger.hello.cluster = Some(ClusterId(8));
        let refused = stage.open(&stranger).await.unwrap_err();
        assert!(refused.to_string().contains("belongs to cluster"), "{refused}");
        stranger.hello.cluster = Some(ClusterId(7));
        stage.open(&stranger).await.unwrap();
    });
}

#[test]
fn other_protocols_get_a_line_that_people_can_read() {
    single(10, |env| async move {
        let options = Options { greeting_time_max: 100 * MS, ..Options::default() };
        let stage = Stage::new(&env, options).await;
        for (sent, start) in [
            (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], "HTTP/1.1 400 "),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 400 "),
            (b"*1\r\n$4\r\nPING\r\n", "-ERR "),
            (b"PING\r\n", "-ERR "),
            (b"\r\n\r\n", "-ERR "),
        ] {
            let mut stream = stage.raw().await;
            send(&mut stream, sent).await;
            let heard = String::from_utf8(hear_out(&env, &mut stream).await).unwrap();
            assert!(heard.starts_with(start) && heard.contains("native protocol"), "{heard:?}");
        }
        // TLS, and one who says nothing.
        for sent in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b""] {
            let mut stream = stage.raw().await;
            send(&mut stream, sent).await;
            hear_out(&env, &mut stream).await;
        }
        stage.assert_serves().await;
    });
}

#[test]
fn one_connection_too_many_gets_one_clear_error() {
    single(11, |env| async move {
        let stage = Stage::new(&env, Options { connections_max: 3, ..Options::default() }).await;
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(stage.open(&client()).await.unwrap());
        }
        let refused = stage.open(&client()).await.unwrap_err();
        let ConnectError::Refused { error, .. } = &refused else { panic!("{refused}") };
        assert_eq!((error.code, error.message.contains("3 connections")), (ErrorCode::Unavailable, true), "{error}");
        open.pop();
        env.sleep(10 * MS).await;
        stage.assert_serves().await;
    });
}

#[test]
fn no_more_requests_run_than_the_limit() {
    single(12, |env| async move {
        let stage = Stage::new(&env, Options { requests_per_connection_max: 4, ..Options::default() }).await;
        let connection = stage.open(&client()).await.unwrap();
        let calls = (0..50).map(|i| {
            let (connection, deadline) = (connection.clone(), stage.deadline());
            async move {
                let key = format!("{i}");
                assert_eq!(connection.call(&read(10, &key), deadline).await, Ok(echo(&key)));
            }
        });
        calls.collect::<FuturesUnordered<_>>().collect::<Vec<()>>().await;
        assert_eq!(stage.service.running.1.load(Relaxed), 4);
    });
}

#[test]
fn who_does_not_read_or_write_or_ask_is_left() {
    single(13, |env| async move {
        let options = Options {
            stall_time_max: Duration::from_secs(10),
            idle_time_max: Duration::from_secs(60),
            ..Options::default()
        };
        let stage = Stage::new(&env, options).await;
        // Asks for much and takes nothing: the answers fill the buffers, and then no more is asked of the service.
        let mut greedy = stage.raw().await;
        send(&mut greedy, &hello(&client().hello)).await;
        let asked = read(0, &"k".repeat(60_000));
        let asking = env.spawn("greedy", async move {
            for id in 1.. {
                let bytes = encoded(|encoder| encoder.request(id, &asked).unwrap());
                if greedy.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
        env.timeout(Duration::from_secs(20), asking).await.expect("closed").unwrap();
        let served = stage.service.started.lock().len();
        assert!(served * 60_000 < 2 * ANSWER_BYTES_MAX, "{served} requests were served");

        let start = env.now();
        let mut halting = stage.raw().await;
        send(&mut halting, &hello(&client().hello)).await;
        send(&mut halting, &[20, 0, 0]).await;
        hear_out(&env, &mut halting).await;
        assert!(env.now().since(start) < Duration::from_secs(20), "half a frame");

        let start = env.now();
        let idle = stage.open(&client()).await.unwrap();
        while !idle.is_closed() {
            env.sleep(Duration::from_secs(1)).await;
        }
        let took = env.now().since(start).as_secs();
        assert!((60..70).contains(&took), "closed an idle connection after {took} s");
    });
}

fn secret(text: &str) -> Option<Secret> {
    Some(Secret::new(text.as_bytes()).unwrap())
}

#[test]
fn with_a_secret_both_ends_prove_it() {
    single(14, |env| async move {
        let open = Stage::new(&env, Options::default()).await;
        let closed =
            Stage::new(&env, Options { secret: secret("the secret of this cluster"), ..Options::default() }).await;
        let knows = Caller { secret: secret("the secret of this cluster"), ..client() };
        let connection = closed.open(&knows).await.unwrap();
        assert_eq!(connection.call(&read(0, "x"), closed.deadline()).await, Ok(echo("x")));

        let refused = closed.open(&client()).await.unwrap_err();
        assert!(matches!(refused, ConnectError::Untrusted { .. }), "{refused}");
        let guesses = Caller { secret: secret("the secret of another cluster"), ..client() };
        let refused = closed.open(&guesses).await.unwrap_err();
        assert!(matches!(refused, ConnectError::Refused { .. }), "{refused}");
        let refused = open.open(&knows).await.unwrap_err();
        assert!(matches!(refused, ConnectError::Untrusted { .. }), "a server without it: {refused}");

        // A request instead of a proof is not looked at.
        let mut stream = closed.raw().await;
        send(&mut stream, &hello(&client().hello)).await;
        send(&mut stream, &encoded(|encoder| encoder.request(1, &read(0, "x")).unwrap())).await;
        let (_, error) = last_error(&hear_out(&env, &mut stream).await);
        assert!(error.message.contains("proof"), "{error}");
        assert_eq!(closed.service.started.lock().len(), 1);
    });
}

#[test]
fn raft_calls_carry_bytes_and_errors() {
    single(15, |env| async move {
        let stage = Stage::new(&env, Options::default()).await;
        let pool = Pool::new(env.clone(), caller(Purpose::Raft));
        let answer = pool.raft(&stage.address, b"entries", stage.deadline()).await;
        assert_eq!(answer, Ok(Ok(Bytes::from_static(b"entries"))));
        let answer = pool.raft(&stage.address, b"", stage.deadline()).await;
        assert_eq!(answer, Ok(Err(Error::unavailable("not now"))));
    });
}

#[test]
fn one_way_messages_arrive_in_order_from_before_the_connection_on() {
    single(16, |env| async move {
        let stage = Stage::new(&env, Options::default()).await;
        let pool = Pool::new(env.clone(), caller(Purpose::Peer(ServerId(3))));
        let frames = |number: u64| PeerMessage::Region {
            region: RegionId(1),
            epoch: Epoch(2),
            body: PeerBody::Frames { stream: number, bytes: vec![7; 1000].into(), committed: Seqno(4) },
        };
        for number in 0..200 {
            pool.peer(&stage.address, &frames(number)).unwrap();
            if number % 50 == 49 {
                env.sleep(MS).await;
            }
        }
        env.sleep(100 * MS).await;
        let expected: Vec<_> = (0..200).map(|number| (ServerId(3), frames(number))).collect();
        assert!(*stage.service.peers.lock() == expected);
        // Probes keep it open as long as they are answered.
        let connection = pool.connection(&stage.address, stage.deadline()).await.unwrap();
        env.sleep(Duration::from_secs(60)).await;
        assert!(!connection.is_closed());
    });
}

#[test]
fn a_one_way_connection_that_is_dead_is_found_out() {
    single(17, |env| async move {
        let mut listener = env.net().listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_address();
        let deaf = env.spawn("deaf server", async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let welcome = Welcome { cluster: None, role: Role::Server };
            send(&mut stream, &encoded(|encoder| encoder.welcome(&welcome, None).unwrap())).await;
            std::future::pending::<()>().await;
            drop(stream);
        });
        let deadline = env.now() + Duration::from_secs(5);
        let connection = Connection::open(&env, &address, &caller(Purpose::Peer(ServerId(1))), deadline).await.unwrap();
        env.sleep(Duration::from_secs(3)).await;
        assert!(!connection.is_closed());
        env.sleep(Duration::from_secs(3)).await;
        assert!(connection.is_closed());
        deaf.abort();
    });
}

#[test]
fn a_pool_has_one_connection_for_all_and_pauses_after_a_failure() {
    single(18, |env| async move {
        let stage = Stage::new(&env, Options { connections_max: 1, ..Options::default() }).await;
        let pool = Pool::new(env.clone(), client());
        let calls = (0..20).map(|i| {
            let (pool, address, deadline) = (pool.clone(), stage.address.clone(), stage.deadline());
            async move {
                let key = format!("{i}");
                assert_eq!(pool.call(&address, &read(5, &key), deadline).await, Ok(echo(&key)));
            }
        });
        calls.collect::<FuturesUnordered<_>>().collect::<Vec<()>>().await;

        stage.server.abort();
        env.sleep(10 * MS).await;
        let first = pool.call(&stage.address, &read(0, "x"), stage.deadline()).await.unwrap_err();
        let listener = env.net().listen(&stage.address).await.unwrap();
        let again = pool.call(&stage.address, &read(0, "x"), stage.deadline()).await.unwrap_err();
        assert_eq!(first, again, "no second attempt so soon");
        assert!(!first.may_have_happened());
        let _server = env.spawn("serve", serve(env.clone(), listener, stage.service.clone(), Options::default()));
        env.sleep(20 * MS).await;
        assert_eq!(pool.call(&stage.address, &read(0, "x"), stage.deadline()).await, Ok(echo("x")));
    });
}

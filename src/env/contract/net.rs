//! Promises of [`Net`](crate::Net).

use super::{Chances, Check, Context, checks, join};
use crate::net::{Listener, Stream};
use std::io::ErrorKind;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(super) const CHECKS: &[(&str, Check)] = checks![
    bytes_are_echoed,
    the_end_of_a_stream_is_seen,
    each_direction_ends_alone,
    large_transfers_cross,
    many_connections_stay_apart,
    a_silent_peer_is_left_by_timeout,
    a_taken_port_is_refused,
    nobody_listening_is_refused,
    a_dropped_listener_frees_its_port,
    addresses_are_told,
];

async fn listen(c: &Context) -> Box<dyn Listener> {
    c.env.net().listen(&format!("{}:0", c.host)).await.expect("listen on a free port")
}

/// No check waits for ever.
async fn connect(c: &Context, address: &str) -> Stream {
    let connecting = c.env.timeout(Duration::from_secs(10), c.env.net().connect(address));
    connecting.await.expect("connect in time").unwrap_or_else(|error| panic!("connect to {address}: {error}"))
}

/// Both ends of a new connection: the one that connected, the one that accepted.
async fn pair(c: &Context) -> (Stream, Stream) {
    let mut listener = listen(c).await;
    let address = listener.local_address();
    let accepting = c.env.spawn("accept", async move { listener.accept().await.expect("accept").0 });
    let connected = connect(c, &address).await;
    (connected, accepting.await.expect("accepting task"))
}

async fn send(stream: &mut Stream, bytes: &[u8]) {
    stream.write_all(bytes).await.expect("write");
    stream.flush().await.expect("flush");
}

async fn receive(stream: &mut Stream, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    stream.read_exact(&mut buffer).await.expect("read");
    buffer
}

async fn bytes_are_echoed(c: Context) {
    let (mut here, mut there) = pair(&c).await;
    let echo = c.env.spawn("echo", async move {
        let mut buffer = [0; 1024];
        loop {
            match there.read(&mut buffer).await.expect("read") {
                0 => return,
                read => send(&mut there, &buffer[..read]).await,
            }
        }
    });
    for len in [1, 2, 100, 1024, 5000] {
        let bytes = Chances(len as u64).bytes(len);
        send(&mut here, &bytes).await;
        assert!(receive(&mut here, len).await == bytes, "{len} bytes");
    }
    drop(here);
    echo.await.expect("the echo ends with the stream");
}

async fn the_end_of_a_stream_is_seen(c: Context) {
    let (mut here, mut there) = pair(&c).await;
    send(&mut here, b"last").await;
    drop(here);
    assert_eq!(receive(&mut there, 4).await, b"last", "what was flushed before the end");
    assert_eq!(there.read(&mut [0; 8]).await.expect("read at the end"), 0);
    assert_eq!(there.read(&mut [0; 8]).await.expect("read again"), 0, "the end stays the end");
}

async fn each_direction_ends_alone(c: Context) {
    let (mut here, mut there) = pair(&c).await;
    let answering = c.env.spawn("answer", async move {
        let mut request = Vec::new();
        there.read_to_end(&mut request).await.expect("read to the end");
        request.reverse();
        send(&mut there, &request).await;
        there.shutdown().await.expect("shut down");
    });
    send(&mut here, b"abc").await;
    here.shutdown().await.expect("shut down the sending side");
    let mut answer = Vec::new();
    here.read_to_end(&mut answer).await.expect("read the answer");
    assert_eq!(answer, b"cba");
    answering.await.expect("answering task");
}

/// More both ways at once than any buffer between holds.
async fn large_transfers_cross(c: Context) {
    const LEN: usize = 3 << 20;
    let (here, there) = pair(&c).await;
    let ends = [(here, 1u64, 2u64), (there, 2, 1)].map(|(stream, sends, receives)| {
        let env = c.env.clone();
        c.env.spawn("transfer", async move {
            let (mut reader, mut writer) = tokio::io::split(stream);
            let sending = env.spawn("send", async move {
                writer.write_all(&pattern(sends, LEN)).await.expect("write");
                writer.shutdown().await.expect("shut down");
            });
            let mut received = Vec::new();
            reader.read_to_end(&mut received).await.expect("read to the end");
            assert_eq!(received.len(), LEN);
            assert!(received == pattern(receives, LEN), "the bytes that {receives} sent");
            sending.await.expect("sending task");
        })
    });
    join(ends.into()).await;
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = Chances(seed).bytes(4093).repeat(len / 4093 + 1);
    bytes.truncate(len);
    bytes
}

async fn many_connections_stay_apart(c: Context) {
    const COUNT: u32 = 40;
    let mut listener = listen(&c).await;
    let address = listener.local_address();
    let env = c.env.clone();
    let serving = c.env.spawn("serve", async move {
        let mut served = Vec::new();
        for _ in 0..COUNT {
            let (mut stream, _) = listener.accept().await.expect("accept");
            served.push(env.spawn("echo", async move {
                let bytes = receive(&mut stream, 4).await;
                send(&mut stream, &bytes).await;
                assert_eq!(stream.read(&mut [0; 1]).await.expect("read"), 0);
            }));
        }
        join(served).await;
    });
    let clients = (0..COUNT).map(|i| {
        let (c, address) = (c.clone(), address.clone());
        c.env.clone().spawn("client", async move {
            let mut stream = connect(&c, &address).await;
            send(&mut stream, &i.to_le_bytes()).await;
            assert_eq!(receive(&mut stream, 4).await, i.to_le_bytes());
        })
    });
    join(clients.collect()).await;
    serving.await.expect("serving task");
}

async fn a_silent_peer_is_left_by_timeout(c: Context) {
    let (mut here, there) = pair(&c).await;
    let waiting = c.env.timeout(Duration::from_millis(10), here.read_u8());
    assert!(waiting.await.is_err(), "read from a peer that says nothing");
    drop(there);
}

async fn a_taken_port_is_refused(c: Context) {
    let listener = listen(&c).await;
    let refused = c.env.net().listen(&listener.local_address()).await.err().expect("listened on a taken port");
    assert_eq!(refused.kind(), ErrorKind::AddrInUse, "{refused}");
}

async fn nobody_listening_is_refused(c: Context) {
    let listener = listen(&c).await;
    let address = listener.local_address();
    drop(listener);
    let refused = c.env.timeout(Duration::from_secs(10), c.env.net().connect(&address)).await.expect("in time");
    assert_eq!(refused.err().expect("connected to nobody").kind(), ErrorKind::ConnectionRefused);
}

async fn a_dropped_listener_frees_its_port(c: Context) {
    let mut listener = listen(&c).await;
    let address = listener.local_address();
    let accepting = c.env.spawn("accept", async move {
        let stream = listener.accept().await.expect("accept").0;
        drop(listener);
        stream
    });
    let mut here = connect(&c, &address).await;
    let mut there = accepting.await.expect("accepting task");
    send(&mut there, b"x").await;
    assert_eq!(receive(&mut here, 1).await, b"x", "a connection outlives its listener");
    // The accepting side closes first, which leaves its port waiting; it can be listened on all the same.
    drop(there);
    drop(here);
    let mut again = c.env.net().listen(&address).await.expect("listen again");
    let accepting = c.env.spawn("accept", async move { again.accept().await.map(drop) });
    connect(&c, &address).await;
    accepting.await.expect("accepting task").expect("accept again");
}

async fn addresses_are_told(c: Context) {
    let mut listener = listen(&c).await;
    let address = listener.local_address();
    let (host, port) = address.rsplit_once(':').expect("host:port");
    assert_eq!(host, c.host);
    assert_ne!(port.parse::<u16>().expect("a port"), 0, "{address}");
    let accepting = c.env.spawn("accept", async move { listener.accept().await.expect("accept").1 });
    let _stream = connect(&c, &address).await;
    let peer = accepting.await.expect("accepting task");
    let (_, port) = peer.rsplit_once(':').expect("host:port");
    assert_ne!(port.parse::<u16>().expect("a port"), 0, "{peer}");
    let bad = c.env.net().listen("no port here").await.err().expect("listened nowhere");
    assert_eq!(bad.kind(), ErrorKind::InvalidInput, "{bad}");
}

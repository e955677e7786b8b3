//! The network of a node on its own: it reaches only itself.

use crate::BoxFuture;
use crate::net::{Listener, Net, Stream};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::BufWriter;
use tokio::sync::mpsc;

/// Bytes under way in one direction of a connection.
const PIPE_BYTES: usize = 64 * 1024;
/// Connections waiting to be accepted at one port.
const BACKLOG: usize = 128;
/// Ports given out where 0 is asked for.
const FREE_PORTS: std::ops::Range<u16> = 49152..u16::MAX;

#[derive(Clone, Default)]
pub(super) struct Loopback {
    ports: Arc<Mutex<Ports>>,
}

#[derive(Default)]
struct Ports {
    listening: BTreeMap<u16, mpsc::Sender<(Stream, String)>>,
    connections: u64,
}

impl Loopback {
    fn bind(&self, host: &str, port: u16) -> io::Result<LoopbackListener> {
        let mut ports = self.ports();
        let port = match port {
            0 => FREE_PORTS.into_iter().find(|port| !ports.listening.contains_key(port)).ok_or(ErrorKind::AddrInUse)?,
            port if ports.listening.contains_key(&port) => return Err(ErrorKind::AddrInUse.into()),
            port => port,
        };
        let (sender, incoming) = mpsc::channel(BACKLOG);
        ports.listening.insert(port, sender);
        Ok(LoopbackListener { ports: self.ports.clone(), host: host.to_owned(), port, incoming })
    }

    fn reach(&self, port: u16) -> io::Result<Stream> {
        let mut ports = self.ports();
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        ports.connections += 1;
        let from = format!("127.0.0.1:{}", FREE_PORTS.start as u64 + ports.connections);
        let listener = ports.listening.get(&port).ok_or(ErrorKind::ConnectionRefused)?;
        listener
            .try_send((Box::new(BufWriter::new(theirs)), from))
            .map_err(|_| io::Error::from(ErrorKind::ConnectionRefused))?;
        Ok(Box::new(BufWriter::new(ours)))
    }

    fn ports(&self) -> MutexGuard<'_, Ports> {
        self.ports.lock().expect("nothing panics under this lock")
    }
}

impl Net for Loopback {
    fn listen(&self, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        let bound = split(address).and_then(|(host, port)| self.bind(host, port));
        Box::pin(async move { bound.map(|listener| Box::new(listener) as Box<dyn Listener>) })
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Stream>> {
        let (net, address) = (self.clone(), address.to_owned());
        Box::pin(async move { net.reach(split(&address)?.1) })
    }
}

struct LoopbackListener {
    ports: Arc<Mutex<Ports>>,
    host: String,
    port: u16,
    incoming: mpsc::Receiver<(Stream, String)>,
}

impl Listener for LoopbackListener {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Stream, String)>> {
        Box::pin(async { Ok(self.incoming.recv().await.expect("its sender goes when this listener goes")) })
    }

    fn local_address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl Drop for LoopbackListener {
    fn drop(&mut self) {
        self.ports.lock().expect("nothing panics under this lock").listening.remove(&self.port);
    }
}

/// Host and port of `host:port`.
pub(super) fn split(address: &str) -> io::Result<(&str, u16)> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    parts.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, format!("{address:?} is not host:port")))
}

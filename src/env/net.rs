//! Byte streams between nodes.

use crate::BoxFuture;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection. Ordered while it lives, and it may die or fall silent at any moment: a peer that lost power, or a
/// partition, shows as nothing at all. Every exchange has a deadline, and a connection whose deadline passed is dropped.
/// Written bytes leave only after a flush.
pub type Stream = Box<dyn Socket>;

pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Socket for T {}

pub trait Net: Send + Sync + 'static {
    /// `address` is `host:port`; port 0 takes a free one. `AddrInUse` when taken.
    fn listen(&self, address: &str) -> BoxFuture<'static, io::Result<Box<dyn Listener>>>;
    /// May wait for ever when the peer is gone: always under a timeout.
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Stream>>;
}

pub trait Listener: Send + 'static {
    /// The next connection and its peer's address. An error concerns that connection or a passing shortage (file
    /// descriptors), not the listener: wait a little and accept again.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(Stream, String)>>;
    /// The address in fact listened on.
    fn local_address(&self) -> String;
}

/// Whether only this machine can reach a listener on `address` (`host:port`).
///
/// A name other than `localhost` may mean any address, so it counts as reachable.
pub fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

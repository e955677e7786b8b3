//! Calls between masters over the native protocol.

use super::limits::SMALL_CALL_BYTES_MAX;
use super::raft::RaftTransport;
use crate::protocol::connection::Caller;
use crate::protocol::handshake::Secret;
use crate::protocol::message::{Hello, Purpose, VERSION};
use crate::protocol::pool::Pool;
use bytes::Bytes;
use env::{BoxFuture, Env};
use std::io;
use std::time::Duration;

/// Large bodies have a connection of their own, so that no heartbeat waits behind a snapshot.
pub struct PoolTransport {
    env: Env,
    small: Pool,
    large: Pool,
}

impl PoolTransport {
    pub fn new(env: &Env, secret: Option<Secret>) -> PoolTransport {
        let hello = Hello { version: VERSION, purpose: Purpose::Raft, cluster: None };
        let caller = Caller { hello, secret };
        let (small, large) = (Pool::new(env.clone(), caller.clone()), Pool::new(env.clone(), caller));
        PoolTransport { env: env.clone(), small, large }
    }
}

impl RaftTransport for PoolTransport {
    fn call(
        &self,
        _master: u64,
        address: &str,
        body: Bytes,
        deadline: Duration,
    ) -> BoxFuture<'static, io::Result<Bytes>> {
        let pool = if body.len() <= SMALL_CALL_BYTES_MAX { &self.small } else { &self.large };
        let (pool, address, deadline) = (pool.clone(), address.to_owned(), self.env.now() + deadline);
        Box::pin(async move {
            match pool.raft(&address, &body, deadline).await {
                Ok(Ok(answer)) => Ok(answer),
                Ok(Err(error)) => Err(io::Error::other(error)),
                Err(error) => Err(io::Error::other(error)),
            }
        })
    }
}

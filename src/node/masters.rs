//! The way to the master group: any master will do, a standby passes on to the active one.

use crate::protocol::pool::Pool;
use crate::protocol::{
    AdminRequest, AdminResponse, ControlRequest, ControlResponse, Error, ErrorCode, Request, Response,
};
use crate::region::{Change, Epoch, RegionId};
use crate::replication::Masters;
use env::{BoxFuture, Env};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[derive(Clone)]
pub struct MasterGroup {
    inner: Arc<Inner>,
}

struct Inner {
    env: Env,
    pool: Pool,
    addresses: Vec<String>,
    /// The one that answered last.
    current: AtomicUsize,
    deadline: Duration,
}

impl MasterGroup {
    /// `deadline`: of one call to one master.
    pub fn new(env: Env, pool: Pool, addresses: Vec<String>, deadline: Duration) -> MasterGroup {
        MasterGroup { inner: Arc::new(Inner { env, pool, addresses, current: AtomicUsize::new(0), deadline }) }
    }

    pub async fn control(&self, request: ControlRequest) -> Result<ControlResponse, Error> {
        match self.call(Request::Control(request)).await? {
            Response::Control(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    pub async fn admin(&self, request: AdminRequest) -> Result<AdminResponse, Error> {
        match self.call(Request::Admin(request)).await? {
            Response::Admin(response) => Ok(response),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks one master; after a failure the next call asks another.
    async fn call(&self, request: Request) -> Result<Response, Error> {
        let inner = &self.inner;
        let current = inner.current.load(Ordering::Relaxed);
        let address = &inner.addresses[current % inner.addresses.len()];
        let deadline = inner.env.now() + inner.deadline;
        match inner.pool.call(address, &request, deadline).await {
            Ok(Response::Error(error)) => {
                if error.code == ErrorCode::Unavailable {
                    self.turn_from(current);
                }
                Err(error)
            }
            Ok(response) => Ok(response),
            Err(error) => {
                self.turn_from(current);
                Err(if error.is_refusal() {
                    Error::invalid(error.to_string())
                } else {
                    Error::unavailable(format!("master {address}: {error}"))
                })
            }
        }
    }

    fn turn_from(&self, current: usize) {
        let next = current.wrapping_add(1);
        let _ = self.inner.current.compare_exchange(current, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn unexpected(response: &Response) -> Error {
    Error::new(ErrorCode::Io, format!("a master answered with something else: {response:?}"))
}

impl Masters for MasterGroup {
    fn propose(
        &self,
        region: RegionId,
        epoch: Epoch,
        change: Change,
    ) -> BoxFuture<'static, Result<ControlResponse, Error>> {
        let masters = self.clone();
        Box::pin(async move { masters.control(ControlRequest::Propose { region, epoch, change }).await })
    }
}

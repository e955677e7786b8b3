//! The client: a table's operations, from any process that can reach the cluster.
//!
//! ```ignore
//! let client = Client::connect(env, vec!["10.0.0.1:7400".into()], Options::default());
//! let users = client.table("shop:users".parse()?);
//! users.put("ada", "countess").await?;
//! let ada = users.get("ada").await?;
//! ```
//!
//! Promises: a call ends within its time. A read that succeeds is the table's value at some moment of the call. A write ends in
//! one of three ways: with its outcome; [`WriteError::NotDone`], it had no effect and never will; [`WriteError::Unknown`], nobody
//! can tell. However often a write is sent, it happens at most once.
//!
//! One write's life: its key is found in the table's region map ([`route`], the map kept by [`table`]), it gets a number that
//! makes repeating it safe ([`session`]), and goes to the region's primary over the connection that all calls share
//! ([`crate::protocol::Pool`]). If the answer is that the region is elsewhere, or none comes, the map is fetched anew from any
//! node, and the same request with the same number goes to whoever leads the region now, until there is an outcome or the time
//! is up.
//!
//! A batch is shared out by region and the shares run at the same time. Each share happens whole or not at all (up to 16,384
//! operations and 16 MiB of one region); shares of different regions do not know of each other, and the result tells the
//! outcome of each operation.
//!
//! Missing on purpose: reads from backups, and caching of values; both would answer with what was.

mod admin;
mod error;
pub mod limits;
mod retry;
mod route;
mod scan;
mod session;
mod table;

pub use error::{ClientError, WriteError};
pub use scan::Scan;
pub use table::{Compared, Table};

use crate::client::limits::*;
use crate::client::session::Sessions;
use crate::client::table::TableState;
use crate::protocol::connection::Caller;
use crate::protocol::{ClusterId, Hello, Pool, Purpose, Secret, VERSION};
use crate::region::TableName;
use env::Env;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A cluster as seen from outside. Cloning shares connections, maps and sessions.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    call_time: Duration,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// How long a call may take, all its attempts together.
    pub call_time: Duration,
    /// How long its first attempt may take.
    pub attempt_time: Duration,
    /// The cluster's secret, where it has one.
    pub secret: Option<Secret>,
    /// The cluster that is meant; any that answers if none is.
    pub cluster: Option<ClusterId>,
}

impl Default for Options {
    fn default() -> Options {
        Options { call_time: CALL_TIME, attempt_time: ATTEMPT_TIME, secret: None, cluster: None }
    }
}

struct Inner {
    env: Env,
    pool: Pool,
    attempt_time: Duration,
    nodes: Mutex<Nodes>,
    tables: Mutex<BTreeMap<TableName, Arc<TableState>>>,
    sessions: Sessions,
}

/// Nodes that may be asked what any node knows.
struct Nodes {
    /// Those that the caller named, then those that the cluster named.
    addresses: Vec<String>,
    seeds: usize,
    /// The one to ask first: the last that answered.
    preferred: usize,
}

impl Nodes {
    fn learn(&mut self, address: &str) {
        if self.addresses.iter().any(|known| known == address) {
            return;
        }
        if self.addresses.len() - self.seeds == LEARNED_ADDRESSES_MAX {
            self.addresses.remove(self.seeds);
        }
        self.addresses.push(address.to_owned());
    }
}

impl Client {
    /// `seeds` are addresses (`host:port`) of any nodes of the cluster. Connects when there is something to ask.
    ///
    /// # Panics
    /// Without a seed.
    pub fn connect(env: Env, seeds: Vec<String>, options: Options) -> Client {
        assert!(!seeds.is_empty(), "a client needs the address of a node");
        let hello = Hello { version: VERSION, purpose: Purpose::Client, cluster: options.cluster };
        // Not all clients of a cluster should ask the same node.
        let preferred = env.random_below(seeds.len() as u64) as usize;
        let nodes = Nodes { seeds: seeds.len(), addresses: seeds, preferred };
        let inner = Inner {
            pool: Pool::new(env.clone(), Caller { hello, secret: options.secret }),
            attempt_time: options.attempt_time,
            nodes: Mutex::new(nodes),
            tables: Mutex::default(),
            sessions: Sessions::default(),
            env,
        };
        Client { inner: Arc::new(inner), call_time: options.call_time }
    }

    /// The same client, whose calls may take this long.
    pub fn with_call_time(&self, call_time: Duration) -> Client {
        Client { inner: self.inner.clone(), call_time }
    }

    /// The table of that name, whether or not there is one: its calls will tell.
    pub fn table(&self, name: TableName) -> Table {
        let mut tables = self.inner.tables.lock();
        let state = tables.entry(name.clone()).or_insert_with(|| Arc::new(TableState::new(name)));
        Table::new(self.clone(), state.clone())
    }
}

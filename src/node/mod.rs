//! A node: a region server or a master behind its listener, from start to stop.
//!
//! [`Server`] wires the parts. It listens, registers with the master group, and from then on an *agent* reports a few times
//! a second and does what the answer says: starts replicas, tells them their configurations, deletes what was dropped. A
//! beat sends the beacons by which primaries hold their leases. Requests go to the replica of their region; what concerns
//! tables goes to the active master.
//!
//! The life of a request: `frontend` decodes it and calls [`crate::frontend::native::Service::request`]; [`Routes`] finds
//! the replica; its task answers.

mod agent;
mod identity;
mod master;
mod masters;
mod routes;
mod server;

pub use identity::{Identity, IdentityError};
pub use master::{MasterNode, MasterNodeOptions};
pub use routes::Routes;
pub use server::{Server, ServerOptions, StartError, Stop};

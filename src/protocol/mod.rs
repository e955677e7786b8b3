//! The native protocol: what nodes and clients say to each other.
//!
//! One port per node serves all: a connection begins with a [`Hello`] that says what it is for. Then frames follow, each
//! a length, a request id and a message; answers carry the id of their request and may come in any order.
//!
//! [`message`] and [`peer`] hold the values and [`codec`] their bytes, both without I/O; [`handshake`] is how a connection begins,
//! [`connection`] the calling side of one, [`pool`] one for each address. The answering side is
//! [`crate::frontend::native`]; both stand on [`wire`].

pub mod backoff;
pub mod codec;
pub mod connection;
pub mod handshake;
pub mod limits;
pub mod message;
pub mod peer;
pub mod pool;
pub mod wire;

pub use connection::{CallError, ConnectError, Connection};
pub use handshake::{Secret, check_bind_address};
pub use message::*;
pub use pool::Pool;

//! The native protocol: what nodes and clients say to each other, as values. No I/O.
//!
//! One port per node serves all: a connection begins with a [`Hello`] that says what it is for. Then frames follow, each
//! a length, a request id and a message; answers carry the id of their request and may come in any order.
//!
//! [`message`] holds the values, `codec` their bytes.

pub mod message;

pub use message::*;

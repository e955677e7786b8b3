//! The network of a library that has none.

use crate::BoxFuture;
use crate::net::{Listener, Net, Stream};
use std::future::ready;
use std::io;

/// Refuses everything.
pub(super) struct Netless;

fn refused<T: Send + 'static>() -> BoxFuture<'static, io::Result<T>> {
    let error = io::Error::new(io::ErrorKind::Unsupported, "this program was built without a network");
    Box::pin(ready(Err(error)))
}

impl Net for Netless {
    fn listen(&self, _address: &str) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        refused()
    }

    fn connect(&self, _address: &str) -> BoxFuture<'static, io::Result<Stream>> {
        refused()
    }
}

//! Open files: every call as an operation for the engine, but for those that change or ask no content.

use super::error::at;
use super::operation::{Engine, OpenFile, Operation};
use super::pace::Pace;
use super::sys;
use crate::BoxFuture;
use crate::disk::File;
use bytes::Bytes;
use std::future::ready;
use std::io;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub(super) struct RealFile {
    open: Arc<OpenFile>,
    engine: Arc<dyn Engine>,
    pace: Arc<Pace>,
    runtime: Handle,
}

impl RealFile {
    pub(super) fn new(open: OpenFile, engine: Arc<dyn Engine>, pace: Arc<Pace>, runtime: Handle) -> RealFile {
        RealFile { open: Arc::new(open), engine, pace, runtime }
    }

    /// Who waits does it himself.
    fn submit(&self, operation: Operation) {
        if super::own::waits() { super::threads::carry_out(operation) } else { self.engine.submit(operation) }
    }

    /// Waits for an operation's answer and adds what was tried to an error.
    fn answer<T: Send + 'static>(
        &self,
        verb: &'static str,
        result: oneshot::Receiver<io::Result<T>>,
    ) -> BoxFuture<'static, io::Result<T>> {
        let open = self.open.clone();
        Box::pin(async move { result.await.unwrap_or_else(|_| Err(engine_gone())).map_err(at(verb, &open.path)) })
    }

    /// A call that may wait for the device and that the engine does not know.
    fn blocking(
        &self,
        verb: &'static str,
        call: impl FnOnce(&std::fs::File) -> io::Result<()> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<()>> {
        let open = self.open.clone();
        super::disk::blocking(&self.runtime, move || call(&open.file).map_err(at(verb, &open.path)))
    }
}

fn engine_gone() -> io::Error {
    io::Error::other("file I/O has stopped")
}

impl File for RealFile {
    fn read_at(&self, buffer: Vec<u8>, offset: u64) -> BoxFuture<'static, (io::Result<usize>, Vec<u8>)> {
        let (operation, result) = Operation::read(&self.open, buffer, offset);
        self.submit(operation);
        let open = self.open.clone();
        Box::pin(async move {
            let (result, buffer) = result.await.unwrap_or_else(|_| (Err(engine_gone()), Vec::new()));
            (result.map_err(at("read", &open.path)), buffer)
        })
    }

    fn try_read_at(&self, buffer: &mut [u8], offset: u64) -> Option<io::Result<usize>> {
        let result = sys::read_cached(&self.open.file, buffer, offset)?;
        Some(result.map_err(at("read", &self.open.path)))
    }

    fn write_at(&self, buffers: Vec<Bytes>, offset: u64) -> BoxFuture<'static, io::Result<()>> {
        let (operation, result) = Operation::write(&self.open, buffers, offset);
        self.submit(operation);
        self.answer("write", result)
    }

    fn try_write_at(&self, buffers: &[Bytes], offset: u64) -> Option<io::Result<()>> {
        let written = self.pace.try_write(&self.open, buffers, offset)?;
        Some(written.map_err(at("write", &self.open.path)))
    }

    fn append(&self, buffers: Vec<Bytes>) -> BoxFuture<'static, io::Result<u64>> {
        let (operation, result) = Operation::append(&self.open, buffers);
        if let Some(operation) = operation {
            self.submit(operation);
        }
        self.answer("append to", result)
    }

    fn sync_data(&self) -> BoxFuture<'static, io::Result<()>> {
        let (operation, result) = Operation::flush(&self.open);
        self.submit(operation);
        self.answer("flush", result)
    }

    fn write_and_sync(&self, buffers: Vec<Bytes>, offset: u64) -> BoxFuture<'static, io::Result<()>> {
        let (operation, result) = Operation::write_flushed(&self.open, buffers, offset);
        self.submit(operation);
        self.answer("write and flush", result)
    }

    fn truncate(&self, len: u64) -> BoxFuture<'static, io::Result<()>> {
        self.blocking("truncate", move |file| file.set_len(len))
    }

    fn allocate(&self, len: u64) -> BoxFuture<'static, io::Result<()>> {
        if len == 0 {
            return Box::pin(ready(Ok(())));
        }
        self.blocking("reserve space for", move |file| sys::allocate(file, len))
    }

    fn len(&self) -> BoxFuture<'static, io::Result<u64>> {
        let metadata = self.open.file.metadata().map_err(at("measure", &self.open.path));
        Box::pin(ready(metadata.map(|metadata| metadata.len())))
    }
}

//! The disk as one process sees it: [`Disk`] and [`File`] over a [`DiskState`].

use super::super::timeline::Timeline;
use super::tree::NodeId;
use super::{DiskState, Inner, Op, Placed, Reply, STALLED, Ticket};
use crate::BoxFuture;
use crate::clock::Sleep;
use crate::disk::{DirEntry, Disk, File, OpenMode, check_path};
use bytes::{Bytes, BytesMut};
use std::any::Any;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub(super) struct SimDisk {
    process: Arc<Process>,
}

/// The process whose handles these are.
struct Process {
    state: Arc<DiskState>,
    number: u64,
    node: String,
    timeline: Arc<dyn Timeline>,
}

impl SimDisk {
    pub(super) fn mount(state: Arc<DiskState>, number: u64, node: &str, timeline: Arc<dyn Timeline>) -> Arc<dyn Disk> {
        Arc::new(SimDisk { process: Arc::new(Process { state, number, node: node.to_owned(), timeline }) })
    }

    fn done(&self, op: Op) -> BoxFuture<'static, io::Result<()>> {
        let answer = self.process.submit(op);
        Box::pin(async move { answer.await.map(drop) })
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &str, mode: OpenMode) -> BoxFuture<'static, io::Result<Arc<dyn File>>> {
        let answer = self.process.submit(Op::Open { path: path.to_owned(), mode });
        let process = self.process.clone();
        let writes = mode != OpenMode::Read;
        Box::pin(async move {
            match answer.await? {
                Reply::File(node) => {
                    Ok(Arc::new(SimFile { open: Arc::new(OpenFile { process, node }), writes }) as Arc<dyn File>)
                }
                _ => unreachable!("opening answers with a file"),
            }
        })
    }

    fn rename(&self, from: &str, to: &str) -> BoxFuture<'static, io::Result<()>> {
        self.done(Op::Rename { from: from.to_owned(), to: to.to_owned() })
    }

    fn remove(&self, path: &str) -> BoxFuture<'static, io::Result<()>> {
        self.done(Op::Remove { path: path.to_owned() })
    }

    fn create_dir(&self, path: &str) -> BoxFuture<'static, io::Result<()>> {
        self.done(Op::CreateDir { path: path.to_owned() })
    }

    fn remove_dir(&self, path: &str) -> BoxFuture<'static, io::Result<()>> {
        self.done(Op::RemoveDir { path: path.to_owned() })
    }

    fn list(&self, path: &str) -> BoxFuture<'static, io::Result<Vec<DirEntry>>> {
        let answer = self.process.submit(Op::List { path: path.to_owned() });
        Box::pin(async move {
            match answer.await? {
                Reply::Entries(entries) => Ok(entries),
                _ => unreachable!("listing answers with entries"),
            }
        })
    }

    fn sync_dir(&self, path: &str) -> BoxFuture<'static, io::Result<()>> {
        self.done(Op::SyncDir { path: path.to_owned(), mark: 0 })
    }

    fn free_bytes(&self) -> BoxFuture<'static, io::Result<u64>> {
        self.process.number(Op::Free)
    }

    fn boot_id(&self) -> u128 {
        self.process.state.boot_id()
    }

    fn lock(&self, path: &str) -> BoxFuture<'static, io::Result<Box<dyn Any + Send + Sync>>> {
        let taken = self.process.lock(path);
        Box::pin(async move { taken.map(|held| Box::new(held) as Box<dyn Any + Send + Sync>) })
    }

    fn backend(&self) -> &'static str {
        "simulated"
    }
}

struct SimFile {
    open: Arc<OpenFile>,
    writes: bool,
}

/// Held by the handle, and by an operation of several steps.
struct OpenFile {
    process: Arc<Process>,
    node: NodeId,
}

impl OpenFile {
    async fn sync(&self) -> io::Result<()> {
        self.process.submit(Op::Sync { file: self.node, mark: 0 }).await.map(drop)
    }
}

impl SimFile {
    fn write(&self, buffers: Vec<Bytes>, offset: Option<u64>) -> BoxFuture<'static, io::Result<u64>> {
        self.change(Op::Write { file: self.open.node, bytes: join(buffers), offset })
    }

    /// Does it now, now and then.
    fn at_once<R>(&self, work: impl FnOnce(&mut Inner) -> R) -> Option<R> {
        let now = self.open.process.timeline.now();
        let mut inner = self.open.process.state.inner();
        let answers = inner.process == self.open.process.number && !inner.stalled && inner.stops_after != Some(0);
        let percent = inner.faults.at_once_percent;
        if !answers || !inner.dice.percent(percent) {
            return None;
        }
        let wakers = inner.settle(now);
        let answer = work(&mut inner);
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        Some(answer)
    }

    fn change(&self, op: Op) -> BoxFuture<'static, io::Result<u64>> {
        match self.writes {
            true => self.open.process.number(op),
            false => Box::pin(std::future::ready(Err(ErrorKind::PermissionDenied.into()))),
        }
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: Vec<u8>, offset: u64) -> BoxFuture<'static, (io::Result<usize>, Vec<u8>)> {
        let answer = self.open.process.submit(Op::Read { file: self.open.node, buffer, offset });
        Box::pin(async move {
            match answer.await {
                Ok(Reply::Read(buffer, count)) => (count, buffer),
                Ok(_) => unreachable!("reading answers with a buffer"),
                Err(error) => (Err(error), Vec::new()),
            }
        })
    }

    fn try_read_at(&self, buffer: &mut [u8], offset: u64) -> Option<io::Result<usize>> {
        self.at_once(|inner| inner.read_at_once(self.open.node, buffer, offset))
    }

    fn write_at(&self, buffers: Vec<Bytes>, offset: u64) -> BoxFuture<'static, io::Result<()>> {
        let written = self.write(buffers, Some(offset));
        Box::pin(async move { written.await.map(drop) })
    }

    fn try_write_at(&self, buffers: &[Bytes], offset: u64) -> Option<io::Result<()>> {
        if !self.writes {
            return Some(Err(ErrorKind::PermissionDenied.into()));
        }
        let op = Op::Write { file: self.open.node, bytes: join(buffers.to_vec()), offset: Some(offset) };
        self.at_once(|inner| inner.perform_at_once(op).map(drop))
    }

    fn append(&self, buffers: Vec<Bytes>) -> BoxFuture<'static, io::Result<u64>> {
        self.write(buffers, None)
    }

    fn sync_data(&self) -> BoxFuture<'static, io::Result<()>> {
        let answer = self.open.process.submit(Op::Sync { file: self.open.node, mark: 0 });
        Box::pin(async move { answer.await.map(drop) })
    }

    fn write_and_sync(&self, buffers: Vec<Bytes>, offset: u64) -> BoxFuture<'static, io::Result<()>> {
        let (written, open) = (self.write(buffers, Some(offset)), self.open.clone());
        Box::pin(async move {
            written.await?;
            open.sync().await
        })
    }

    fn truncate(&self, len: u64) -> BoxFuture<'static, io::Result<()>> {
        let changed = self.change(Op::Truncate { file: self.open.node, len });
        Box::pin(async move { changed.await.map(drop) })
    }

    fn allocate(&self, len: u64) -> BoxFuture<'static, io::Result<()>> {
        let changed = self.change(Op::Allocate { file: self.open.node, len });
        Box::pin(async move { changed.await.map(drop) })
    }

    fn len(&self) -> BoxFuture<'static, io::Result<u64>> {
        self.open.process.number(Op::Len { file: self.open.node })
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.process.close(self.node);
    }
}

impl Process {
    fn submit(self: &Arc<Self>, op: Op) -> Answer {
        let mut inner = self.state.inner();
        let stage = match op.check_paths() {
            _ if inner.process != self.number => Stage::Answered(Err(gone())),
            Err(error) => Stage::Answered(Err(error)),
            Ok(()) => match inner.submit(op, self.timeline.now()) {
                // Half of the time let others run first, as a real completion would.
                Placed::Answered(answer) if inner.dice.percent(50) => Stage::Yielding(answer),
                Placed::Answered(answer) => Stage::Answered(answer),
                Placed::InFlight(ticket, due) if due >= STALLED => Stage::InFlight { ticket, sleep: None },
                Placed::InFlight(ticket, due) => {
                    let sleep = Some(self.timeline.sleep(due.saturating_sub(self.timeline.now())));
                    Stage::InFlight { ticket, sleep }
                }
            },
        };
        drop(inner);
        Answer { process: self.clone(), stage }
    }

    fn number(self: &Arc<Self>, op: Op) -> BoxFuture<'static, io::Result<u64>> {
        let answer = self.submit(op);
        Box::pin(async move {
            match answer.await? {
                Reply::Number(number) => Ok(number),
                Reply::Done => Ok(0),
                _ => unreachable!("answers with a number"),
            }
        })
    }

    fn lock(self: &Arc<Self>, path: &str) -> io::Result<Held> {
        check_path(path)?;
        let mut inner = self.state.inner();
        if inner.process != self.number {
            return Err(gone());
        }
        if let Some(holder) = inner.locks.get(path) {
            return Err(io::Error::new(ErrorKind::WouldBlock, format!("{path} is locked by {holder}")));
        }
        inner.locks.insert(path.to_owned(), self.node.clone());
        Ok(Held { process: self.clone(), path: path.to_owned() })
    }

    fn close(&self, node: NodeId) {
        let mut inner = self.state.inner();
        if inner.process == self.number {
            inner.tree.closed(node);
        }
    }
}

struct Held {
    process: Arc<Process>,
    path: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut inner = self.process.state.inner();
        if inner.process == self.process.number {
            inner.locks.remove(&self.path);
        }
    }
}

/// The answer to one operation. Dropping it does not take the operation back.
struct Answer {
    process: Arc<Process>,
    stage: Stage,
}

enum Stage {
    Yielding(io::Result<Reply>),
    Answered(io::Result<Reply>),
    InFlight { ticket: Ticket, sleep: Option<Sleep> },
    Taken,
}

impl Future for Answer {
    type Output = io::Result<Reply>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<Reply>> {
        match std::mem::replace(&mut self.stage, Stage::Taken) {
            Stage::Answered(answer) => Poll::Ready(answer),
            Stage::Yielding(answer) => {
                self.stage = Stage::Answered(answer);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Stage::InFlight { ticket, mut sleep } => {
                if let Some(pending) = &mut sleep
                    && pending.as_mut().poll(context).is_ready()
                {
                    sleep = None;
                }
                match self.process.take_answer(ticket, context) {
                    Some(answer) => Poll::Ready(answer),
                    None => {
                        self.stage = Stage::InFlight { ticket, sleep };
                        Poll::Pending
                    }
                }
            }
            Stage::Taken => panic!("polled after it was ready"),
        }
    }
}

impl Process {
    fn take_answer(&self, ticket: Ticket, context: &Context<'_>) -> Option<io::Result<Reply>> {
        let now = self.timeline.now();
        let mut inner = self.state.inner();
        if inner.process != self.number {
            return Some(Err(gone()));
        }
        let wakers = inner.settle(now);
        let waiting = inner.waiting.get_mut(&ticket).expect("waits until it has taken the answer");
        let answer = waiting.answer.take();
        match answer.is_some() {
            true => drop(inner.waiting.remove(&ticket)),
            false => waiting.waker = Some(context.waker().clone()),
        }
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        answer
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let mut inner = self.process.state.inner();
        if inner.process != self.process.number {
            return;
        }
        match std::mem::replace(&mut self.stage, Stage::Taken) {
            Stage::Yielding(answer) | Stage::Answered(answer) => inner.discard(answer),
            Stage::InFlight { ticket, .. } => {
                if let Some(answer) = inner.waiting.remove(&ticket).and_then(|waiting| waiting.answer) {
                    inner.discard(answer);
                }
            }
            Stage::Taken => {}
        }
    }
}

fn join(mut buffers: Vec<Bytes>) -> Bytes {
    if buffers.len() == 1 {
        return buffers.remove(0);
    }
    let mut joined = BytesMut::with_capacity(buffers.iter().map(Bytes::len).sum());
    buffers.iter().for_each(|buffer| joined.extend_from_slice(buffer));
    joined.freeze()
}

/// A handle that outlived its process.
fn gone() -> io::Error {
    io::Error::other("the process that opened this is gone")
}

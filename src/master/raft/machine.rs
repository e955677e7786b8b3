//! The state machine: the catalog in memory, its snapshots on disk.
//!
//! After a restart the catalog is the last snapshot's, and Raft applies again what was committed after it. A snapshot is
//! one file, `snapshot`, that is replaced as a whole, never by an older one.

use super::types::{LogId, Membership, Snapshot, SnapshotMeta, Types};
use crate::master::limits::SNAPSHOT_BYTES_MAX;
use crate::master::state::{Catalog, Outcome};
use bytes::Bytes;
use env::{Disk, Env};
use futures_util::{Stream, TryStreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use storage::small_file::{self, corrupt};

const SNAPSHOT_MAGIC: [u8; 4] = *b"SRSN";

/// A handle; clones share the state.
#[derive(Clone)]
pub struct Machine {
    shared: Arc<Shared>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    folder: String,
    state: Mutex<State>,
    /// The log id of the snapshot on disk. Its holder writes snapshots.
    snapshot: tokio::sync::Mutex<Option<LogId>>,
}

#[derive(Clone, Default)]
struct State {
    applied: Option<LogId>,
    membership: Membership,
    catalog: Catalog,
}

#[derive(Serialize, Deserialize)]
struct SnapshotFile {
    meta: SnapshotMeta,
    catalog: Bytes,
}

impl Machine {
    /// Begins with the last snapshot in `folder`, if there is one.
    pub async fn open(env: &Env, folder: &str) -> io::Result<Machine> {
        let disk = env.disk().clone();
        let found = read_snapshot(&disk, folder).await?;
        let mut state = State::default();
        if let Some(snapshot) = &found {
            state.restore(&snapshot.meta, &snapshot.catalog)?;
        }
        let snapshot = tokio::sync::Mutex::new(state.applied);
        let shared = Shared { disk, folder: folder.to_owned(), state: Mutex::new(state), snapshot };
        Ok(Machine { shared: Arc::new(shared) })
    }

    /// Looks at the catalog as it is here now.
    pub fn read<R>(&self, look: impl FnOnce(&Catalog) -> R) -> R {
        look(&self.state().catalog)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("a command that panics ends the master")
    }

    /// Replaces the snapshot on disk unless that is as new.
    async fn save(&self, meta: &SnapshotMeta, catalog: &Bytes) -> io::Result<()> {
        let mut on_disk = self.shared.snapshot.lock().await;
        if *on_disk >= meta.last_log_id {
            return Ok(());
        }
        let content = SnapshotFile { meta: meta.clone(), catalog: catalog.clone() };
        let payload = postcard::to_stdvec(&content).map_err(io::Error::other)?;
        if payload.len() > SNAPSHOT_BYTES_MAX {
            return Err(io::Error::other(format!("a snapshot of {} bytes", payload.len())));
        }
        small_file::replace(&self.shared.disk, &self.shared.folder, "snapshot", SNAPSHOT_MAGIC, &payload).await?;
        *on_disk = meta.last_log_id;
        Ok(())
    }
}

impl State {
    fn restore(&mut self, meta: &SnapshotMeta, catalog: &[u8]) -> io::Result<()> {
        let catalog: Catalog = postcard::from_bytes(catalog).map_err(corrupt)?;
        catalog.check().map_err(corrupt)?;
        *self = State { applied: meta.last_log_id, membership: meta.last_membership.clone(), catalog };
        Ok(())
    }
}

async fn read_snapshot(disk: &Arc<dyn Disk>, folder: &str) -> io::Result<Option<SnapshotFile>> {
    let payload = small_file::read(disk, &format!("{folder}/snapshot"), SNAPSHOT_MAGIC).await?;
    payload.map(|payload| postcard::from_bytes(&payload).map_err(corrupt)).transpose()
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, Membership)> {
        let state = self.state();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let mut state = self.state();
            state.applied = Some(entry.log_id);
            let answer = match &entry.payload {
                EntryPayload::Blank => Ok(Outcome::Done),
                EntryPayload::Normal(command) => state.catalog.apply(command),
                EntryPayload::Membership(members) => {
                    state.membership = Membership::new(Some(entry.log_id), members.clone());
                    Ok(Outcome::Done)
                }
            };
            drop(state);
            if let Some(responder) = responder {
                responder.send(answer);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder { machine: self.clone(), state: self.state().clone() }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, catalog: Bytes) -> io::Result<()> {
        let mut state = State::default();
        state.restore(meta, &catalog)?;
        self.save(meta, &catalog).await?;
        *self.state() = state;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let _turn = self.shared.snapshot.lock().await;
        let found = read_snapshot(&self.shared.disk, &self.shared.folder).await?;
        Ok(found.map(|found| Snapshot { meta: found.meta, snapshot: found.catalog }))
    }
}

/// The state at one log id, to be written out.
pub struct Builder {
    machine: Machine,
    state: State,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Bytes;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let catalog: Bytes = postcard::to_stdvec(&self.state.catalog).map_err(io::Error::other)?.into();
        let meta = SnapshotMeta { last_log_id: self.state.applied, last_membership: self.state.membership.clone() };
        self.machine.save(&meta, &catalog).await?;
        Ok(Snapshot { meta, snapshot: catalog })
    }
}

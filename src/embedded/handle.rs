//! What all handles of a database share, and what the last one does.

use crate::engine::Inner;
use crate::error::{Error, Result};
use crate::open;
use crate::options::Options;
use env::Env;
use env::real::{self, IoChoice, Keeper, wait};
use std::path::Path;
use std::sync::Arc;

pub(crate) struct Handle {
    pub(crate) inner: Arc<Inner>,
    /// Of the thread that works in the background; without one somebody else runs the environment's tasks.
    keeper: Option<Keeper>,
}

impl Handle {
    pub(crate) fn new(inner: Arc<Inner>, keeper: Option<Keeper>) -> Arc<Handle> {
        Arc::new(Handle { inner, keeper })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // After a panic nobody knows whether what was about to be written is sound: that is no clean stop.
        if self.keeper.is_some()
            && !real::is_panicking()
            && let Err(error) = wait(self.inner.close())
        {
            tracing::error!(%error, "the database could not be closed");
        }
    }
}

/// An environment of the library's own, in the folder.
pub(crate) fn open_env(path: &Path, options: &Options) -> Result<(Env, Keeper)> {
    options.check()?;
    let creates = options.create_if_missing && !options.read_only;
    if !creates && !real::folder_exists(path) {
        return Err(missing(path));
    }
    let own = real::Options { data_dir: path.to_owned(), node: "steadfast".into(), io: IoChoice::Threads };
    real::open_own(own).map_err(|error| Error::io("open the folder", error))
}

pub(crate) fn missing(path: &Path) -> Error {
    Error::Missing { path: path.display().to_string() }
}

pub(crate) fn destroy(path: &Path) -> Result<()> {
    if !real::folder_exists(path) {
        return Ok(());
    }
    let (env, _keeper) = open_env(path, &Options::new())?;
    wait(open::destroy(&env, ""))?;
    real::remove_empty_folder(path).map_err(|error| Error::io("remove the folder", error))
}

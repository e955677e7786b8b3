//! Who a folder belongs to: `identity` and `replicas`, two small files at the top of a server's data folder.
//!
//! `identity` is written once, after the first registration, and never again. `replicas` lists every region whose replica
//! this server holds; it is written after the replica's folder is made and after it is deleted, so that a folder
//! that has vanished is known to be a loss.

use crate::protocol::ClusterId;
use crate::region::{RegionId, ServerId};
use env::Env;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use storage::small_file::{self, Magic};

const IDENTITY: &str = "identity";
const IDENTITY_MAGIC: Magic = *b"SFID";
const REPLICAS: &str = "replicas";
const REPLICAS_MAGIC: Magic = *b"SFRE";
/// Of a server's folder as a whole; each file below carries its own as well.
pub const FORMAT: u32 = 1;

/// What a folder says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub format: u32,
    pub cluster: ClusterId,
    pub server: ServerId,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("the data folder has format {found}, this version knows {FORMAT}: start it with a newer version")]
    NewerFormat { found: u32 },
    #[error(
        "the data folder belongs to cluster {found:032x}, the masters are of cluster {expected:032x}: give the server another data folder, or other masters"
    )]
    OtherCluster { found: u128, expected: u128 },
    #[error("read or write the server's identity: {0}")]
    Io(#[from] io::Error),
}

impl Identity {
    pub async fn load(env: &Env) -> Result<Option<Identity>, IdentityError> {
        let Some(bytes) = small_file::read(env.disk(), IDENTITY, IDENTITY_MAGIC).await? else { return Ok(None) };
        // The format comes first, so that a newer layout behind it does not matter.
        let (format, _) = postcard::take_from_bytes::<u32>(&bytes).map_err(unreadable)?;
        if format > FORMAT {
            return Err(IdentityError::NewerFormat { found: format });
        }
        Ok(Some(postcard::from_bytes(&bytes).map_err(unreadable)?))
    }

    pub async fn store(&self, env: &Env) -> Result<(), IdentityError> {
        let bytes = postcard::to_stdvec(self).map_err(unreadable)?;
        Ok(small_file::replace(env.disk(), "", IDENTITY, IDENTITY_MAGIC, &bytes).await?)
    }
}

fn unreadable(error: postcard::Error) -> IdentityError {
    IdentityError::Io(io::Error::new(io::ErrorKind::InvalidData, format!("corrupt: {error}")))
}

/// The replicas that this server holds.
pub struct Holdings {
    env: Env,
    regions: BTreeSet<RegionId>,
}

impl Holdings {
    pub async fn load(env: &Env) -> Result<Holdings, IdentityError> {
        let regions = match small_file::read(env.disk(), REPLICAS, REPLICAS_MAGIC).await? {
            Some(bytes) => postcard::from_bytes(&bytes).map_err(unreadable)?,
            None => BTreeSet::new(),
        };
        Ok(Holdings { env: env.clone(), regions })
    }

    pub fn contains(&self, region: RegionId) -> bool {
        self.regions.contains(&region)
    }

    pub fn iter(&self) -> impl Iterator<Item = RegionId> + '_ {
        self.regions.iter().copied()
    }

    /// Durable before return.
    pub async fn add(&mut self, regions: &[RegionId]) -> Result<(), IdentityError> {
        let before = self.regions.len();
        self.regions.extend(regions);
        if self.regions.len() > before { self.store().await } else { Ok(()) }
    }

    pub async fn remove(&mut self, region: RegionId) -> Result<(), IdentityError> {
        if self.regions.remove(&region) { self.store().await } else { Ok(()) }
    }

    async fn store(&self) -> Result<(), IdentityError> {
        let bytes = postcard::to_stdvec(&self.regions).map_err(unreadable)?;
        Ok(small_file::replace(self.env.disk(), "", REPLICAS, REPLICAS_MAGIC, &bytes).await?)
    }
}

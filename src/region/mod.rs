//! Regions: what they are called, which keys they hold, who holds them, and how that may change.
//!
//! A table is cut into regions by ranges of **stored keys**: the keys a user gives, prefixed by a hash when the table is
//! salted. A region's [`RegionConfig`] is changed by the master group alone, one [`Change`] at a time, each by
//! compare-and-set on the epoch.

pub mod config;
pub mod key;
pub mod table;

pub use config::{Change, Illegal, RegionConfig, ServerId};
pub use key::{KeyRange, Salt, even_splits};
pub use storage::{Compression, Epoch, RegionId, Seqno};
pub use table::{DeadShare, Durability, RegionInfo, TableId, TableName, TableSpec};

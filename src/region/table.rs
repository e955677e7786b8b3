//! Tables and what a server knows of each of their regions.

use crate::region::{Compression, KeyRange, RegionConfig, Salt};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableId(pub u64);

/// `namespace:table`. Each part is 1 to 128 letters, digits, `_`, `-` or `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableName {
    pub namespace: String,
    pub table: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a table name: write NAMESPACE:TABLE, each of 1 to 128 letters, digits, '_', '-' or '.'")]
pub struct BadTableName(pub String);

impl std::str::FromStr for TableName {
    type Err = BadTableName;

    fn from_str(text: &str) -> Result<TableName, BadTableName> {
        let good = |part: &str| {
            (1..=128).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        };
        match text.split_once(':') {
            Some((namespace, table)) if good(namespace) && good(table) => {
                Ok(TableName { namespace: namespace.to_owned(), table: table.to_owned() })
            }
            _ => Err(BadTableName(text.to_owned())),
        }
    }
}

impl std::fmt::Display for TableName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.namespace, self.table)
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// Every in-sync replica has flushed it.
    Synced,
    /// Every in-sync replica has it in its page cache; flushed every 100 ms. Survives the death of processes, and of
    /// machines as long as one in-sync replica keeps its power.
    Buffered,
}

/// What a user chose for a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSpec {
    /// Replicas of each region, 1 to 3.
    pub factor: u8,
    /// Writes are refused while fewer replicas are in sync.
    pub min_in_sync: u8,
    pub durability: Durability,
    pub salt: Option<Salt>,
    /// How values are stored that get shorter by it.
    pub compression: Compression,
}

impl TableSpec {
    /// What a user gets who chooses nothing but the number of replicas.
    pub fn new(factor: u8) -> TableSpec {
        TableSpec {
            factor,
            min_in_sync: TableSpec::default_min_in_sync(factor),
            durability: Durability::Synced,
            salt: None,
            compression: Compression::None,
        }
    }

    /// `min_in_sync` when the user says nothing: 2 of 3, else 1.
    pub fn default_min_in_sync(factor: u8) -> u8 {
        if factor >= 3 { 2 } else { 1 }
    }
}

/// All that a replica needs to know of its region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionInfo {
    pub table: TableId,
    pub spec: TableSpec,
    pub range: KeyRange,
    pub config: RegionConfig,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names_are_checked() {
        assert_eq!("a:b".parse::<TableName>().unwrap().to_string(), "a:b");
        for bad in ["", "a", ":b", "a:", "a:b:c", "a b:c", "ü:x"] {
            assert!(bad.parse::<TableName>().is_err(), "{bad}");
        }
    }
}

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

/// Which part of some segments must be dead for them to be compacted. Less keeps the log shorter and writes more: what is
/// rewritten for each byte freed is (1 − share) / share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadShare {
    percent: u8,
}

impl DeadShare {
    pub const DEFAULT: DeadShare = DeadShare { percent: 50 };
    const PERCENT_MIN: u8 = 5;
    const PERCENT_MAX: u8 = 95;

    /// Between 0 and 1.
    pub fn share(self) -> f64 {
        f64::from(self.percent) / 100.0
    }

    /// One that was not parsed but received may be anything.
    pub fn is_valid(self) -> bool {
        (DeadShare::PERCENT_MIN..=DeadShare::PERCENT_MAX).contains(&self.percent)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no share of dead bytes: write 0.05 to 0.95, in hundredths")]
pub struct BadDeadShare(pub String);

impl std::str::FromStr for DeadShare {
    type Err = BadDeadShare;

    fn from_str(text: &str) -> Result<DeadShare, BadDeadShare> {
        let share = text.parse::<f64>().ok().map(|share| share * 100.0);
        let whole = share.filter(|percent| (percent - percent.round()).abs() < 1e-6 && (0.0..=100.0).contains(percent));
        let share = whole.map(|percent| DeadShare { percent: percent.round() as u8 });
        share.filter(|share| share.is_valid()).ok_or_else(|| BadDeadShare(text.to_owned()))
    }
}

impl std::fmt::Display for DeadShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.share())
    }
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
    pub dead_share: DeadShare,
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
            dead_share: DeadShare::DEFAULT,
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
    fn shares_are_checked() {
        for good in ["0.5", "0.05", "0.95", "0.29", ".3"] {
            let share: DeadShare = good.parse().expect(good);
            assert_eq!((share.to_string().parse(), share.is_valid()), (Ok(share), true));
        }
        assert_eq!("0.50".parse(), Ok(DeadShare::DEFAULT));
        for bad in ["", "0", "1", "0.04", "0.96", "50", "0.555", "-0.5", "NaN", "half", "1e9"] {
            assert!(bad.parse::<DeadShare>().is_err(), "{bad}");
        }
        assert!(!DeadShare { percent: 100 }.is_valid());
    }

    #[test]
    fn table_names_are_checked() {
        assert_eq!("a:b".parse::<TableName>().unwrap().to_string(), "a:b");
        for bad in ["", "a", ":b", "a:", "a:b:c", "a b:c", "ü:x"] {
            assert!(bad.parse::<TableName>().is_err(), "{bad}");
        }
    }
}

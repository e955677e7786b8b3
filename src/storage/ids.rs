//! Numbers that mean one thing each.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub u64);

        impl $name {
            pub const fn next(self) -> $name {
                $name(self.0 + 1)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id! {
    /// A region of a table; never used twice in a cluster.
    RegionId
}
id! {
    /// A region's configuration number. Each change of primary, in-sync set or learners adds one; 0 is before the first.
    Epoch
}
id! {
    /// A record's place in its region's order; the first record has 1, and 0 stands for "none yet".
    Seqno
}
id! {
    /// A segment file of a region's log, counted from 1.
    SegmentId
}

/// A prefix of a region's log, named by its end. Frames are chained by their checksums, so two logs that hold the same
/// mark hold the same bytes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mark {
    /// The last record before the end.
    pub seqno: Seqno,
    /// The last frame's checksum.
    pub checksum: u64,
}

impl Mark {
    /// The empty prefix.
    pub const ZERO: Mark = Mark { seqno: Seqno(0), checksum: 0 };
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}#{:016x}", self.seqno, self.checksum)
    }
}

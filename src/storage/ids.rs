//! Numbers that mean one thing each.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
/// A segment file of a region's log: a number that says where in the log it lies, counted from 1, and a generation that
/// says how often what lies there was compacted. A compacted segment has the number of the first one that it stands for.
///
/// Ordered by number, then generation: segments that are part of one log are in the order of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SegmentId(pub u64);

impl SegmentId {
    const NUMBER_BITS: u32 = 40;

    pub const fn compacted(number: u64, generation: u64) -> SegmentId {
        assert!(number >> Self::NUMBER_BITS == 0 && generation >> (64 - Self::NUMBER_BITS) == 0);
        SegmentId(generation << Self::NUMBER_BITS | number)
    }

    pub const fn number(self) -> u64 {
        self.0 & ((1 << Self::NUMBER_BITS) - 1)
    }

    /// 0 for a segment that was appended to.
    pub const fn generation(self) -> u64 {
        self.0 >> Self::NUMBER_BITS
    }

    pub const fn is_compacted(self) -> bool {
        self.generation() > 0
    }

    /// The next segment to append to.
    pub const fn next(self) -> SegmentId {
        SegmentId(self.number() + 1)
    }
}

impl Ord for SegmentId {
    fn cmp(&self, other: &SegmentId) -> std::cmp::Ordering {
        (self.number(), self.generation()).cmp(&(other.number(), other.generation()))
    }
}

impl PartialOrd for SegmentId {
    fn partial_cmp(&self, other: &SegmentId) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Display for SegmentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.generation() {
            0 => write!(f, "{}", self.number()),
            generation => write!(f, "{}.{generation}", self.number()),
        }
    }
}

/// A prefix of a region's log, named by its end. Frames are chained by their checksums, so two logs that hold the same
/// mark hold the same bytes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

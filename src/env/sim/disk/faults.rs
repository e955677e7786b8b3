//! What a simulated disk does wrong, and how slowly it does right.

use super::super::dice::Dice;
use std::time::Duration;

/// Switches of one disk, changed while it runs with [`super::DiskState::faults`].
#[derive(Clone, Debug)]
pub struct Faults {
    /// `read_at` and `try_read_at` answer EIO.
    pub read: Failing,
    /// Writes, appends, truncations and allocations answer EIO; a part of a failed write may be there.
    pub write: Failing,
    /// `sync_data` and `sync_dir` answer EIO. What they should have made durable never becomes so, although reads show it and
    /// the next sync says Ok.
    pub sync: Failing,
    /// Opening, renaming, removing, listing and making folders answer EIO.
    pub metadata: Failing,
    /// The write says Ok and reads show it, but it never reaches the medium.
    pub lost_write: Failing,
    /// The write says Ok and reads show it, but on the medium it lands elsewhere in the same file.
    pub misdirected_write: Failing,
    /// Reads fail, and writes are lost or misdirected, only in files whose path has this in it.
    pub only_in: String,
    /// Bytes of files that fit; writes beyond answer `StorageFull`, reads work.
    pub capacity: Option<u64>,
    pub latency: Latency,
    /// Multiplies every delay (an operation that would take no time takes this many milliseconds). 1 is normal.
    pub slow_factor: u32,
    /// How often `try_read_at` and `try_write_at` answer, so that callers exercise both paths.
    pub at_once_percent: u32,
}

impl Default for Faults {
    /// A healthy disk that takes no time.
    fn default() -> Faults {
        Faults {
            read: Failing::default(),
            write: Failing::default(),
            sync: Failing::default(),
            metadata: Failing::default(),
            lost_write: Failing::NEVER,
            misdirected_write: Failing::NEVER,
            only_in: String::new(),
            capacity: None,
            latency: Latency::NONE,
            slow_factor: 1,
            at_once_percent: 50,
        }
    }
}

/// When a kind of operation fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failing {
    /// Once, when this many have been asked for: 1 is the next one.
    pub nth: Option<u64>,
    /// So often in a million.
    pub ppm: u32,
}

impl Failing {
    pub const NEVER: Failing = Failing { nth: None, ppm: 0 };
    pub const NEXT: Failing = Failing { nth: Some(1), ppm: 0 };
    pub const ALWAYS: Failing = Failing { nth: None, ppm: 1_000_000 };

    pub const fn nth(nth: u64) -> Failing {
        Failing { nth: Some(nth), ppm: 0 }
    }

    pub const fn ppm(ppm: u32) -> Failing {
        Failing { nth: None, ppm }
    }

    pub(super) fn is_never(&self) -> bool {
        *self == Failing::NEVER
    }

    pub(super) fn strikes(&mut self, dice: &mut Dice) -> bool {
        let counted = match self.nth {
            Some(0 | 1) => {
                self.nth = None;
                true
            }
            Some(left) => {
                self.nth = Some(left - 1);
                false
            }
            None => false,
        };
        counted || dice.ppm(self.ppm)
    }
}

/// Time an operation takes, in whole milliseconds: the grain of simulated time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// So many operations in a hundred take no time.
    pub instant_percent: u32,
    pub ms_min: u64,
    pub ms_max: u64,
}

impl Latency {
    pub const NONE: Latency = Latency { instant_percent: 100, ms_min: 0, ms_max: 0 };
    /// A solid-state disk, seen with a grain of one millisecond.
    pub const SSD: Latency = Latency { instant_percent: 70, ms_min: 1, ms_max: 3 };

    pub(super) fn draw(&self, slow_factor: u32, dice: &mut Dice) -> Duration {
        let ms = match dice.percent(self.instant_percent) {
            true => 0,
            false => dice.between(self.ms_min, self.ms_max),
        };
        match slow_factor {
            0 | 1 => Duration::from_millis(ms),
            factor => Duration::from_millis(ms.max(1) * factor as u64),
        }
    }
}

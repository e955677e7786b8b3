//! The log of one replica, as far as the protocol can tell entries apart.

use std::fmt;

/// Room for every write that a bound allows, and then some.
const LEN_MAX: usize = 4;

/// Entries by the epoch in which each was appended. One primary appends in an epoch, and only at its end, so that two entries
/// at the same place and of the same epoch after the same prefix are the same entry: this is what the hash chain tells.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Log {
    len: u8,
    epochs: [u8; LEN_MAX],
}

impl Log {
    pub fn len(&self) -> u8 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn entries(&self) -> &[u8] {
        &self.epochs[..self.len as usize]
    }

    pub fn push(&mut self, epoch: u8) {
        self.epochs[self.len as usize] = epoch;
        self.len += 1;
    }

    pub fn cut(&mut self, len: u8) {
        for epoch in &mut self.epochs[len as usize..] {
            *epoch = 0;
        }
        self.len = self.len.min(len);
    }

    /// The first `len` entries.
    pub fn prefix(mut self, len: u8) -> Log {
        assert!(len <= self.len, "the first {len} entries of {self:?}");
        self.cut(len);
        self
    }

    pub fn is_prefix_of(&self, other: &Log) -> bool {
        other.entries().starts_with(self.entries())
    }

    /// How many entries two logs have in common.
    pub fn common(&self, other: &Log) -> u8 {
        let same = self.entries().iter().zip(other.entries()).take_while(|(one, other)| one == other);
        same.count() as u8
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.entries())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(entries: &[u8]) -> Log {
        let mut log = Log::default();
        entries.iter().for_each(|&epoch| log.push(epoch));
        log
    }

    #[test]
    fn a_cut_leaves_no_trace() {
        let mut cut = log(&[1, 1, 2]);
        cut.cut(1);
        assert_eq!(cut, log(&[1]));
        assert_eq!(log(&[1, 2]).prefix(1), log(&[1]));
    }

    #[test]
    fn logs_part_at_the_first_difference() {
        assert_eq!(log(&[1, 1, 2]).common(&log(&[1, 2, 2])), 1);
        assert!(log(&[1]).is_prefix_of(&log(&[1, 2])) && !log(&[2]).is_prefix_of(&log(&[1, 2])));
    }
}

//! One file in three images: what reads show, what the medium holds, and the changes on their way from one to the other.
//!
//! A write changes `cached` and queues itself in `pending`. A flush moves the queue into `durable`. A power loss takes some
//! part of the queue, and `cached` becomes what is left on the medium.
//!
//! The part is chosen sector by sector. The kernel writes a page as it stands at some moment, so that a sector holds what
//! the first k of the changes that touch it made of it, for a k of its own; or, when the power fails while it is written,
//! garbage in place of the bytes that were changing. **Bytes that no pending change touches are safe**, also when they
//! share a sector with some that do (SQLite's "powersafe overwrite"). The length is metadata with a journal of its own: it is
//! what the first c changes made of it. A cut (truncation) is metadata too: within the first c it has happened, after them
//! neither it nor what was written into the space it freed.

use super::super::dice::Dice;
use super::super::limits::SECTOR_BYTES;
use super::media_error;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

#[derive(Clone, Default)]
pub(super) struct Image {
    cached: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
    next_change: u64,
    bad_sectors: BTreeSet<u64>,
    allocated: u64,
}

#[derive(Clone)]
struct Pending {
    number: u64,
    change: Change,
    len_after: u64,
}

#[derive(Clone)]
enum Change {
    Write {
        at: u64,
        bytes: Bytes,
    },
    /// From here on everything reads as zero.
    Cut {
        from: u64,
    },
}

/// Where the bytes of a write end up on the medium; the page cache shows them in their place in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landing {
    Right,
    Elsewhere(u64),
    Nowhere,
}

/// How much of what was pending a power loss leaves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Survival {
    Nothing,
    Everything,
    /// The oldest changes, the last of them torn.
    InOrder,
    /// Each sector its own way; this share of them got something.
    Scattered {
        percent: u32,
    },
}

impl Survival {
    pub(super) fn draw(dice: &mut Dice) -> Survival {
        match dice.below(8) {
            0 => Survival::Nothing,
            1 => Survival::Everything,
            2 | 3 => Survival::InOrder,
            _ => Survival::Scattered { percent: *dice.pick(&[10, 50, 90]) },
        }
    }
}

impl Image {
    pub(super) fn holding(bytes: Vec<u8>) -> Image {
        Image { durable: bytes.clone(), cached: bytes, ..Image::default() }
    }

    pub(super) fn len(&self) -> u64 {
        self.cached.len() as u64
    }

    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    pub(super) fn cached(&self) -> &[u8] {
        &self.cached
    }

    /// Space taken, whether by bytes or by reservation.
    pub(super) fn footprint(&self) -> u64 {
        self.len().max(self.allocated)
    }

    pub(super) fn allocate(&mut self, len: u64) {
        self.allocated = self.allocated.max(len);
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = offset.min(self.len()) as usize;
        let count = buffer.len().min(self.cached.len() - start);
        if count > 0 && self.bad_sectors.range(sectors(&(start as u64..(start + count) as u64))).next().is_some() {
            return Err(media_error());
        }
        buffer[..count].copy_from_slice(&self.cached[start..start + count]);
        Ok(count)
    }

    /// A sector that cannot be read is mended by overwriting all of it; writing a part of it needs the rest and fails.
    pub(super) fn write(&mut self, at: u64, bytes: Bytes, landing: Landing) -> io::Result<()> {
        let range = at..at + bytes.len() as u64;
        self.mend(&range)?;
        put(&mut self.cached, at, &bytes);
        match landing {
            Landing::Right => self.queue(Change::Write { at, bytes }),
            Landing::Elsewhere(at) => self.queue(Change::Write { at, bytes }),
            Landing::Nowhere => {}
        }
        Ok(())
    }

    fn mend(&mut self, range: &Range<u64>) -> io::Result<()> {
        if self.bad_sectors.is_empty() || range.is_empty() {
            return Ok(());
        }
        let bad: Vec<u64> = self.bad_sectors.range(sectors(range)).copied().collect();
        let whole = |sector: &u64| range.start <= sector * SECTOR_BYTES && (sector + 1) * SECTOR_BYTES <= range.end;
        if !bad.iter().all(whole) {
            return Err(media_error());
        }
        self.bad_sectors.retain(|sector| !bad.contains(sector));
        Ok(())
    }

    pub(super) fn truncate(&mut self, len: u64) {
        let from = len.min(self.len());
        self.cached.resize(len as usize, 0);
        self.allocated = self.allocated.min(len);
        self.queue(Change::Cut { from });
    }

    fn queue(&mut self, change: Change) {
        self.pending.push(Pending { number: self.next_change, change, len_after: self.len() });
        self.next_change += 1;
    }

    /// What a flush that begins now covers.
    pub(super) fn mark(&self) -> u64 {
        self.next_change
    }

    /// Makes the changes before `mark` durable.
    pub(super) fn flush(&mut self, mark: u64) {
        let covered = self.pending.partition_point(|pending| pending.number < mark);
        for Pending { change, len_after, .. } in self.pending.drain(..covered) {
            change.apply(&mut self.durable);
            self.durable.resize(len_after as usize, 0);
        }
    }

    /// A flush failed: the kernel reports it once and marks the pages clean. Reads still show them.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// Clean pages leave memory: reads show what the medium holds.
    pub(super) fn drop_cache(&mut self) {
        self.cached = self.durable.clone();
        for Pending { change, len_after, .. } in &self.pending {
            change.apply(&mut self.cached);
            self.cached.resize(*len_after as usize, 0);
        }
    }

    /// Whether no power loss can take or change these bytes.
    pub(super) fn is_durable(&self, range: Range<u64>) -> bool {
        let touched = self.pending.iter().any(|pending| pending.change.touches(&range));
        let (start, end) = (range.start as usize, range.end as usize);
        // A shorter length on its way may or may not arrive: either cuts, or leaves what is there.
        let safe_len = self.pending.iter().map(|pending| pending.len_after).fold(self.durable.len() as u64, u64::min);
        !touched && range.end <= safe_len && self.cached.get(start..end) == self.durable.get(start..end)
    }

    pub(super) fn power_loss(&mut self, survival: Survival, dice: &mut Dice) {
        let pending = std::mem::take(&mut self.pending);
        if !pending.is_empty() {
            self.durable = survivors(std::mem::take(&mut self.durable), &pending, survival, dice);
        }
        self.cached = self.durable.clone();
    }

    /// Changes bytes on the medium and in memory at once, as rot or a foreign hand does. Extends the file where needed.
    pub(super) fn overwrite(&mut self, at: u64, bytes: &[u8]) {
        put(&mut self.durable, at, bytes);
        put(&mut self.cached, at, bytes);
    }

    pub(super) fn cut_both(&mut self, len: u64) {
        self.durable.resize(len as usize, 0);
        self.cached.resize(len as usize, 0);
    }

    pub(super) fn flip_bit(&mut self, at: u64, bit: u8) {
        for image in [&mut self.durable, &mut self.cached] {
            if let Some(byte) = image.get_mut(at as usize) {
                *byte ^= 1 << bit;
            }
        }
    }

    /// Returns how many these are.
    pub(super) fn break_sectors(&mut self, range: Range<u64>) -> u64 {
        let broken = sectors(&range);
        self.bad_sectors.extend(broken.clone());
        broken.end - broken.start
    }
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Change::Write { at, bytes } => put(image, *at, bytes),
            Change::Cut { from } => image.truncate(*from as usize),
        }
    }

    fn touches(&self, range: &Range<u64>) -> bool {
        match self {
            Change::Write { at, bytes } => *at < range.end && range.start < at + bytes.len() as u64,
            Change::Cut { from } => *from < range.end,
        }
    }

    fn is_cut(&self) -> bool {
        matches!(self, Change::Cut { .. })
    }
}

/// The medium after a power loss that caught `pending` on its way to `durable`.
fn survivors(durable: Vec<u8>, pending: &[Pending], survival: Survival, dice: &mut Dice) -> Vec<u8> {
    let reached = match survival {
        Survival::Nothing => 0,
        Survival::Everything => pending.len(),
        Survival::InOrder | Survival::Scattered { .. } => dice.between(0, pending.len() as u64) as usize,
    };
    // Lengths are journaled: the first `journaled` of them took place.
    let journaled = match survival {
        Survival::Nothing | Survival::Everything => reached,
        Survival::InOrder => (reached + dice.below(2) as usize).min(pending.len()),
        Survival::Scattered { .. } => dice.between(0, pending.len() as u64) as usize,
    };
    let len = if journaled == 0 { durable.len() as u64 } else { pending[journaled - 1].len_after };

    let mut after = durable.clone();
    for (sector, changes) in changes_by_sector(durable.len() as u64, pending) {
        let cuts_before = changes.iter().rposition(|&i| pending[i].change.is_cut() && i < journaled);
        let cuts_after = changes.iter().position(|&i| pending[i].change.is_cut() && i >= journaled);
        let (least, most) = (cuts_before.map_or(0, |i| i + 1), cuts_after.unwrap_or(changes.len()));
        let count = match survival {
            Survival::Nothing => least,
            Survival::Everything => most,
            Survival::InOrder => in_order(&changes, reached, dice).clamp(least, most),
            Survival::Scattered { percent } if dice.percent(percent) => {
                dice.between(least as u64, most as u64) as usize
            }
            Survival::Scattered { .. } => least,
        };
        let window = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        for &i in &changes[..count] {
            apply_within(&pending[i].change, &window, &mut after);
        }
        let torn = matches!(survival, Survival::InOrder | Survival::Scattered { .. }) && dice.percent(6);
        if torn && least < most {
            garble(changes[least..most].iter().map(|&i| &pending[i].change), &window, &mut after, dice);
        }
    }
    after.resize(len as usize, 0);
    after
}

/// For every sector that a pending change touches, the changes that do, oldest first.
fn changes_by_sector(durable_len: u64, pending: &[Pending]) -> BTreeMap<u64, Vec<usize>> {
    let mut extent = durable_len;
    let mut changes: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (i, Pending { change, len_after, .. }) in pending.iter().enumerate() {
        let range = match change {
            Change::Write { at, bytes } => *at..at + bytes.len() as u64,
            Change::Cut { from } => *from..extent,
        };
        extent = extent.max(*len_after).max(range.end);
        for sector in sectors(&range) {
            changes.entry(sector).or_default().push(i);
        }
    }
    changes
}

/// How many of a sector's changes are among the first `reached` of all; the one after those is under way and torn.
fn in_order(changes: &[usize], reached: usize, dice: &mut Dice) -> usize {
    let whole = changes.partition_point(|&i| i < reached);
    let under_way = changes.get(whole) == Some(&reached);
    whole + (under_way && dice.percent(50)) as usize
}

fn apply_within(change: &Change, window: &Range<u64>, image: &mut Vec<u8>) {
    match change {
        Change::Write { at, bytes } => {
            let part = overlap(&(*at..at + bytes.len() as u64), window);
            put(image, part.start, &bytes[(part.start - at) as usize..(part.end - at) as usize]);
        }
        Change::Cut { from } => {
            let start = (*from).max(window.start).min(image.len() as u64) as usize;
            let end = window.end.min(image.len() as u64) as usize;
            image[start..end.max(start)].fill(0);
        }
    }
}

/// Spoils the bytes that the changes were writing, and no others.
fn garble<'a>(changes: impl Iterator<Item = &'a Change>, window: &Range<u64>, image: &mut Vec<u8>, dice: &mut Dice) {
    for change in changes {
        if let Change::Write { at, bytes } = change {
            let part = overlap(&(*at..at + bytes.len() as u64), window);
            let mut garbage = vec![0; (part.end - part.start) as usize];
            dice.fill(&mut garbage);
            put(image, part.start, &garbage);
        }
    }
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// The sectors that hold a byte of `range`.
fn sectors(range: &Range<u64>) -> Range<u64> {
    match range.is_empty() {
        true => 0..0,
        false => range.start / SECTOR_BYTES..(range.end - 1) / SECTOR_BYTES + 1,
    }
}

fn put(image: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let (start, end) = (at as usize, at as usize + bytes.len());
    if !bytes.is_empty() && image.len() < end {
        image.resize(end, 0);
    }
    if !bytes.is_empty() {
        image[start..end].copy_from_slice(bytes);
    }
}

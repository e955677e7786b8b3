//! Which run of segments to compact. Pure.
//!
//! Of each segment it is known what its bytes are and which of them the index points to. What compaction cannot free are
//! live records and their part of the frames around them, and session records that are remembered. Tombstones, and puts
//! that have expired, **hide** what may lie before them: they go for certain only where nothing dead does.
//!
//! A run is worth it when
//! 1. its dead share reaches the table's: then rewriting costs at most as much as it frees, or
//! 2. the dead share of the whole log does, with what only hides, while no run's does: then the log is swept from its
//!    first segment on, so that what hides has nothing left to hide when its turn comes, or
//! 3. there are many more segments than their bytes call for: neighbours are joined.
//!
//! Each of them leaves less to do, so that it comes to an end: what is counted as dead is gone afterwards. (Session and
//! control records are counted as dead only in segments that were never compacted, as what survives once is known to be
//! needed; it goes when its segment is compacted for something else.) The log takes at most live / (1 − share), plus the
//! segment that is written to and the one that is being made.

use crate::hint::Usage;
use crate::ids::SegmentId;
use crate::limits::COMPACT_SEGMENTS_MAX;
use crate::segment::frames_start;

/// A sealed segment and how much of it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    pub segment: SegmentId,
    /// Of the file.
    pub bytes: u64,
    /// Of the puts that the index points to.
    pub live_bytes: u64,
    /// `None`: its hint is not written yet, and it cannot be part of a run.
    pub(crate) usage: Option<Usage>,
}

/// What a table wants, and what is known of its region now.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// A run is compacted when this part of it is dead: above 0, below 1.
    pub dead_share: f64,
    /// A run's output should not be longer.
    pub segment_bytes: u64,
    /// Of the session records that are remembered, which are the newest of the log.
    pub session_bytes: u64,
    /// What expires at this time or before counts as expired.
    pub wall_ms: u64,
}

/// A run to compact, and what it is expected to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    pub first: SegmentId,
    pub last: SegmentId,
    pub dead_bytes: u64,
}

/// Bytes of a segment, by what becomes of them.
#[derive(Clone, Copy, Default)]
struct Parts {
    bytes: u64,
    kept: u64,
    /// What may hide something.
    hiding: u64,
}

impl Parts {
    fn dead(&self, hides_nothing: bool) -> u64 {
        self.bytes.saturating_sub(self.kept + if hides_nothing { 0 } else { self.hiding })
    }

    fn add(&mut self, other: Parts) {
        self.bytes += other.bytes;
        self.kept += other.kept;
        self.hiding += other.hiding;
    }
}

/// The run to compact next.
pub fn choose(segments: &[SegmentUse], settings: Settings) -> Option<Choice> {
    let parts = parts(segments, settings);
    by_share(segments, &parts, settings)
        .or_else(|| by_sweep(segments, &parts, settings))
        .or_else(|| by_count(segments, &parts, settings))
}

fn parts(segments: &[SegmentUse], settings: Settings) -> Vec<Option<Parts>> {
    let mut sessions_left = settings.session_bytes;
    let of = |segment: &SegmentUse| parts_of(segment, &mut sessions_left, settings.wall_ms);
    let mut parts: Vec<Option<Parts>> = segments.iter().rev().map(of).collect();
    parts.reverse();
    parts
}

fn parts_of(segment: &SegmentUse, sessions_left: &mut u64, wall_ms: u64) -> Option<Parts> {
    let usage = segment.usage?;
    let extras = match segment.segment.is_compacted() {
        true => usage.extra_bytes,
        false => usage.extra_bytes.min(*sessions_left),
    };
    *sessions_left -= extras.min(*sessions_left);
    let live = segment.live_bytes.min(usage.put_bytes);
    // Of those that expire as many are live as of all.
    let all_expired = wall_ms >= usage.expiry_max_ms;
    let expired = if all_expired { share(live, usage.expiring_bytes, usage.put_bytes) } else { 0 };
    // Frames belong to the records in them.
    let header = frames_start(segment.segment);
    let known = usage.put_bytes + usage.tombstone_bytes + usage.extra_bytes;
    let with_frames = |bytes: u64| share(segment.bytes.saturating_sub(header), bytes, known);
    let kept = header + with_frames(live - expired + extras);
    Some(Parts { bytes: segment.bytes, kept, hiding: with_frames(usage.tombstone_bytes + expired) })
}

/// `part` of `whole`, of so many bytes.
fn share(bytes: u64, part: u64, whole: u64) -> u64 {
    (bytes as u128 * part as u128).div_ceil(whole.max(1) as u128) as u64
}

/// Every run from each segment on, while it stays within what one compaction takes. `swept`: nothing dead lies before.
fn runs<'a>(
    parts: &'a [Option<Parts>],
    segment_bytes: u64,
    swept: bool,
) -> impl Iterator<Item = (std::ops::RangeInclusive<usize>, Parts)> + 'a {
    (0..parts.len()).flat_map(move |first| {
        let mut sum = Parts::default();
        let left = move |sum: &Parts| sum.bytes - sum.dead(swept || first == 0);
        parts[first..].iter().take(COMPACT_SEGMENTS_MAX).enumerate().map_while(move |(at, part)| {
            sum.add((*part)?);
            (at == 0 || left(&sum) <= segment_bytes).then_some((first..=first + at, sum))
        })
    })
}

fn chosen(segments: &[SegmentUse], run: &std::ops::RangeInclusive<usize>, dead_bytes: u64) -> Choice {
    Choice { first: segments[*run.start()].segment, last: segments[*run.end()].segment, dead_bytes }
}

/// Of the runs with the dead share, the one that frees most.
fn by_share(segments: &[SegmentUse], parts: &[Option<Parts>], settings: Settings) -> Option<Choice> {
    let dead = |run: &std::ops::RangeInclusive<usize>, sum: &Parts| sum.dead(*run.start() == 0);
    let worth_it = |run: &std::ops::RangeInclusive<usize>, sum: &Parts| {
        let dead = dead(run, sum);
        dead > 0 && dead as f64 >= settings.dead_share * sum.bytes as f64
    };
    let worth_it = runs(parts, settings.segment_bytes, false).filter(|(run, sum)| worth_it(run, sum));
    // Of two that free the same, the one that writes less.
    let best = worth_it.max_by_key(|(run, sum)| (dead(run, sum), std::cmp::Reverse(sum.bytes)));
    best.map(|(run, sum)| chosen(segments, &run, dead(&run, &sum)))
}

/// The first segments with anything that may go, when enough of the whole log may.
fn by_sweep(segments: &[SegmentUse], parts: &[Option<Parts>], settings: Settings) -> Option<Choice> {
    let mut all = Parts::default();
    for part in parts {
        all.add((*part)?);
    }
    if (all.dead(true) as f64) < settings.dead_share * all.bytes as f64 {
        return None;
    }
    let first = parts.iter().position(|part| part.is_some_and(|part| part.dead(true) > 0))?;
    let longest = runs(parts, settings.segment_bytes, true).filter(|(run, _)| *run.start() == first).last();
    longest.map(|(run, sum)| chosen(segments, &run, sum.dead(true)))
}

/// The neighbours whose joining costs least for each segment saved, when there are too many.
fn by_count(segments: &[SegmentUse], parts: &[Option<Parts>], settings: Settings) -> Option<Choice> {
    let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
    let called_for = bytes.div_ceil(settings.segment_bytes.max(1)) as usize;
    if segments.len() <= 2 * called_for + 4 {
        return None;
    }
    let joined = runs(parts, settings.segment_bytes, false).filter(|(run, _)| run.end() > run.start());
    let cost = |run: &std::ops::RangeInclusive<usize>, sum: &Parts| sum.bytes / (run.end() - run.start()) as u64;
    let cheapest = joined.min_by_key(|(run, sum)| cost(run, sum));
    cheapest.map(|(run, sum)| chosen(segments, &run, sum.dead(*run.start() == 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { dead_share: 0.5, segment_bytes: 1000, session_bytes: 0, wall_ms: 500 };

    fn segment(number: u64, live: u64, puts: u64, tombstones: u64) -> SegmentUse {
        let usage = Usage { put_bytes: puts, tombstone_bytes: tombstones, ..Usage::default() };
        SegmentUse { segment: SegmentId(number), bytes: 1000, live_bytes: live, usage: Some(usage) }
    }

    fn run(choice: Option<Choice>) -> Option<(u64, u64)> {
        choice.map(|choice| (choice.first.0, choice.last.0))
    }

    #[test]
    fn nothing_is_done_for_less_than_the_share() {
        let segments: Vec<_> = (1..=8).map(|number| segment(number, 600, 1000, 0)).collect();
        assert_eq!(choose(&segments, SETTINGS), None);
    }

    #[test]
    fn the_run_that_frees_most_is_taken_if_its_output_fits_a_segment() {
        let live = [900, 900, 400, 10, 0, 900, 450];
        let segments: Vec<_> = (1..).zip(live).map(|(number, live)| segment(number, live, 1000, 0)).collect();
        assert_eq!(run(choose(&segments, SETTINGS)), Some((3, 5)), "it frees most, and fits");
        let live = [900, 900, 280, 280, 280, 900];
        let segments: Vec<_> = (1..).zip(live).map(|(number, live)| segment(number, live, 1000, 0)).collect();
        assert_eq!(run(choose(&segments, SETTINGS)), Some((3, 5)));
    }

    #[test]
    fn a_segment_without_a_hint_ends_runs() {
        let mut segments: Vec<_> = (1..=3).map(|number| segment(number, 300, 1000, 0)).collect();
        segments[1].usage = None;
        assert_eq!(run(choose(&segments, SETTINGS)), Some((3, 3)));
    }

    #[test]
    fn tombstones_are_dead_where_nothing_lies_before_them() {
        let segments = [segment(1, 0, 0, 1000)];
        assert_eq!(run(choose(&segments, SETTINGS)), Some((1, 1)));
        // Behind a live segment they stay, until the whole log has too many: then it is swept in order.
        let segments = [segment(1, 990, 1000, 0), segment(2, 100, 100, 900)];
        assert_eq!(choose(&segments, SETTINGS), None);
        let segments = [segment(1, 600, 1000, 0), segment(2, 600, 600, 400), segment(3, 0, 0, 1000)];
        assert_eq!(run(choose(&segments, SETTINGS)), Some((1, 1)));
        let swept = [segment(1, 600, 600, 0), segment(2, 600, 600, 400), segment(3, 0, 0, 1000)];
        assert_eq!(run(choose(&swept, Settings { dead_share: 0.4, ..SETTINGS })), Some((2, 3)));
    }

    #[test]
    fn what_has_expired_is_as_good_as_a_tombstone() {
        let usage = |expiry_max_ms| Usage { put_bytes: 1000, expiring_bytes: 1000, expiry_max_ms, ..Usage::default() };
        let of = |expiry_max_ms| SegmentUse { usage: Some(usage(expiry_max_ms)), ..segment(1, 1000, 1000, 0) };
        assert_eq!(choose(&[of(501)], SETTINGS), None);
        assert_eq!(run(choose(&[of(500)], SETTINGS)), Some((1, 1)));
    }

    #[test]
    fn a_segment_that_was_compacted_is_let_be() {
        let kept = Usage { put_bytes: 200, extra_bytes: 300, ..Usage::default() };
        let compacted = SegmentId::compacted(1, 1);
        let segment = SegmentUse { segment: compacted, bytes: 700, live_bytes: 200, usage: Some(kept) };
        let empty =
            SegmentUse { bytes: frames_start(compacted), live_bytes: 0, usage: Some(Usage::default()), ..segment };
        assert_eq!((choose(&[segment], SETTINGS), choose(&[empty], SETTINGS)), (None, None));
    }

    #[test]
    fn sessions_remembered_are_kept_and_the_newest_ones_are() {
        let usage = Some(Usage { extra_bytes: 1000, ..Usage::default() });
        let of = |number| SegmentUse { segment: SegmentId(number), bytes: 1000, live_bytes: 0, usage };
        let segments = [of(1), of(2)];
        assert_eq!(run(choose(&segments, Settings { session_bytes: 1000, ..SETTINGS })), Some((1, 1)));
        assert_eq!(choose(&segments, Settings { session_bytes: 2000, ..SETTINGS }), None);
    }

    #[test]
    fn many_small_segments_are_joined() {
        let small = |number| SegmentUse { bytes: 100, ..segment(number, 100, 100, 0) };
        let segments: Vec<_> = (1..=7).map(small).collect();
        let joined = choose(&segments, SETTINGS).expect("too many");
        assert!(joined.first < joined.last);
        assert_eq!(choose(&segments[..6], SETTINGS), None);
    }
}

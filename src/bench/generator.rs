//! Which key, and which value.
//!
//! Keys are YCSB's: `user` and the absolute value of the FNV-1a hash of the record's number, so that neighbours in number
//! are no neighbours in order. Choices come from a seeded stream: the same seed gives the same operations.
//!
//! A field's bytes follow from its key, its place and the number of the write that made it, and start with that number.
//! So any reader can say whether they are what some write made for just this field of just this key.

use super::limits::{FIELD_BYTES_MIN, FIELDS_MAX};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Chooses the records that operations are about.
#[derive(Clone, Debug)]
pub enum Chooser {
    Uniform,
    /// YCSB's default: Zipf over 10¹⁰ items, spread over the records by hashing. The hottest record gets 3.78 % of the
    /// operations, whatever the number of records.
    ScrambledZipfian(Gray),
    /// Zipf over the records themselves: record 0 is the hottest.
    ZipfExact(Zipf),
    /// Zipf from the newest record backwards.
    Latest(Zipf),
}

impl Chooser {
    /// A record below `count`, which is not 0.
    pub fn choose(&self, count: u64, random: &mut Random) -> u64 {
        match self {
            Chooser::Uniform => random.below(count),
            Chooser::ScrambledZipfian(gray) => fnv1a(gray.sample(random)).unsigned_abs() % count,
            Chooser::ZipfExact(zipf) => zipf.sample(count, random),
            Chooser::Latest(zipf) => count - 1 - zipf.sample(count, random),
        }
    }
}

pub const THETA: f64 = 0.99;

/// Zipf's law by the approximation of Gray et al., "Quickly generating billion-record synthetic databases" (1994), as YCSB
/// has it: over a fixed 10¹⁰ items, because their normalising sum is known and takes minutes to add up.
#[derive(Clone, Debug)]
pub struct Gray {
    items: f64,
    zeta: f64,
    eta: f64,
}

impl Gray {
    const ITEMS: f64 = 1e10;
    const ZETA: f64 = 26.46902820178302;

    pub fn ycsb() -> Gray {
        let zeta_of_two = 1.0 + 0.5f64.powf(THETA);
        let eta = (1.0 - (2.0 / Self::ITEMS).powf(1.0 - THETA)) / (1.0 - zeta_of_two / Self::ZETA);
        Gray { items: Self::ITEMS, zeta: Self::ZETA, eta }
    }

    fn sample(&self, random: &mut Random) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5f64.powf(THETA) {
            1
        } else {
            (self.items * (self.eta * unit - self.eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64
        }
    }
}

/// Zipf's law exactly, over any number of items and without summing them up: rejection-inversion, Hörmann and Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions" (1996).
#[derive(Clone, Debug)]
pub struct Zipf {
    exponent: f64,
    /// Below this distance from a rank every draw is accepted.
    sure: f64,
}

impl Zipf {
    pub fn new(exponent: f64) -> Zipf {
        let mut zipf = Zipf { exponent, sure: 0.0 };
        zipf.sure = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank below `items`, 0 being the likeliest.
    fn sample(&self, items: u64, random: &mut Random) -> u64 {
        let (low, high) = (self.integral(1.5) - 1.0, self.integral(items as f64 + 0.5));
        loop {
            let area = high + random.unit() * (low - high);
            let at = self.integral_inverse(area);
            let rank = at.round().clamp(1.0, items as f64);
            if rank - at <= self.sure || area >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn density(&self, at: f64) -> f64 {
        at.powf(-self.exponent)
    }

    fn integral(&self, at: f64) -> f64 {
        (at.powf(1.0 - self.exponent) - 1.0) / (1.0 - self.exponent)
    }

    fn integral_inverse(&self, area: f64) -> f64 {
        (1.0 + area * (1.0 - self.exponent)).powf(1.0 / (1.0 - self.exponent))
    }
}

/// The 64-bit FNV-1a hash of a number's eight little-endian bytes, as the signed number that YCSB makes of it.
pub fn fnv1a(number: u64) -> i64 {
    let hash = number
        .to_le_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    hash as i64
}

pub fn key_name(number: u64) -> String {
    format!("user{}", fnv1a(number).unsigned_abs())
}

/// SplitMix64: small, fast, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Streams of different (seed, stream) have nothing in common.
    pub fn new(seed: u64, stream: u64) -> Random {
        Random(mix(seed) ^ mix(!stream))
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How long a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    Constant(u32),
    /// Any length from `min` to `max`, all alike.
    Uniform {
        min: u32,
        max: u32,
    },
}

/// The fields of a record and their bytes.
///
/// ```text
/// record: fields u16 | (length u32 | field) …
/// field:  number of the write u64 | bytes that follow from key, place and that number …
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub fields: u32,
    pub length: Length,
}

impl Shape {
    /// The bytes that write `write` makes for a field.
    pub fn field(&self, key: u64, place: u32, write: u64) -> Vec<u8> {
        let mut random = Random::new(key ^ (u64::from(place) << 48), write);
        let length = match self.length {
            Length::Constant(bytes) => bytes,
            Length::Uniform { min, max } => min + random.below(u64::from(max - min) + 1) as u32,
        } as usize;
        assert!(length >= FIELD_BYTES_MIN as usize, "a field of {length} bytes cannot be verified");
        let mut bytes = Vec::with_capacity(length + 8);
        bytes.extend_from_slice(&write.to_le_bytes());
        while bytes.len() < length {
            bytes.extend_from_slice(&random.draw().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    /// A whole record, all fields made by one write.
    pub fn record(&self, key: u64, write: u64) -> Vec<u8> {
        encode(&(0..self.fields).map(|place| self.field(key, place, write)).collect::<Vec<_>>())
    }

    /// Whether each field of a record is what some write made for it.
    pub fn verify(&self, key: u64, record: &[u8]) -> bool {
        let Some(fields) = decode(record) else { return false };
        let is_own = |(place, field): (usize, &&[u8])| {
            let write = field.first_chunk().map(|number| u64::from_le_bytes(*number));
            write.is_some_and(|write| self.field(key, place as u32, write) == *field)
        };
        fields.len() == self.fields as usize && fields.iter().enumerate().all(is_own)
    }
}

pub fn encode(fields: &[impl AsRef<[u8]>]) -> Vec<u8> {
    assert!(fields.len() <= FIELDS_MAX as usize, "{} fields", fields.len());
    let mut record = (fields.len() as u16).to_le_bytes().to_vec();
    for field in fields.iter().map(AsRef::as_ref) {
        record.extend_from_slice(&(field.len() as u32).to_le_bytes());
        record.extend_from_slice(field);
    }
    record
}

/// None for what [`encode`] never makes.
pub fn decode(record: &[u8]) -> Option<Vec<&[u8]>> {
    let (count, mut rest) = record.split_first_chunk()?;
    let mut fields = Vec::new();
    for _ in 0..u16::from_le_bytes(*count) {
        let (length, after) = rest.split_first_chunk()?;
        let (field, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        fields.push(field);
        rest = after;
    }
    rest.is_empty().then_some(fields)
}

/// The record with one field replaced; none if there is no such field.
pub fn replace(record: &[u8], place: u32, field: &[u8]) -> Option<Vec<u8>> {
    let mut fields = decode(record)?;
    *fields.get_mut(place as usize)? = field;
    Some(encode(&fields))
}

/// Numbers the records that are inserted while others are read: a record may be chosen only once it and all before it
/// are known to be there.
#[derive(Debug)]
pub struct Inserted {
    next: AtomicU64,
    known: AtomicU64,
    early: Mutex<BTreeSet<u64>>,
}

impl Inserted {
    pub fn new(loaded: u64) -> Inserted {
        Inserted { next: AtomicU64::new(loaded), known: AtomicU64::new(loaded), early: Mutex::default() }
    }

    /// The first of `count` numbers that nobody had before.
    pub fn take(&self, count: u64) -> u64 {
        self.next.fetch_add(count, Ordering::Relaxed)
    }

    /// Record `number` is there, or was given up: a failed insert is counted, and must not hide those after it for ever.
    pub fn settle(&self, number: u64) {
        let mut early = self.early.lock().expect("no holder panics");
        early.insert(number);
        let mut known = self.known.load(Ordering::Relaxed);
        while early.remove(&known) {
            known += 1;
        }
        self.known.store(known, Ordering::Release);
    }

    /// How many records can be chosen from.
    pub fn count(&self) -> u64 {
        self.known.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_ycsb() {
        assert_eq!(key_name(0), "user6284781860667377211");
        assert_eq!(key_name(1), "user8517097267634966620");
        assert_eq!(key_name(16), "user7461223496605049899");
    }

    /// The share of the operations that the likeliest record gets.
    fn hottest(chooser: &Chooser, count: u64, likeliest: u64) -> f64 {
        const DRAWS: u32 = 200_000;
        let mut random = Random::new(1, 0);
        let hits = (0..DRAWS).filter(|_| chooser.choose(count, &mut random) == likeliest).count();
        hits as f64 / f64::from(DRAWS)
    }

    #[test]
    fn the_distributions_are_as_skewed_as_they_should_be() {
        let is_near = |share: f64, expected: f64| (share - expected).abs() < 0.002;
        let scrambled =
            hottest(&Chooser::ScrambledZipfian(Gray::ycsb()), 1_000_000_007, fnv1a(0).unsigned_abs() % 1_000_000_007);
        assert!(is_near(scrambled, 0.0378), "{scrambled}");
        let exact = hottest(&Chooser::ZipfExact(Zipf::new(THETA)), 10_000_000, 0);
        assert!(is_near(exact, 0.0554), "{exact}");
        let latest = hottest(&Chooser::Latest(Zipf::new(THETA)), 10_000_000, 9_999_999);
        assert!(is_near(latest, 0.0554), "{latest}");
        let uniform = hottest(&Chooser::Uniform, 10, 3);
        assert!((uniform - 0.1).abs() < 0.005, "{uniform}");
    }

    #[test]
    fn an_exact_zipf_follows_the_law_at_every_rank() {
        const DRAWS: u64 = 300_000;
        let zipf = Zipf::new(THETA);
        let zeta: f64 = (1..=20).map(|rank| f64::from(rank).powf(-THETA)).sum();
        let mut counts = [0u64; 20];
        let mut random = Random::new(7, 7);
        (0..DRAWS).for_each(|_| counts[zipf.sample(20, &mut random) as usize] += 1);
        for (rank, count) in counts.iter().enumerate() {
            let expected = (rank as f64 + 1.0).powf(-THETA) / zeta;
            let share = *count as f64 / DRAWS as f64;
            assert!((share - expected).abs() < 0.003, "rank {rank}: {share} and not {expected}");
        }
    }

    #[test]
    fn every_choice_is_a_record() {
        let mut random = Random::new(3, 3);
        let zipf = || Zipf::new(THETA);
        let choosers = [
            Chooser::Uniform,
            Chooser::ScrambledZipfian(Gray::ycsb()),
            Chooser::ZipfExact(zipf()),
            Chooser::Latest(zipf()),
        ];
        for chooser in choosers {
            for count in [1, 2, 3, 1000] {
                assert!((0..2000).all(|_| chooser.choose(count, &mut random) < count));
            }
        }
    }

    #[test]
    fn a_record_is_verified_field_by_field() {
        let shape = Shape { fields: 3, length: Length::Uniform { min: 50, max: 150 } };
        let record = shape.record(7, 1);
        assert!(shape.verify(7, &record));
        assert!(!shape.verify(8, &record), "another key's record");
        let updated = replace(&record, 1, &shape.field(7, 1, 99)).unwrap();
        assert!(shape.verify(7, &updated));
        assert!(!shape.verify(7, &replace(&record, 1, &shape.field(7, 2, 99)).unwrap()), "another field's bytes");
        assert_eq!(replace(&record, 3, b""), None);
        for at in 0..record.len() {
            let mut broken = record.clone();
            broken[at] ^= 1;
            assert!(!shape.verify(7, &broken), "bit flipped in byte {at}");
        }
        for end in 0..record.len() {
            assert!(!shape.verify(7, &record[..end]), "cut at {end}");
        }
    }

    #[test]
    fn lengths_are_within_their_bounds() {
        let shape = Shape { fields: 1, length: Length::Uniform { min: 50, max: 52 } };
        let lengths: BTreeSet<usize> = (0..100).map(|key| shape.field(key, 0, 0).len()).collect();
        assert_eq!(lengths, BTreeSet::from([50, 51, 52]));
        assert_eq!(Shape { fields: 1, length: Length::Constant(100) }.field(1, 0, 0).len(), 100);
    }

    #[test]
    fn a_record_is_chosen_only_when_all_before_it_are_there() {
        let inserted = Inserted::new(10);
        assert_eq!((inserted.take(1), inserted.take(2), inserted.take(1)), (10, 11, 13));
        inserted.settle(11);
        inserted.settle(13);
        assert_eq!(inserted.count(), 10);
        inserted.settle(10);
        assert_eq!(inserted.count(), 12);
        inserted.settle(12);
        assert_eq!(inserted.count(), 14);
    }
}

//! What is asked of the store: the workloads of YCSB and our presets.

use super::generator::{Chooser, Gray, Length, Random, Shape, THETA, Zipf};
use super::limits::{BATCH_RECORDS_MAX, FIELD_BYTES_MAX, FIELD_BYTES_MIN, FIELDS_MAX};
use super::report::Kind;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    pub name: &'static str,
    /// Records loaded before the run.
    pub records: u64,
    pub mix: Mix,
    pub distribution: Distribution,
    pub shape: Shape,
    /// Records that one operation is about.
    pub batch_records: u64,
}

/// Shares of the operations in per cent; they add up to 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    pub read: u8,
    pub update: u8,
    pub insert: u8,
    pub read_modify_write: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    Uniform,
    Zipfian,
    ZipfExact,
    Latest,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    #[error(
        "workload e scans ranges in the order of keys, and ordered scans are not available yet; a, b, c, d and f are"
    )]
    ScansUnavailable,
    #[error("no workload {0:?}; there are {names}", names = NAMES.join(", "))]
    UnknownWorkload(String),
    #[error("no distribution {0:?}; there are uniform, zipfian, zipf-exact, latest")]
    UnknownDistribution(String),
    #[error("{0}")]
    Invalid(String),
}

/// What [`Workload::named`] knows.
pub const NAMES: &[&str] = &["a", "b", "c", "d", "f", "atalanta-1col", "atalanta-batch"];

impl Workload {
    /// `a` to `f` are the core workloads of YCSB, with or without `workload` before the letter.
    pub fn named(name: &str) -> Result<Workload, WorkloadError> {
        let lower = name.to_ascii_lowercase();
        let mix = |read, update, insert, read_modify_write| Mix { read, update, insert, read_modify_write };
        Ok(match lower.strip_prefix("workload").unwrap_or(&lower) {
            "a" => core("a", mix(50, 50, 0, 0), Distribution::Zipfian),
            "b" => core("b", mix(95, 5, 0, 0), Distribution::Zipfian),
            "c" => core("c", mix(100, 0, 0, 0), Distribution::Zipfian),
            "d" => core("d", mix(95, 0, 5, 0), Distribution::Latest),
            "e" => return Err(WorkloadError::ScansUnavailable),
            "f" => core("f", mix(50, 0, 0, 50), Distribution::Zipfian),
            "atalanta-1col" => atalanta("atalanta-1col", 1),
            "atalanta-batch" => atalanta("atalanta-batch", 1000),
            _ => return Err(WorkloadError::UnknownWorkload(name.to_owned())),
        })
    }

    /// Refuses what cannot be run.
    pub fn validate(&self) -> Result<(), WorkloadError> {
        let refuse = |what: String| Err(WorkloadError::Invalid(what));
        let Mix { read, update, insert, read_modify_write } = self.mix;
        let sum = u32::from(read) + u32::from(update) + u32::from(insert) + u32::from(read_modify_write);
        if sum != 100 {
            return refuse(format!("the shares of the operations add up to {sum} and not to 100 per cent"));
        }
        if self.records == 0 {
            return refuse("there are no records to choose from".into());
        }
        if !(1..=BATCH_RECORDS_MAX).contains(&self.batch_records) {
            return refuse(format!("a batch has 1 to {BATCH_RECORDS_MAX} records, not {}", self.batch_records));
        }
        if !(1..=FIELDS_MAX).contains(&self.shape.fields) {
            return refuse(format!("a record has 1 to {FIELDS_MAX} fields, not {}", self.shape.fields));
        }
        let (min, max) = match self.shape.length {
            Length::Constant(bytes) => (bytes, bytes),
            Length::Uniform { min, max } => (min, max),
        };
        if !(FIELD_BYTES_MIN <= min && min <= max && max <= FIELD_BYTES_MAX) {
            return refuse(format!("a field has {FIELD_BYTES_MIN} to {FIELD_BYTES_MAX} bytes, not {min} to {max}"));
        }
        Ok(())
    }

    pub fn chooser(&self) -> Chooser {
        match self.distribution {
            Distribution::Uniform => Chooser::Uniform,
            Distribution::Zipfian => Chooser::ScrambledZipfian(Gray::ycsb()),
            Distribution::ZipfExact => Chooser::ZipfExact(Zipf::new(THETA)),
            Distribution::Latest => Chooser::Latest(Zipf::new(THETA)),
        }
    }
}

fn core(name: &'static str, mix: Mix, distribution: Distribution) -> Workload {
    let shape = Shape { fields: 10, length: Length::Constant(100) };
    Workload { name, records: 1000, mix, distribution, shape, batch_records: 1 }
}

/// AtalantaDB's published benchmark: one column of 50 to 150 bytes, any record as likely as any other.
fn atalanta(name: &'static str, batch_records: u64) -> Workload {
    let mix = Mix { read: 50, update: 50, ..Mix::default() };
    let shape = Shape { fields: 1, length: Length::Uniform { min: 50, max: 150 } };
    Workload { name, records: 1_000_000, mix, distribution: Distribution::Uniform, shape, batch_records }
}

impl Mix {
    /// The kind of the next operation.
    pub fn choose(&self, random: &mut Random) -> Kind {
        let draw = random.below(100) as u8;
        let kinds = [(self.read, Kind::Read), (self.update, Kind::Update), (self.insert, Kind::Insert)];
        let mut end = 0;
        for (share, kind) in kinds {
            end += share;
            if draw < end {
                return kind;
            }
        }
        Kind::ReadModifyWrite
    }
}

impl std::str::FromStr for Distribution {
    type Err = WorkloadError;

    fn from_str(name: &str) -> Result<Distribution, WorkloadError> {
        match name {
            "uniform" => Ok(Distribution::Uniform),
            "zipfian" => Ok(Distribution::Zipfian),
            "zipf-exact" => Ok(Distribution::ZipfExact),
            "latest" => Ok(Distribution::Latest),
            _ => Err(WorkloadError::UnknownDistribution(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_workload_is_valid_and_draws_its_mix() {
        for name in NAMES {
            let workload = Workload::named(name).unwrap();
            assert_eq!(workload.name, *name);
            workload.validate().unwrap();
            let mut random = Random::new(1, 1);
            let draws: Vec<Kind> = (0..20_000).map(|_| workload.mix.choose(&mut random)).collect();
            let share = |kind| draws.iter().filter(|draw| **draw == kind).count() as f64 / 200.0;
            let Mix { read, update, insert, read_modify_write } = workload.mix;
            for (kind, expected) in [
                (Kind::Read, read),
                (Kind::Update, update),
                (Kind::Insert, insert),
                (Kind::ReadModifyWrite, read_modify_write),
            ] {
                assert!((share(kind) - f64::from(expected)).abs() < 1.5, "{name}: {kind:?} {}", share(kind));
            }
        }
        assert_eq!(Workload::named("workloadD"), Workload::named("d"));
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_the_reason() {
        let error = Workload::named("E").unwrap_err();
        assert!(error.to_string().contains("ordered scans are not available yet"), "{error}");
        let error = Workload::named("z").unwrap_err();
        assert!(error.to_string().contains("atalanta-batch"), "{error}");
        let broken = |change: fn(&mut Workload)| {
            let mut workload = Workload::named("a").unwrap();
            change(&mut workload);
            workload.validate().is_err()
        };
        assert!(broken(|workload| workload.mix.read = 51));
        assert!(broken(|workload| workload.records = 0));
        assert!(broken(|workload| workload.batch_records = 0));
        assert!(broken(|workload| workload.shape.length = Length::Constant(7)));
        assert!(broken(|workload| workload.shape.length = Length::Uniform { min: 20, max: 10 }));
        assert!("zipf".parse::<Distribution>().is_err());
    }
}

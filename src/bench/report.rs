//! What happened: counts, latencies, failures; as YCSB's text, as a table, as JSON.

use super::limits::LATENCY_DIGITS;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The sum of what the workers saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub runtime: Duration,
    series: BTreeMap<Kind, Series>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Read,
    Update,
    Insert,
    ReadModifyWrite,
}

/// How an operation ended; only `Ok` is a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    Ok,
    /// A record that was loaded is not there.
    NotFound,
    /// A record is there and is not what was written.
    Unexpected,
    Unavailable,
    /// It may have been done or not.
    Unknown,
    Error,
}

/// Latencies in nanoseconds. What failed is kept apart, so that quick refusals do not make a store look fast.
#[derive(Clone, Debug)]
struct Series {
    succeeded: Histogram<u64>,
    failed: Histogram<u64>,
    returns: BTreeMap<Status, u64>,
    /// Records that successful operations were about.
    records: u64,
}

impl Report {
    pub fn record(&mut self, kind: Kind, status: Status, records: u64, latency: Duration) {
        let series = self.series.entry(kind).or_default();
        *series.returns.entry(status).or_default() += 1;
        let histogram = match status {
            Status::Ok => &mut series.succeeded,
            _ => &mut series.failed,
        };
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).clamp(1, LATENCY_MAX_NS);
        histogram.record(nanos).expect("the histogram grows as needed");
        if status == Status::Ok {
            series.records += records;
        }
    }

    /// Adds what another worker of the same run saw.
    pub fn merge(&mut self, other: &Report) {
        self.runtime = self.runtime.max(other.runtime);
        for (kind, theirs) in &other.series {
            let ours = self.series.entry(*kind).or_default();
            ours.succeeded.add(&theirs.succeeded).expect("the histogram grows as needed");
            ours.failed.add(&theirs.failed).expect("the histogram grows as needed");
            ours.records += theirs.records;
            theirs.returns.iter().for_each(|(status, count)| *ours.returns.entry(*status).or_default() += count);
        }
    }

    pub fn count(&self, kind: Kind, status: Status) -> u64 {
        self.series.get(&kind).and_then(|series| series.returns.get(&status)).copied().unwrap_or(0)
    }

    pub fn operations(&self) -> u64 {
        self.series.values().map(|series| series.succeeded.len() + series.failed.len()).sum()
    }

    pub fn failures(&self) -> u64 {
        self.series.values().map(|series| series.failed.len()).sum()
    }

    pub fn records(&self) -> u64 {
        self.series.values().map(|series| series.records).sum()
    }

    /// The latency that the given share of the successful operations did not exceed; none if there were none.
    pub fn latency(&self, kind: Kind, percentile: f64) -> Option<Duration> {
        let succeeded = &self.series.get(&kind)?.succeeded;
        (!succeeded.is_empty()).then(|| Duration::from_nanos(succeeded.value_at_percentile(percentile)))
    }

    /// The lines that YCSB prints, for scripts that read those.
    pub fn ycsb(&self) -> String {
        let mut text = String::new();
        let mut line = |section: &str, name: &str, value: &dyn std::fmt::Display| {
            writeln!(text, "[{section}], {name}, {value}").expect("writing to a string cannot fail");
        };
        line("OVERALL", "RunTime(ms)", &self.runtime.as_millis());
        line("OVERALL", "Throughput(ops/sec)", &self.per_second(self.succeeded()));
        if self.records() != self.succeeded() {
            line("OVERALL", "Throughput(records/sec)", &self.per_second(self.records()));
        }
        for (kind, series) in &self.series {
            let failed = format!("{}-FAILED", kind.name());
            for (section, histogram) in [(kind.name(), &series.succeeded), (&failed, &series.failed)] {
                if histogram.is_empty() {
                    continue;
                }
                line(section, "Operations", &histogram.len());
                line(section, "AverageLatency(us)", &(histogram.mean() / 1000.0));
                line(section, "MinLatency(us)", &(histogram.min() / 1000));
                line(section, "MaxLatency(us)", &(histogram.max() / 1000));
                for (percentile, name) in PERCENTILES {
                    let micros = histogram.value_at_percentile(*percentile) / 1000;
                    line(section, &format!("{name}PercentileLatency(us)"), &micros);
                }
            }
            for (status, count) in &series.returns {
                line(kind.name(), &format!("Return={}", status.name()), count);
            }
        }
        text
    }

    /// For people. Latencies are of the successful operations.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:.3} s, {:.0} operations/s, {:.0} records/s, {} failed\n{:<18}",
            self.runtime.as_secs_f64(),
            self.per_second(self.succeeded()),
            self.per_second(self.records()),
            self.failures(),
            "",
        );
        for column in ["operations", "failed", "mean us", "p50", "p95", "p99", "p99.9", "max"] {
            write!(text, "{column:>12}").expect("writing to a string cannot fail");
        }
        text.push('\n');
        for (kind, series) in &self.series {
            let succeeded = &series.succeeded;
            write!(text, "{:<18}{:>12}{:>12}", kind.name(), succeeded.len(), series.failed.len())
                .expect("writing to a string cannot fail");
            let percentiles =
                PERCENTILES.iter().map(|(percentile, _)| succeeded.value_at_percentile(*percentile) as f64);
            for nanos in std::iter::once(succeeded.mean()).chain(percentiles).chain([succeeded.max() as f64]) {
                write!(text, "{:>12.0}", nanos / 1000.0).expect("writing to a string cannot fail");
            }
            text.push('\n');
        }
        text
    }

    pub fn json(&self) -> Value {
        let series = self.series.iter().map(|(kind, series)| (kind.name().to_owned(), series.json()));
        json!({
            "runtime_ms": self.runtime.as_millis() as u64,
            "operations": self.operations(),
            "failed": self.failures(),
            "records": self.records(),
            "operations_per_second": self.per_second(self.succeeded()),
            "records_per_second": self.per_second(self.records()),
            "series": Value::Object(series.collect()),
        })
    }

    fn succeeded(&self) -> u64 {
        self.operations() - self.failures()
    }

    fn per_second(&self, count: u64) -> f64 {
        let seconds = self.runtime.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }
}

/// A latency beyond this counts as this: a day.
const LATENCY_MAX_NS: u64 = 24 * 3600 * 1_000_000_000;

/// With the ordinals that YCSB prints.
const PERCENTILES: &[(f64, &str)] = &[(50.0, "50th"), (95.0, "95th"), (99.0, "99th"), (99.9, "99.9")];

impl Default for Series {
    fn default() -> Series {
        let empty = || Histogram::new(LATENCY_DIGITS).expect("a legal number of digits");
        Series { succeeded: empty(), failed: empty(), returns: BTreeMap::new(), records: 0 }
    }
}

impl Series {
    fn json(&self) -> Value {
        let returns: Map<String, Value> =
            self.returns.iter().map(|(status, count)| (status.name().to_owned(), json!(count))).collect();
        json!({ "records": self.records, "returns": returns, "ok": latencies(&self.succeeded), "failed": latencies(&self.failed) })
    }
}

fn latencies(histogram: &Histogram<u64>) -> Value {
    if histogram.is_empty() {
        return json!({ "operations": 0 });
    }
    let at = |percentile| histogram.value_at_percentile(percentile);
    json!({
        "operations": histogram.len(),
        "mean_ns": histogram.mean(),
        "min_ns": histogram.min(),
        "p50_ns": at(50.0),
        "p95_ns": at(95.0),
        "p99_ns": at(99.0),
        "p999_ns": at(99.9),
        "max_ns": histogram.max(),
    })
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "READ",
            Kind::Update => "UPDATE",
            Kind::Insert => "INSERT",
            Kind::ReadModifyWrite => "READ-MODIFY-WRITE",
        }
    }
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "OK",
            Status::NotFound => "NOT_FOUND",
            Status::Unexpected => "UNEXPECTED_STATE",
            Status::Unavailable => "SERVICE_UNAVAILABLE",
            Status::Unknown => "UNKNOWN",
            Status::Error => "ERROR",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Report {
        let mut report = Report { runtime: Duration::from_millis(2000), ..Report::default() };
        for micros in 1..=1000 {
            report.record(Kind::Read, Status::Ok, 1, Duration::from_micros(micros));
        }
        report.record(Kind::Read, Status::NotFound, 1, Duration::from_micros(3));
        report
    }

    #[test]
    fn the_text_is_that_of_ycsb() {
        let expected = "\
[OVERALL], RunTime(ms), 2000
[OVERALL], Throughput(ops/sec), 500
[READ], Operations, 1000
[READ], AverageLatency(us), 500.5
[READ], MinLatency(us), 1
[READ], MaxLatency(us), 1000
[READ], 50thPercentileLatency(us), 500
[READ], 95thPercentileLatency(us), 950
[READ], 99thPercentileLatency(us), 990
[READ], 99.9PercentileLatency(us), 999
[READ-FAILED], Operations, 1
[READ-FAILED], AverageLatency(us), 3
[READ-FAILED], MinLatency(us), 3
[READ-FAILED], MaxLatency(us), 3
[READ-FAILED], 50thPercentileLatency(us), 3
[READ-FAILED], 95thPercentileLatency(us), 3
[READ-FAILED], 99thPercentileLatency(us), 3
[READ-FAILED], 99.9PercentileLatency(us), 3
[READ], Return=OK, 1000
[READ], Return=NOT_FOUND, 1
";
        // The histogram keeps three digits, so its values are that exact and no more.
        let split =
            |line: &str| line.rsplit_once(", ").map(|(name, value)| (name.to_owned(), value.parse::<f64>().unwrap()));
        let text = sample().ycsb();
        assert_eq!(text.lines().count(), expected.lines().count(), "{text}");
        for (line, expected) in text.lines().zip(expected.lines()) {
            let ((name, value), (expected_name, expected_value)) = (split(line).unwrap(), split(expected).unwrap());
            assert_eq!(name, expected_name);
            assert!((value - expected_value).abs() <= expected_value * 0.002, "{line} and not {expected}");
        }
    }

    #[test]
    fn a_failure_is_counted_and_does_not_make_the_store_faster() {
        let report = sample();
        assert_eq!((report.operations(), report.failures(), report.records()), (1001, 1, 1000));
        assert_eq!(report.count(Kind::Read, Status::NotFound), 1);
        let json = report.json();
        assert_eq!(json["operations_per_second"], json!(500.0));
        assert_eq!(json["series"]["READ"]["returns"], json!({ "OK": 1000, "NOT_FOUND": 1 }));
        assert!(report.table().contains("1 failed"));
    }

    #[test]
    fn workers_add_up() {
        let mut sum = sample();
        let mut other = sample();
        other.runtime = Duration::from_millis(3000);
        other.record(Kind::Insert, Status::Ok, 500, Duration::MAX);
        sum.merge(&other);
        assert_eq!((sum.operations(), sum.failures(), sum.records()), (2003, 2, 2500));
        assert_eq!(sum.runtime, Duration::from_millis(3000));
        assert_eq!(sum.latency(Kind::Insert, 50.0).unwrap().as_secs() / 3600, 24);
        assert_eq!(sum.latency(Kind::Update, 50.0), None);
        assert!(sum.ycsb().contains("[OVERALL], Throughput(records/sec), "));
    }
}

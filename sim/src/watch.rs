//! What a run hears of itself while it goes on: the probes of the replicas and masters, and every line that should not
//! be there.
//!
//! Probes are tracing events with target `probe`. Each is heard at once, on the run's own thread, with the node it comes
//! from and the true time, and is handed to the invariants.

use crate::invariant::{Invariants, Probe};
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// True time of a run, as its harness last saw it: all that happens in one step has the time at which the step began.
#[derive(Clone, Default)]
pub struct TrueTime {
    ns: Arc<AtomicU64>,
}

impl TrueTime {
    pub fn set(&self, now: std::time::Duration) {
        self.ns.store(now.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn ns(&self) -> u64 {
        self.ns.load(Ordering::Relaxed)
    }

    pub fn ms(&self) -> u64 {
        self.ns() / 1_000_000
    }
}

/// The subscriber of one run.
#[derive(Clone)]
pub struct Watch {
    time: TrueTime,
    invariants: Arc<Mutex<Invariants>>,
    /// Print lines of this level and above.
    print: Option<Level>,
}

impl Watch {
    pub fn new(time: TrueTime, print: Option<Level>) -> Watch {
        Watch { time, invariants: Arc::default(), print }
    }

    pub fn invariants(&self) -> std::sync::MutexGuard<'_, Invariants> {
        self.invariants.lock().expect("the invariants do not panic")
    }

    fn print(&self, event: &Event<'_>, fields: &Fields) {
        let (ms, metadata) = (self.time.ms(), event.metadata());
        let mut line = format!("{:>4}.{:03} {:<9} {:<5} ", ms / 1000, ms % 1000, node(), metadata.level());
        if metadata.target() != "probe" {
            let _ = write!(line, "{}: ", metadata.target());
        }
        eprintln!("{line}{}", fields.text);
    }
}

fn node() -> String {
    env::Env::try_current().map_or_else(|| "-".to_owned(), |env| env.node().to_owned())
}

/// Ours; what openraft thinks worth an error under faults is its own business.
fn is_ours(target: &str) -> bool {
    ["steadfast", "storage", "env", "sim"].iter().any(|krate| target.split("::").next() == Some(krate))
}

impl Subscriber for Watch {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && (metadata.target() == "probe"
                || (*metadata.level() == Level::ERROR && is_ours(metadata.target()))
                || (is_ours(metadata.target()) && self.print.is_some_and(|level| *metadata.level() <= level)))
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if self.print.is_some() {
            self.print(event, &fields);
        }
        let now_ms = self.time.ms();
        if event.metadata().target() == "probe" {
            let probe =
                Probe { at_ms: now_ms, node: node(), name: fields.name, numbers: fields.numbers, texts: fields.texts };
            self.invariants().heard(&probe);
        } else if *event.metadata().level() == Level::ERROR && is_ours(event.metadata().target()) {
            let line = format!("{}: {}", node(), fields.text);
            self.invariants().error_line(now_ms, line);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields {
    name: String,
    numbers: BTreeMap<&'static str, u64>,
    texts: BTreeMap<&'static str, String>,
    text: String,
}

impl Fields {
    fn show(&mut self, field: &Field, value: &dyn Debug) {
        let space = if self.text.is_empty() { "" } else { " " };
        let _ = match field.name() {
            "message" => write!(self.text, "{space}{value:?}"),
            name => write!(self.text, "{space}{name}={value:?}"),
        };
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.numbers.insert(field.name(), value);
        self.show(field, &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "name" {
            self.name = value.to_owned();
        } else {
            self.texts.insert(field.name(), value.to_owned());
        }
        self.show(field, &value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.texts.insert(field.name(), format!("{value:?}"));
        self.show(field, value);
    }
}

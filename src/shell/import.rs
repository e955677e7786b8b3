//! `steadfast import`: a file's records into a table.
//!
//! A record's life: a thread reads and parses lines into chunks ([`read`]); the main task deals their records to lanes by
//! a hash of the key; a lane gathers a batch and writes it, which the client tries for as long as `--patience` allows. A
//! lane has one batch on its way, so of two lines with one key the later wins, while the lanes together keep the cluster
//! busy. Everything between the thread and the lanes is bounded, so the file's size does not matter. With `--check` a lane
//! reads its batch by key instead, and compares.
//!
//! Each record is put, so an import that stopped, at whatever line, is simply run again.
//!
//! Missing on purpose: a note of how far an import came. It would save the repetition of what was written, and would have
//! to be kept, found and believed.

mod lane;
mod read;
mod report;

use crate::client::Table;
use crate::shell::args::Import;
use crate::shell::cluster;
use crate::shell::failure::Failure;
use crate::shell::limits::{IMPORT_IDLE_TIME, IMPORT_SILENCE_SHOWN, PROGRESS_INTERVAL};
use crate::shell::output::{count, print_json, size};
use crate::shell::progress::{Progress, State, Total};
use crate::shell::records::Record;
use env::{Elapsed, Env, Instant};
use lane::Lanes;
use report::Report;
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A record and the line it came from.
#[derive(Clone, Debug)]
struct Numbered {
    line: u64,
    record: Record,
}

/// What the parts of one import share.
struct Shared {
    env: Env,
    table: Table,
    check: bool,
    progress: Progress,
    totals: Mutex<Totals>,
    report: Mutex<Report>,
}

#[derive(Default)]
struct Totals {
    shown: State,
    /// The longest that one batch took from its first sending to its acknowledgement.
    longest_wait: Duration,
    last_written: Option<Instant>,
    /// Why the import stops early; the first reason counts.
    stopped: Option<Failure>,
}

#[derive(Serialize)]
struct Summary {
    records: u64,
    bytes: u64,
    lines_in_error: u64,
    seconds: f64,
    longest_wait_ms: u64,
}

pub async fn run(env: &Env, command: &Import) -> Result<(), Failure> {
    let client = cluster::connect(env, &command.connection).await?;
    // A table that is not there is better told before anything is read.
    client.describe_table(command.table.clone()).await?;
    let table = client.table(command.table.clone()).with_call_time(command.patience);
    let input = read::Input::open(command.file.as_deref(), command.format)?;
    let shared = Arc::new(Shared {
        env: env.clone(),
        table,
        check: command.check,
        progress: Progress::new(env, "records", Total::Bytes(input.len)),
        totals: Mutex::default(),
        report: Mutex::new(Report::new(command.errors_max, command.errors_file.as_deref())?),
    });
    let ticking = env.spawn("show progress", show(shared.clone()));
    let imported = import(&shared, input).await;
    ticking.abort();
    shared.progress.end();
    let reported = shared.report().finish();
    imported?;
    reported?;
    shared.summarize(command.output.json)?;
    let errors = shared.totals().shown.errors;
    match command.check && errors > 0 {
        true => Err(Failure::Failed(format!("{} not in the table as the file has them", count(errors, "line")))),
        false => Ok(()),
    }
}

async fn show(shared: Arc<Shared>) {
    loop {
        shared.env.sleep(PROGRESS_INTERVAL).await;
        shared.progress.show(&shared.state());
    }
}

async fn import(shared: &Arc<Shared>, input: read::Input) -> Result<(), Failure> {
    let mut chunks = read::start(&shared.env, input);
    let mut lanes = Lanes::start(shared);
    loop {
        let chunk = match shared.env.timeout(IMPORT_IDLE_TIME, chunks.recv()).await {
            // The input is a slow pipe: what has come of it does not wait for more.
            Err(Elapsed) => {
                lanes.flush().await;
                chunks.recv().await
            }
            Ok(chunk) => chunk,
        };
        let Some(chunk) = chunk.transpose()? else { break };
        for wrong in &chunk.wrong {
            shared.wrong_line(wrong.line, &wrong.why, &wrong.content);
        }
        for numbered in chunk.records {
            lanes.give(numbered).await;
        }
        shared.totals().shown.bytes = chunk.bytes;
        if shared.is_stopped() {
            break;
        }
    }
    lanes.finish().await;
    match shared.totals().stopped.take() {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

impl Shared {
    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().expect("nothing panics under this lock")
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().expect("nothing panics under this lock")
    }

    fn is_stopped(&self) -> bool {
        self.totals().stopped.is_some()
    }

    fn stop(&self, failure: Failure) {
        self.totals().stopped.get_or_insert(failure);
    }

    fn state(&self) -> State {
        let totals = self.totals();
        let silence = totals.last_written.map(|last| self.env.now().since(last));
        let waiting = silence.filter(|silence| *silence > IMPORT_SILENCE_SHOWN);
        let waiting = waiting.map(|silence| format!("no answer for {} s", silence.as_secs()));
        State { waiting, ..totals.shown.clone() }
    }

    fn wrote(&self, records: u64, wait: Duration) {
        let mut totals = self.totals();
        totals.shown.count += records;
        totals.longest_wait = totals.longest_wait.max(wait);
        totals.last_written = Some(self.env.now());
    }

    /// Counts and reports a line in error, and stops the import when there were too many.
    fn wrong_line(&self, line: u64, why: &str, content: &[u8]) {
        let added = self.report().add(line, why, content);
        let shown = match added {
            Ok(added) => added,
            Err(error) => return self.stop(error.into()),
        };
        self.totals().shown.errors = shown.errors;
        if let Some(note) = shown.note {
            self.progress.note(&note);
        }
        if shown.too_many {
            self.stop(Failure::Failed(format!(
                "stopped after {} in error (--errors-max allows {}), at line {line}",
                count(shown.errors, "line"),
                shown.errors - 1
            )));
        }
    }

    fn summarize(&self, json: bool) -> Result<(), Failure> {
        let totals = self.totals();
        let State { count: records, bytes, errors, .. } = totals.shown;
        let elapsed = self.progress.elapsed();
        let wait = totals.longest_wait;
        self.progress.note(&format!(
            "{} {} ({}) in {:.1} s, {}/s, longest wait {:.1} s; {} in error",
            if self.check { "checked" } else { "imported" },
            count(records, "record"),
            size(bytes),
            elapsed.as_secs_f64(),
            self.progress.rate(records),
            wait.as_secs_f64(),
            count(errors, "line")
        ));
        if json {
            print_json(&Summary {
                records,
                bytes,
                lines_in_error: errors,
                seconds: elapsed.as_secs_f64(),
                longest_wait_ms: wait.as_millis() as u64,
            })?;
        }
        Ok(())
    }
}

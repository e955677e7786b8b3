//! `steadfast bench`: the workloads of YCSB against a table of the cluster.

use crate::bench::runner::{Loaded, Runner};
use crate::bench::workload::WorkloadError;
use crate::bench::{Failure as Missed, Options, Report, Target, Workload};
use crate::client::{Client, ClientError, Table, WriteError};
use crate::region::{Salt, TableSpec, even_splits};
use crate::shell::args::{Bench, Ycsb, YcsbLoad, YcsbOutput, YcsbRun, YcsbWorkload};
use crate::shell::cluster;
use crate::shell::failure::Failure;
use crate::shell::limits::PROGRESS_INTERVAL;
use crate::shell::output::{count, print, print_json};
use crate::shell::progress::{Progress, State, Total};
use bytes::Bytes;
use env::{BoxFuture, Env};
use serde_json::json;
use std::sync::Arc;

pub async fn run(env: &Env, command: &Bench) -> Result<(), Failure> {
    let Bench::Ycsb(command) = command;
    match command {
        Ycsb::Load(command) => load(env, command).await,
        Ycsb::Run(command) => run_workload(env, command).await,
    }
}

async fn load(env: &Env, command: &YcsbLoad) -> Result<(), Failure> {
    let workload = command.workload.build()?;
    let client = cluster::connect(env, &command.connection).await?;
    create_if_missing(&client, command).await?;
    let runner = runner(env, &client, &command.workload, workload.clone());
    let options = command.workload.options();
    let batches = workload.records.div_ceil(workload.batch_records);
    let report = with_progress(env, &runner, Some(batches), runner.load(&options)).await.map_err(Failure::failed)?;
    let loaded = runner.verify(&options).await.map_err(Failure::failed)?;
    command.output.print(&report, Some(&loaded))?;
    if !loaded.is_complete() {
        let examples = loaded.examples.join(", ");
        return Err(Failure::Failed(format!(
            "{} of {} records are there; missing or wrong: {examples}",
            loaded.found, loaded.expected
        )));
    }
    fail_on_failures(&report)
}

async fn run_workload(env: &Env, command: &YcsbRun) -> Result<(), Failure> {
    let workload = command.workload.build()?;
    let client = cluster::connect(env, &command.connection).await?;
    client.describe_table(command.workload.table.clone()).await?;
    let runner = runner(env, &client, &command.workload, workload);
    let options = Options {
        operations: command.operations.unwrap_or(if command.duration.is_some() { u64::MAX } else { 1000 }),
        duration: command.duration,
        ..command.workload.options()
    };
    let total = command.duration.is_none().then_some(options.operations);
    let report = with_progress(env, &runner, total, runner.run(&options)).await.map_err(Failure::failed)?;
    command.output.print(&report, None)?;
    fail_on_failures(&report)
}

fn fail_on_failures(report: &Report) -> Result<(), Failure> {
    match report.failures() {
        0 => Ok(()),
        failures => Err(Failure::Failed(format!("{} failed", count(failures, "operation")))),
    }
}

fn runner(env: &Env, client: &Client, flags: &YcsbWorkload, workload: Workload) -> Runner {
    Runner::new(env.clone(), Arc::new(TableTarget(client.table(flags.table.clone()))), workload)
}

async fn create_if_missing(client: &Client, command: &YcsbLoad) -> Result<(), Failure> {
    let name = &command.workload.table;
    match client.describe_table(name.clone()).await {
        Err(ClientError::NotFound(_)) => {}
        there => return there.map(drop).map_err(Failure::from),
    }
    let spec =
        TableSpec { durability: command.durability.into(), salt: Some(Salt::Xxh32), ..TableSpec::new(command.factor) };
    Ok(client.create_table(name.clone(), spec, even_splits(command.regions)).await?)
}

async fn with_progress<T>(env: &Env, runner: &Runner, total: Option<u64>, work: impl Future<Output = T>) -> T {
    let progress = Progress::new(env, "operations", Total::Count(total));
    let show = async {
        loop {
            env.sleep(PROGRESS_INTERVAL).await;
            progress.show(&State { count: runner.ended(), ..State::default() });
        }
    };
    let done = tokio::select! {
        biased;
        done = work => done,
        () = show => unreachable!("it shows for ever"),
    };
    progress.end();
    done
}

impl YcsbWorkload {
    fn build(&self) -> Result<Workload, Failure> {
        let mut workload = self.workload.clone();
        workload.records = self.records.unwrap_or(workload.records);
        workload.batch_records = self.batch.unwrap_or(workload.batch_records);
        workload.distribution = self.distribution.unwrap_or(workload.distribution);
        workload.validate().map_err(|error: WorkloadError| Failure::usage(error))?;
        Ok(workload)
    }

    fn options(&self) -> Options {
        Options {
            workers: self.workers,
            per_second: self.rate.map(f64::from),
            operations: u64::MAX,
            duration: None,
            seed: self.seed,
        }
    }
}

impl YcsbOutput {
    fn print(&self, report: &Report, loaded: Option<&Loaded>) -> Result<(), Failure> {
        if self.json {
            let mut value = report.json();
            if let Some(loaded) = loaded {
                value["verified"] = json!({ "expected": loaded.expected, "found": loaded.found });
            }
            return Ok(print_json(&value)?);
        }
        print(if self.ycsb { report.ycsb() } else { report.table() })?;
        match loaded {
            Some(loaded) if !self.ycsb => {
                Ok(print(format_args!("{} of {} records verified\n", loaded.found, loaded.expected))?)
            }
            _ => Ok(()),
        }
    }
}

/// A table under test.
struct TableTarget(Table);

impl Target for TableTarget {
    fn read(&self, key: Bytes) -> BoxFuture<'_, Result<Option<Bytes>, Missed>> {
        Box::pin(async move { self.0.get(key).await.map_err(missed_read) })
    }

    fn put(&self, key: Bytes, record: Bytes) -> BoxFuture<'_, Result<(), Missed>> {
        Box::pin(async move { self.0.put(key, record).await.map_err(missed_write) })
    }

    fn read_batch(&self, keys: Vec<Bytes>) -> BoxFuture<'_, Result<Vec<Option<Bytes>>, Missed>> {
        Box::pin(async move { self.0.batch_get(keys).await.map_err(missed_read) })
    }

    fn put_batch(&self, records: Vec<(Bytes, Bytes)>) -> BoxFuture<'_, Result<(), Missed>> {
        Box::pin(async move {
            let results = self.0.batch_put(records).await;
            results.into_iter().collect::<Result<(), _>>().map_err(missed_write)
        })
    }
}

fn missed_read(error: ClientError) -> Missed {
    match error {
        ClientError::Unavailable(_) => Missed::Unavailable,
        other => Missed::Other(other.to_string()),
    }
}

fn missed_write(error: WriteError) -> Missed {
    match error {
        WriteError::NotDone(reason) => missed_read(reason),
        WriteError::Unknown(_) => Missed::Unknown,
    }
}

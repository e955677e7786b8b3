//! One server asked through the native protocol, as clients ask it: processor time of the server for each record.
//!
//! The server is a process of its own, this program again (`native-server`); its time is what the system counts for it, so
//! that the load of this process, and of others, does not show in it.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use bytes::Bytes;
use env::Env;
use env::real::stopwatch;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use steadfast::client::{Client, Options, Table};
use steadfast::region::{Durability, Salt, TableName, TableSpec, even_splits};

/// What the hidden command of the server process is called.
pub const SERVER: &str = "native-server";
const CONNECTIONS: u64 = 50;
const BATCH: u64 = 1000;
const VALUE_BYTES: usize = 100;
const REGIONS: u32 = 4;
const PORT_BASE: u16 = 17_900;
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// Runs the server until it is killed.
pub fn serve(folder: &Path) -> ExitCode {
    let folder = folder.to_string_lossy().into_owned();
    let ready = ready_file(Path::new(&folder)).to_string_lossy().into_owned();
    let port = PORT_BASE.to_string();
    let flags =
        ["--data-dir", &folder, "--servers", "1", "--masters", "1", "--port-base", &port, "--ready-file", &ready];
    steadfast::shell::main_with(["steadfast", "dev"].iter().chain(&flags))
}

fn ready_file(folder: &Path) -> PathBuf {
    folder.with_extension("ready")
}

struct Server {
    process: Child,
    folder: PathBuf,
}

impl Server {
    fn start(folder: PathBuf) -> Result<Server, Box<dyn Error>> {
        let _ = fs::remove_dir_all(&folder);
        let _ = fs::remove_file(ready_file(&folder));
        let program = std::env::current_exe()?;
        let process = Command::new(program).arg("--folder").arg(&folder).arg(SERVER).stdout(Stdio::null()).spawn()?;
        let mut server = Server { process, folder };
        let started = stopwatch();
        while !ready_file(&server.folder).exists() {
            if let Some(status) = server.process.try_wait()? {
                return Err(format!("the server ended before it served: {status}").into());
            }
            if started.elapsed() > START_TIME_MAX {
                return Err("the server does not come up".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Processor time that the server has used, of its own and of the system for it.
    fn cpu_seconds(&self) -> Result<f64, Box<dyn Error>> {
        const TICKS_PER_SECOND: f64 = 100.0;
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // The name, in parentheses, may hold spaces; user and system time are the 12th and 13th field after it.
        let fields = stat.rsplit_once(')').ok_or("no process statistics")?.1.split_whitespace();
        let ticks: Result<Vec<u64>, _> = fields.skip(11).take(2).map(str::parse).collect();
        Ok(ticks?.iter().sum::<u64>() as f64 / TICKS_PER_SECOND)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
        let _ = fs::remove_file(ready_file(&self.folder));
    }
}

/// What each connection does, over and over.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Load,
    Get,
    Update,
    BatchGet,
    BatchUpdate,
}

pub async fn run(folder: &Path, keys: u64, seconds: u64) -> Result<String, Box<dyn Error>> {
    let server = Server::start(folder.join("native"))?;
    let env = env::real::open_diskless("native".into());
    let tables = connect(&env).await?;
    let bench = Bench { env, server, tables, keys, limit: Duration::from_secs(seconds) };
    bench.measure(Phase::Load).await?;
    let single_get = bench.measure(Phase::Get).await?;
    let single_update = bench.measure(Phase::Update).await?;
    let batch_get = bench.measure(Phase::BatchGet).await?;
    let batch_update = bench.measure(Phase::BatchUpdate).await?;
    Ok(format!(
        "batch_get_us={batch_get:.2} batch_update_us={batch_update:.2} single_get_us={single_get:.2} single_update_us={single_update:.2}"
    ))
}

/// One client for each connection.
async fn connect(env: &Env) -> Result<Vec<Table>, Box<dyn Error>> {
    let address = format!("127.0.0.1:{}", PORT_BASE + 101);
    let connect = || Client::connect(env.clone(), vec![address.clone()], Options::default());
    let name: TableName = "bench:native".parse()?;
    let spec = TableSpec { durability: Durability::Buffered, salt: Some(Salt::Xxh32), ..TableSpec::new(1) };
    connect().create_table(name.clone(), spec, even_splits(REGIONS)).await?;
    Ok((0..CONNECTIONS).map(|_| connect().table(name.clone())).collect())
}

struct Bench {
    env: Env,
    server: Server,
    tables: Vec<Table>,
    keys: u64,
    limit: Duration,
}

impl Bench {
    /// Microseconds of the server's processor time for each record.
    async fn measure(&self, phase: Phase) -> Result<f64, Box<dyn Error>> {
        let done = Arc::new(AtomicU64::new(0));
        let begun = self.server.cpu_seconds()?;
        let started = stopwatch();
        let (keys, limit) = (self.keys, self.limit);
        let workers = self.tables.iter().enumerate().map(|(at, table)| {
            let (table, done) = (table.clone(), done.clone());
            self.env.spawn("native", async move {
                let mut random = at as u64 + 1;
                if matches!(phase, Phase::Load) {
                    done.fetch_add(load(&table, &mut random, at as u64, keys).await?, Ordering::Relaxed);
                    return Ok(());
                }
                while started.elapsed() < limit {
                    done.fetch_add(operate(&table, phase, &mut random, keys).await?, Ordering::Relaxed);
                }
                Ok::<(), String>(())
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.map_err(|gone| gone.to_string())??;
        }
        let (wall, cpu) = (started.elapsed().as_secs_f64(), self.server.cpu_seconds()? - begun);
        let records = done.load(Ordering::Relaxed) as f64;
        let (rate, us) = (records / wall, cpu * 1e6 / records);
        println!(
            "native phase={phase:?} durability=buffered connections={CONNECTIONS} records_per_second={rate:.0} server_cpu_us_per_record={us:.2}"
        );
        Ok(us)
    }
}

/// This connection's part of all records.
async fn load(table: &Table, random: &mut u64, part: u64, keys: u64) -> Result<u64, String> {
    let (first, end) = (keys * part / CONNECTIONS, keys * (part + 1) / CONNECTIONS);
    for from in (first..end).step_by(BATCH as usize) {
        put_batch(table, (from..end.min(from + BATCH)).map(|number| (key(number), value(random))).collect()).await?;
    }
    Ok(end - first)
}

/// One operation; the records it touched.
async fn operate(table: &Table, phase: Phase, random: &mut u64, keys: u64) -> Result<u64, String> {
    let any = |random: &mut u64| key(next(random) % keys);
    match phase {
        Phase::Get => match table.get(any(random)).await {
            Ok(Some(found)) if found.len() == VALUE_BYTES => Ok(1),
            other => Err(format!("a loaded record reads as {other:?}")),
        },
        Phase::BatchGet => {
            let names: Vec<Bytes> = (0..BATCH).map(|_| any(random)).collect();
            let found = table.batch_get(names).await.map_err(|error| error.to_string())?;
            match found.iter().all(Option::is_some) {
                true => Ok(BATCH),
                false => Err("a loaded record is missing".into()),
            }
        }
        Phase::Update => {
            let (name, new) = (any(random), value(random));
            table.put(name, new).await.map(|()| 1).map_err(|error| error.to_string())
        }
        Phase::Load | Phase::BatchUpdate => {
            let records = (0..BATCH).map(|_| (any(random), value(random))).collect();
            put_batch(table, records).await.map(|()| BATCH)
        }
    }
}

async fn put_batch(table: &Table, records: Vec<(Bytes, Bytes)>) -> Result<(), String> {
    for written in table.batch_put(records).await {
        written.map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn key(number: u64) -> Bytes {
    Bytes::copy_from_slice(&super::spread(number).to_be_bytes())
}

fn value(random: &mut u64) -> Bytes {
    let mut value = vec![0; VALUE_BYTES];
    value.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&next(random).to_le_bytes()[..chunk.len()]));
    value.into()
}

/// Numbers that look random (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    super::spread(*state)
}

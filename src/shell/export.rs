//! `steadfast export`: a table's records into a file, in a format that import reads.
//!
//! Regions are scanned several at a time. What a scan gives is put into the export's format where it arrives, and waits,
//! bounded, for the one thread that writes.

use crate::client::Scan;
use crate::shell::args::Export;
use crate::shell::cluster;
use crate::shell::failure::Failure;
use crate::shell::limits::*;
use crate::shell::output::{count, size};
use crate::shell::progress::{Progress, State, Total};
use crate::shell::records::Format;
use env::Env;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// Records in the export's format.
struct Page {
    records: u64,
    text: Vec<u8>,
}

/// How far the export has come.
struct Shared {
    env: Env,
    progress: Progress,
    state: Mutex<State>,
}

pub async fn run(env: &Env, command: &Export) -> Result<(), Failure> {
    let table = cluster::connect(env, &command.connection).await?.table(command.table.clone());
    let scans = table.scans().await?;
    let to = command.to.as_deref().filter(|to| *to != Path::new("-"));
    let output = env::real::user_output(to)?;
    let shared = Arc::new(Shared {
        env: env.clone(),
        progress: Progress::new(env, "records", Total::Bytes(None)),
        state: Mutex::default(),
    });
    let ticking = env.spawn("show progress", show(shared.clone()));
    let exported = export(&shared, scans, command.format, output).await;
    ticking.abort();
    shared.progress.end();
    exported?;
    shared.summarize();
    Ok(())
}

async fn show(shared: Arc<Shared>) {
    loop {
        shared.env.sleep(PROGRESS_INTERVAL).await;
        let state = shared.state().clone();
        shared.progress.show(&state);
    }
}

async fn export(
    shared: &Arc<Shared>,
    scans: Vec<Scan>,
    format: Format,
    output: Box<dyn Write + Send>,
) -> Result<(), Failure> {
    let (pages, given) = mpsc::channel(EXPORT_PAGES_MAX);
    let writer = shared.clone();
    let writing = shared.env.blocking(move || writer.write(given, output));
    let scanning = async {
        let pages = pages;
        let scans = stream::iter(scans).map(|scan| give(scan, format, &pages));
        scans.buffer_unordered(EXPORT_REGIONS_AT_ONCE).try_collect::<()>().await
    };
    let (scanned, written) = futures_util::join!(scanning, writing);
    // When the writer gave up, the scans only say that nobody listens.
    written.map_err(Failure::failed)??;
    scanned
}

/// Gives all that one scan has.
async fn give(scan: Scan, format: Format, pages: &mpsc::Sender<Page>) -> Result<(), Failure> {
    let mut scan = scan.records_at_a_time(EXPORT_PAGE_RECORDS);
    while let Some(records) = scan.next().await? {
        let mut text = Vec::new();
        records.iter().for_each(|(key, value)| format.write(key, value, &mut text));
        let page = Page { records: records.len() as u64, text };
        pages.send(page).await.map_err(|_| Failure::failed("the output is closed"))?;
    }
    Ok(())
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }

    /// Writes until no more pages come.
    fn write(&self, mut pages: mpsc::Receiver<Page>, mut output: Box<dyn Write + Send>) -> std::io::Result<()> {
        while let Some(page) = pages.blocking_recv() {
            output.write_all(&page.text)?;
            let mut state = self.state();
            state.count += page.records;
            state.bytes += page.text.len() as u64;
        }
        output.flush()
    }

    fn summarize(&self) {
        let state = self.state();
        self.progress.note(&format!(
            "exported {} ({}) in {:.1} s, {}/s",
            count(state.count, "record"),
            size(state.bytes),
            self.progress.elapsed().as_secs_f64(),
            self.progress.rate(state.count)
        ));
    }
}

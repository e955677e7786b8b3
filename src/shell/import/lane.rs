//! Lanes: records of one key go through one of them, batch after batch.

use crate::client::{ClientError, WriteError};
use crate::shell::failure::Failure;
use crate::shell::import::{Numbered, Shared};
use crate::shell::limits::*;
use bytes::Bytes;
use env::Task;
use std::sync::Arc;
use tokio::sync::mpsc;
use xxhash_rust::xxh32::xxh32;

type Batch = Vec<Numbered>;

pub struct Lanes {
    lanes: Vec<Lane>,
}

struct Lane {
    batch: Batch,
    batch_bytes: usize,
    batches: mpsc::Sender<Batch>,
    writing: Task<()>,
}

impl Lanes {
    pub fn start(shared: &Arc<Shared>) -> Lanes {
        Lanes { lanes: (0..IMPORT_LANES).map(|_| Lane::start(shared.clone())).collect() }
    }

    /// Waits while the record's lane has enough to do.
    pub async fn give(&mut self, numbered: Numbered) {
        let lane = xxh32(&numbered.record.key, LANE_SEED) as usize % self.lanes.len();
        self.lanes[lane].give(numbered).await;
    }

    /// Sends what lanes hold back for a full batch.
    pub async fn flush(&mut self) {
        for lane in &mut self.lanes {
            lane.flush().await;
        }
    }

    /// Completes when all that was given has been written (or compared), or the import has been stopped.
    pub async fn finish(self) {
        for lane in self.lanes {
            lane.finish().await;
        }
    }
}

/// Other than a salted table's seed, so that a lane's records spread over all regions.
const LANE_SEED: u32 = 1;

impl Lane {
    fn start(shared: Arc<Shared>) -> Lane {
        let (batches, mut given) = mpsc::channel::<Batch>(1);
        let writing = shared.env.clone().spawn("write batches", async move {
            while let Some(batch) = given.recv().await {
                if shared.is_stopped() {
                    return;
                }
                match shared.check {
                    true => shared.compare(batch).await,
                    false => shared.write(batch).await,
                }
            }
        });
        Lane { batch: Batch::new(), batch_bytes: 0, batches, writing }
    }

    async fn give(&mut self, numbered: Numbered) {
        self.batch_bytes += numbered.record.key.len() + numbered.record.value.len();
        self.batch.push(numbered);
        if self.batch.len() >= IMPORT_BATCH_RECORDS_MAX || self.batch_bytes >= IMPORT_BATCH_BYTES_MAX {
            self.flush().await;
        }
    }

    async fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.batch_bytes = 0;
        // The lane ends early only when the import is stopped.
        let _ = self.batches.send(std::mem::take(&mut self.batch)).await;
    }

    async fn finish(mut self) {
        self.flush().await;
        drop(self.batches);
        let _ = self.writing.await;
    }
}

impl Shared {
    async fn write(&self, batch: Batch) {
        let begun = self.env.now();
        let results = self.table.batch_put(batch.iter().map(pair).collect()).await;
        let mut written = 0;
        for (numbered, result) in batch.iter().zip(results) {
            match result {
                Ok(()) => written += 1,
                Err(error) => self.failed(numbered, &error),
            }
        }
        if written > 0 {
            self.wrote(written, self.env.now().since(begun));
        }
    }

    /// Reads the batch by key.
    async fn compare(&self, batch: Batch) {
        let begun = self.env.now();
        let keys = batch.iter().map(|numbered| numbered.record.key.clone()).collect();
        let values = match self.table.batch_get(keys).await {
            Ok(values) => values,
            Err(error) => {
                let line = batch.first().map_or(0, |numbered| numbered.line);
                return self.stop(Failure::Failed(format!("records from line {line} on could not be read: {error}")));
            }
        };
        self.wrote(batch.len() as u64, self.env.now().since(begun));
        for (Numbered { line, record }, value) in batch.iter().zip(values) {
            match value {
                None => self.wrong_line(*line, "the table has no such record", &record.key),
                Some(value) if value != record.value => {
                    let why = "the table has another value (that of a later line with this key, perhaps)";
                    self.wrong_line(*line, why, &record.key);
                }
                Some(_) => {}
            }
        }
    }

    fn failed(&self, numbered: &Numbered, error: &WriteError) {
        match error.reason() {
            ClientError::Invalid(why) => self.wrong_line(numbered.line, why, &numbered.record.key),
            _ => self.stop(Failure::Failed(format!(
                "line {} could not be written: {error}. What was written stays; run the import again",
                numbered.line
            ))),
        }
    }
}

fn pair(numbered: &Numbered) -> (Bytes, Bytes) {
    (numbered.record.key.clone(), numbered.record.value.clone())
}

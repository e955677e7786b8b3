//! Lines of a file into records, on a thread of their own.

use crate::protocol::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::shell::import::Numbered;
use crate::shell::limits::*;
use crate::shell::lines::{Lines, Next};
use crate::shell::records::{Format, Record};
use env::Env;
use std::io::{self, Read};
use std::path::Path;
use tokio::sync::mpsc;

/// The records of some lines, in their order.
#[derive(Debug, Default)]
pub struct Chunk {
    pub records: Vec<Numbered>,
    pub wrong: Vec<Wrong>,
    /// Bytes of the input up to here.
    pub bytes: u64,
}

/// A line that is no record.
#[derive(Debug)]
pub struct Wrong {
    pub line: u64,
    pub why: String,
    pub content: Vec<u8>,
}

pub struct Input {
    reader: Box<dyn Read + Send>,
    format: Format,
    /// The input's length, where it has one.
    pub len: Option<u64>,
}

impl Input {
    pub fn open(file: Option<&Path>, format: Format) -> io::Result<Input> {
        let file = file.filter(|file| *file != Path::new("-"));
        Ok(Input { reader: env::real::user_input(file)?, format, len: env::real::user_input_len(file) })
    }
}

/// Reads until the input ends, an error comes (the last that is sent), or nobody listens any more.
pub fn start(env: &Env, input: Input) -> mpsc::Receiver<io::Result<Chunk>> {
    let (sender, receiver) = mpsc::channel(IMPORT_CHUNKS_MAX);
    let reading = env.clone();
    env.spawn("read records", async move {
        let failed = sender.clone();
        let read = reading.blocking(move || read(input, &sender)).await;
        if let Ok(Err(error)) = read {
            let _ = failed.send(Err(error)).await;
        }
    });
    receiver
}

fn read(input: Input, sender: &mpsc::Sender<io::Result<Chunk>>) -> io::Result<()> {
    let mut lines = Lines::new(input.reader);
    let mut line = Vec::new();
    let mut chunk = Chunk::default();
    let mut begun = 0;
    loop {
        let next = lines.next(&mut line)?;
        let is_end = next == Next::End;
        if !is_end {
            chunk.add(lines.number(), input.format, &next, &line);
        }
        let is_full = chunk.len() >= IMPORT_BATCH_RECORDS_MAX
            || lines.bytes() - begun >= IMPORT_BATCH_BYTES_MAX as u64
            || lines.would_read();
        if is_full || is_end {
            chunk.bytes = lines.bytes();
            begun = chunk.bytes;
            if sender.blocking_send(Ok(std::mem::take(&mut chunk))).is_err() || is_end {
                return Ok(());
            }
        }
    }
}

impl Chunk {
    fn len(&self) -> usize {
        self.records.len() + self.wrong.len()
    }

    fn add(&mut self, number: u64, format: Format, next: &Next, line: &[u8]) {
        let why = match next {
            Next::TooLong => format!("the line is longer than {} MiB", LINE_BYTES_MAX >> 20),
            _ => match parse(format, line) {
                Ok(record) => return self.records.extend(record.map(|record| Numbered { line: number, record })),
                Err(why) => why,
            },
        };
        let content = line[..line.len().min(IMPORT_ERROR_CONTENT_BYTES_MAX)].to_vec();
        self.wrong.push(Wrong { line: number, why, content });
    }
}

fn parse(format: Format, line: &[u8]) -> Result<Option<Record>, String> {
    let Some(record) = format.parse(line).map_err(|malformed| malformed.to_string())? else { return Ok(None) };
    match (record.key.len(), record.value.len()) {
        (key, _) if key > KEY_BYTES_MAX => Err(format!("the key has {key} bytes, and {KEY_BYTES_MAX} are allowed")),
        (key, value) if key + value > VALUE_BYTES_MAX => {
            Err(format!("key and value have {} bytes, and {VALUE_BYTES_MAX} are allowed", key + value))
        }
        _ => Ok(Some(record)),
    }
}

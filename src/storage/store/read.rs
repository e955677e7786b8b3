//! Reading a record that the index points to.

use crate::error::StorageError;
use crate::index::Candidates;
use crate::log::Shared;
use crate::record::{Location, Record};
use crate::store::Entry;
use bytes::Bytes;
use std::sync::Arc;

/// Reads the value of a key from the log. Owns all it needs: it may be spawned, and outlives changes of the store.
pub struct ReadJob {
    shared: Arc<Shared>,
    key: Bytes,
    candidates: Candidates,
    /// Candidates that were read and hold another key, or cannot be read.
    tried: usize,
    failed: Option<StorageError>,
}

impl ReadJob {
    pub(crate) fn new(shared: Arc<Shared>, key: &[u8], candidates: Candidates) -> ReadJob {
        ReadJob { shared, key: Bytes::copy_from_slice(key), candidates, tried: 0, failed: None }
    }

    /// The value, if reading it does not wait for a device.
    pub fn try_now(&mut self) -> Option<Result<Option<Entry>, StorageError>> {
        while let Some(location) = self.candidates.get(self.tried) {
            let read = try_read(&self.shared, location)?;
            if let Some(entry) = self.look_at(location, read) {
                return Some(Ok(Some(entry)));
            }
        }
        Some(self.outcome())
    }

    pub async fn run(mut self) -> Result<Option<Entry>, StorageError> {
        loop {
            if let Some(outcome) = self.try_now() {
                return outcome;
            }
            let location = self.candidates.get(self.tried).expect("one that would have waited");
            let read = read(&self.shared, location).await;
            if let Some(entry) = self.look_at(location, read) {
                return Ok(Some(entry));
            }
        }
    }

    fn look_at(&mut self, location: Location, read: Result<Bytes, StorageError>) -> Option<Entry> {
        self.tried += 1;
        let parsed = read.and_then(|bytes| parse(&self.shared, location, bytes));
        match parsed {
            Ok((key, entry)) => (key == self.key).then_some(entry),
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    /// No candidate holds the key. One that could not be read might be it: that is not "absent".
    fn outcome(&mut self) -> Result<Option<Entry>, StorageError> {
        self.failed.take().map_or(Ok(None), Err)
    }
}

/// The record's bytes, if they can be had at once.
pub(crate) fn try_read(shared: &Shared, location: Location) -> Option<Result<Bytes, StorageError>> {
    let handle = shared.handle(location.segment)?;
    let file = handle.try_file()?;
    let mut bytes = vec![0; location.len as usize];
    let read = file.try_read_at(&mut bytes, location.offset)?;
    let read = read.map_err(|error| StorageError::io("read", &handle.path, error));
    Some(read.map(|read| shortened(bytes, read)))
}

pub(crate) async fn read(shared: &Shared, location: Location) -> Result<Bytes, StorageError> {
    let handle = shared.add_handle(location.segment);
    let (read, bytes) = handle.file().await?.read_at(vec![0; location.len as usize], location.offset).await;
    let read = read.map_err(|error| StorageError::io("read", &handle.path, error))?;
    Ok(shortened(bytes, read))
}

fn shortened(mut bytes: Vec<u8>, len: usize) -> Bytes {
    bytes.truncate(len);
    bytes.into()
}

/// The key and value of the put that was read from `location`; anything else is corruption, for the index points to puts.
pub(crate) fn parse(shared: &Shared, location: Location, bytes: Bytes) -> Result<(Bytes, Entry), StorageError> {
    let handle = shared.add_handle(location.segment);
    match Record::read(&bytes, &handle.seeds, location) {
        Ok(Record::Put { key, value, expiry_ms }) => {
            Ok((bytes.slice_ref(key), Entry { value: bytes.slice_ref(value), expiry_ms }))
        }
        Ok(_) => Err(StorageError::corrupt(&handle.path, location.offset, "not the record that the index points to")),
        Err(what) => Err(StorageError::corrupt(&handle.path, location.offset, what)),
    }
}

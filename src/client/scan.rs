//! Reading a table from one end to the other, for exports.

use crate::client::Table;
use crate::client::error::{ClientError, Failure, Retry};
use crate::client::limits::SCAN_RECORDS;
use crate::client::route;
use crate::protocol::{Request, Response, ScanRequest};
use crate::region::{KeyRange, RegionId};
use bytes::Bytes;

/// A walk through all regions of a table. Each record that is there from the first call to the last is given at least once;
/// one that comes, goes or changes meanwhile may be given in any of its states, or not.
pub struct Scan {
    table: Table,
    records: u32,
    at: At,
    /// The walk ends before this stored key; `None`: at the table's end.
    until: Option<Bytes>,
}

enum At {
    /// In the region that holds this stored key, or at its beginning.
    Region {
        start: Bytes,
        inside: Option<(RegionId, Bytes)>,
    },
    End,
}

impl Scan {
    pub(super) fn new(table: Table, range: KeyRange) -> Scan {
        let at = At::Region { start: range.start, inside: None };
        Scan { table, records: SCAN_RECORDS, at, until: range.end }
    }

    /// How many records to ask for at a time; a server may give fewer, or none.
    pub fn records_at_a_time(mut self, records: u32) -> Scan {
        self.records = records.max(1);
        self
    }

    /// Some more records; `None` after the last. Each call has the table's time. After an error the next call goes on from the
    /// same place.
    pub async fn next(&mut self) -> Result<Option<Vec<(Bytes, Bytes)>>, ClientError> {
        let mut attempts = self.table.client.attempts();
        while let At::Region { start, inside } = &mut self.at {
            let map = self.table.map(&mut attempts).await?;
            let Some(place) = route::locate_stored(&map, start) else {
                self.table.distrust(&map);
                attempts.again(Failure::Retry(Retry::hole())).await?;
                continue;
            };
            let region = place.config.region;
            // A cursor means something to its region alone.
            let cursor = inside.take().filter(|(of, _)| *of == region).map_or(Bytes::new(), |(_, cursor)| cursor);
            let request = Request::Scan(ScanRequest { region, cursor: cursor.clone(), limit: self.records });
            let failure = match self.table.call(place, &request, attempts.attempt_deadline()).await {
                Ok(Response::Scanned(scanned)) => {
                    match (scanned.cursor, &place.range.end) {
                        (Some(cursor), _) => *inside = Some((region, cursor)),
                        (None, Some(end)) if self.until.as_ref().is_none_or(|until| end < until) => {
                            *start = end.clone();
                        }
                        (None, _) => self.at = At::End,
                    }
                    if scanned.records.is_empty() {
                        continue;
                    }
                    return Ok(Some(scanned.records));
                }
                Ok(_) => Failure::unexpected(),
                Err(failure) => failure,
            };
            *inside = Some((region, cursor));
            self.table.distrust(&map);
            attempts.again(failure).await?;
        }
        Ok(None)
    }

    /// All that is left.
    pub async fn collect(mut self) -> Result<Vec<(Bytes, Bytes)>, ClientError> {
        let mut records = Vec::new();
        while let Some(more) = self.next().await? {
            records.extend(more);
        }
        Ok(records)
    }
}

//! The operations on one table, and its region map.

use crate::client::error::{ClientError, Failure, Retry, WriteError};
use crate::client::retry::Attempts;
use crate::client::route::{self, Share};
use crate::client::{Client, Scan};
use crate::protocol::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::protocol::{
    Error, KeyForm, ReadRequest, RegionPlace, Request, Response, TableMap, WriteOperation, WriteOutcome, WriteRequest,
};
use crate::region::{KeyRange, RegionId, TableName};
use bytes::Bytes;
use env::Instant;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// A table of a cluster. Cloning shares it.
#[derive(Clone)]
pub struct Table {
    pub(super) client: Client,
    state: Arc<TableState>,
}

/// What a compare-and-set found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    Set,
    /// The value was this instead, and still is.
    Differs(Option<Bytes>),
}

impl Table {
    pub(super) fn new(client: Client, state: Arc<TableState>) -> Table {
        Table { client, state }
    }

    pub fn name(&self) -> &TableName {
        &self.state.name
    }

    /// The same table, calls to which may take this long.
    pub fn with_call_time(&self, call_time: Duration) -> Table {
        Table { client: self.client.with_call_time(call_time), state: self.state.clone() }
    }

    pub async fn get(&self, key: impl Into<Bytes>) -> Result<Option<Bytes>, ClientError> {
        let mut values = self.batch_get(vec![key.into()]).await?;
        Ok(values.pop().expect("one value for one key"))
    }

    /// One value for each key, in order. All keys are read at the same time or nearly so; each value is that of some moment of
    /// the call, not all of the same one.
    pub async fn batch_get(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Bytes>>, ClientError> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let mut attempts = self.client.attempts();
        let mut values = vec![None; keys.len()];
        let mut missing: Vec<usize> = (0..keys.len()).collect();
        while !missing.is_empty() {
            let map = self.map(&mut attempts).await?;
            let (mut left, mut failure) = (Vec::new(), None);
            for (share, result) in self.read_shares(&map, &keys, &missing, &attempts).await {
                match result {
                    // A server gives as many values as fit into an answer, and one at least.
                    Ok(given) => {
                        left.extend_from_slice(&share[given.len()..]);
                        share.into_iter().zip(given).for_each(|(member, value)| values[member] = value);
                    }
                    Err(Failure::Final(error)) => return Err(error),
                    Err(retry) => {
                        left.extend_from_slice(&share);
                        failure = Some(retry);
                    }
                }
            }
            if let Some(failure) = failure {
                self.state.distrust(&map);
                attempts.again(failure).await?;
            }
            missing = left;
        }
        Ok(values)
    }

    pub async fn put(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Result<(), WriteError> {
        self.write(WriteOperation::Put { key: key.into(), value: value.into(), expiry_ms: None }).await.map(drop)
    }

    /// Whether there was something to delete.
    pub async fn delete(&self, key: impl Into<Bytes>) -> Result<bool, WriteError> {
        match self.write(WriteOperation::Delete { key: key.into() }).await? {
            WriteOutcome::Deleted { existed } => Ok(existed),
            other => Err(unexpected_outcome(&other)),
        }
    }

    /// Sets `new` (`None` deletes) if the value is `expected` (`None`: absent).
    pub async fn compare_and_set(
        &self,
        key: impl Into<Bytes>,
        expected: Option<Bytes>,
        new: Option<Bytes>,
    ) -> Result<Compared, WriteError> {
        match self.write(WriteOperation::CompareAndSet { key: key.into(), expected, new }).await? {
            WriteOutcome::Compared { set: true, .. } => Ok(Compared::Set),
            WriteOutcome::Compared { set: false, actual } => Ok(Compared::Differs(actual)),
            other => Err(unexpected_outcome(&other)),
        }
    }

    /// Adds to a decimal number (absent: 0); returns the sum.
    pub async fn increment(&self, key: impl Into<Bytes>, delta: i64) -> Result<i64, WriteError> {
        match self.write(WriteOperation::Increment { key: key.into(), delta }).await? {
            WriteOutcome::Incremented(value) => Ok(value),
            other => Err(unexpected_outcome(&other)),
        }
    }

    /// Appends to a value (absent: empty); returns its new length.
    pub async fn append(&self, key: impl Into<Bytes>, suffix: impl Into<Bytes>) -> Result<u64, WriteError> {
        match self.write(WriteOperation::Append { key: key.into(), suffix: suffix.into() }).await? {
            WriteOutcome::Appended { len } => Ok(len),
            other => Err(unexpected_outcome(&other)),
        }
    }

    pub async fn batch_put(&self, records: Vec<(Bytes, Bytes)>) -> Vec<Result<(), WriteError>> {
        let put = |(key, value)| WriteOperation::Put { key, value, expiry_ms: None };
        let results = self.batch_write(records.into_iter().map(put).collect()).await;
        results.into_iter().map(|result| result.map(drop)).collect()
    }

    /// Carries out any number of operations and tells the outcome of each, in order. Operations on one key happen in order.
    ///
    /// The operations on one region happen whole or not at all, also across a crash, up to 16,384 of them and 16 MiB; beyond,
    /// one such part after the other, and after a part without an outcome no further ones. Parts of different regions do not
    /// wait for each other.
    pub async fn batch_write(&self, operations: Vec<WriteOperation>) -> Vec<Result<WriteOutcome, WriteError>> {
        if let Err(error) = operations.iter().try_for_each(check_operation) {
            return vec![Err(WriteError::NotDone(error)); operations.len()];
        }
        let mut attempts = self.client.attempts();
        let mut results: Vec<Option<Result<WriteOutcome, WriteError>>> = vec![None; operations.len()];
        let mut missing: Vec<usize> = (0..operations.len()).collect();
        while !missing.is_empty() {
            let (mut left, mut moved) = (Vec::new(), None);
            match self.write_shares(&operations, &missing, &mut attempts).await {
                Err(error) => {
                    let not_done = WriteError::NotDone(error);
                    missing.iter().for_each(|&member| results[member] = Some(Err(not_done.clone())));
                }
                Ok(ends) => {
                    for (member, end) in ends {
                        match end {
                            End::Known(result) => results[member] = Some(result),
                            End::Moved => {
                                left.push(member);
                                moved = Some(Failure::Retry(Retry::moved()));
                            }
                        }
                    }
                }
            }
            if let Some(moved) = moved
                && let Err(error) = attempts.again(moved).await
            {
                let not_done = WriteError::NotDone(error);
                left.drain(..).for_each(|member| results[member] = Some(Err(not_done.clone())));
            }
            left.sort_unstable();
            missing = left;
        }
        results.into_iter().map(|result| result.expect("each operation ends")).collect()
    }

    /// All records, in no order. Those that are there from beginning to end are given at least once.
    pub fn scan(&self) -> Scan {
        Scan::new(self.clone(), KeyRange { start: Bytes::new(), end: None })
    }

    /// Scans that together give what [`Table::scan`] gives, one for each region of this moment, to run side by side.
    pub async fn scans(&self) -> Result<Vec<Scan>, ClientError> {
        let map = self.map(&mut self.client.attempts()).await?;
        Ok(map.regions.iter().map(|place| Scan::new(self.clone(), place.range.clone())).collect())
    }

    async fn write(&self, operation: WriteOperation) -> Result<WriteOutcome, WriteError> {
        self.batch_write(vec![operation]).await.pop().expect("one result for one operation")
    }

    /// One attempt at each share of the keys `members`.
    async fn read_shares(
        &self,
        map: &TableMap,
        keys: &[Bytes],
        members: &[usize],
        attempts: &Attempts,
    ) -> Vec<(Vec<usize>, Result<Vec<Option<Bytes>>, Failure>)> {
        let shares = match route::share_reads(map, keys, members) {
            Ok(shares) => shares,
            Err(route::Hole) => return vec![(members.to_vec(), Err(Failure::Retry(Retry::hole())))],
        };
        let deadline = attempts.attempt_deadline();
        let reads = shares.into_iter().map(|share| async move {
            let wanted = share.members.iter().map(|&member| keys[member].clone()).collect();
            let given = self.read(&share.place, wanted, deadline).await;
            (share.members, given)
        });
        reads.collect::<FuturesUnordered<_>>().collect().await
    }

    async fn read(
        &self,
        place: &RegionPlace,
        keys: Vec<Bytes>,
        deadline: Instant,
    ) -> Result<Vec<Option<Bytes>>, Failure> {
        let asked = keys.len();
        let read = ReadRequest { region: place.config.region, form: KeyForm::User, keys };
        match self.call(place, &Request::Read(read), deadline).await? {
            Response::Read(values) if (1..=asked).contains(&values.len()) => Ok(values),
            _ => Err(Failure::unexpected()),
        }
    }

    /// Asks the primary of a region. An answer that is an error is a failure.
    pub(super) async fn call(
        &self,
        place: &RegionPlace,
        request: &Request,
        deadline: Instant,
    ) -> Result<Response, Failure> {
        let Some(address) = &place.address else {
            return Err(Failure::Retry(Retry::no_primary(place.config.region)));
        };
        match self.client.inner.pool.call(address, request, deadline).await {
            Ok(Response::Error(error)) => Err(Failure::of_answer(error)),
            Ok(response) => Ok(response),
            Err(error) => Err(Failure::of_call(error)),
        }
    }

    /// The regions' shares of the operations `members`, at the same time.
    async fn write_shares(
        &self,
        operations: &[WriteOperation],
        members: &[usize],
        attempts: &mut Attempts,
    ) -> Result<Vec<(usize, End)>, ClientError> {
        let shares = loop {
            let map = self.map(attempts).await?;
            match route::share_writes(&map, operations, members) {
                Ok(shares) => break shares,
                Err(route::Hole) => {
                    self.state.distrust(&map);
                    attempts.again(Failure::Retry(Retry::hole())).await?;
                }
            }
        };
        let attempts = &*attempts;
        let writes = shares.into_iter().map(|share| self.write_share(operations, share, attempts));
        let ends: Vec<Vec<(usize, End)>> = writes.collect::<FuturesUnordered<_>>().collect().await;
        Ok(ends.into_iter().flatten().collect())
    }

    /// One request after the other. After one without outcomes the others would perhaps overtake it.
    async fn write_share(&self, operations: &[WriteOperation], share: Share, attempts: &Attempts) -> Vec<(usize, End)> {
        let mut ends = Vec::with_capacity(share.members.len());
        let mut stopped: Option<End> = None;
        for part in route::cut_writes(operations, &share.members) {
            if let Some(end) = &stopped {
                ends.extend(part.iter().map(|&member| (member, end.clone())));
                continue;
            }
            let wanted = part.iter().map(|&member| operations[member].clone()).collect();
            match self.write_part(share.place.config.region, wanted, attempts.part()).await {
                PartEnd::Done(outcomes) => {
                    let known = outcomes.into_iter().map(known);
                    ends.extend(part.iter().copied().zip(known));
                }
                PartEnd::Failed(error) => {
                    let failed = End::Known(Err(error.clone()));
                    ends.extend(part.iter().map(|&member| (member, failed.clone())));
                    stopped = Some(End::Known(Err(WriteError::NotDone(error.reason().clone()))));
                }
                PartEnd::Moved => {
                    ends.extend(part.iter().map(|&member| (member, End::Moved)));
                    stopped = Some(End::Moved);
                }
            }
        }
        ends
    }

    /// One request, sent with the same number until there is an outcome or the time is up.
    async fn write_part(&self, region: RegionId, operations: Vec<WriteOperation>, mut attempts: Attempts) -> PartEnd {
        let inner = &self.client.inner;
        let ticket = inner.sessions.begin(region, || inner.env.random());
        let asked = operations.len();
        let write = WriteRequest { region, form: KeyForm::User, id: Some(ticket.id()), operations };
        let request = Request::Write(write);
        loop {
            let map = match self.map(&mut attempts).await {
                Ok(map) => map,
                Err(error) => return PartEnd::Failed(WriteError::of(error, attempts.may_have_happened)),
            };
            let Some(place) = route::find(&map, region) else {
                return match attempts.may_have_happened {
                    // Under another region's name the request would be another request.
                    true => PartEnd::Failed(WriteError::Unknown(ClientError::Unavailable(Retry::moved().reason))),
                    false => PartEnd::Moved,
                };
            };
            let failure = match self.call(place, &request, attempts.attempt_deadline()).await {
                Ok(Response::Written(outcomes)) if outcomes.len() == asked => return PartEnd::Done(outcomes),
                Ok(_) => Failure::unexpected(),
                Err(failure) => failure,
            };
            self.state.distrust(&map);
            if let Err(error) = attempts.again(failure).await {
                return PartEnd::Failed(WriteError::of(error, attempts.may_have_happened));
            }
        }
    }

    /// The region map: the one that is known, or a new one if that failed somebody.
    pub(super) async fn map(&self, attempts: &mut Attempts) -> Result<Arc<TableMap>, ClientError> {
        if let Some(map) = self.state.trusted() {
            return Ok(map);
        }
        let env = &self.client.inner.env;
        let wait = attempts.deadline().since(env.now());
        let Ok(_turn) = env.timeout(wait, self.state.turn.lock()).await else {
            return Err(ClientError::Unavailable("no node told the region map".to_owned()));
        };
        // Who waited for the turn gets what the one before it fetched.
        if let Some(map) = self.state.trusted() {
            return Ok(map);
        }
        // A lost answer here says nothing about the call that needs the map.
        let mut fetching = attempts.part();
        let map = Arc::new(self.client.fetch_map(self.state.name.clone(), &mut fetching).await?);
        *self.state.map.lock() = Some(map.clone());
        Ok(map)
    }

    pub(super) fn distrust(&self, map: &Arc<TableMap>) {
        self.state.distrust(map);
    }
}

/// How one operation of a batch came out of its share.
#[derive(Clone)]
enum End {
    Known(Result<WriteOutcome, WriteError>),
    /// Nothing happened: its region is no more, and another holds its key.
    Moved,
}

enum PartEnd {
    Done(Vec<WriteOutcome>),
    Failed(WriteError),
    Moved,
}

fn known(outcome: WriteOutcome) -> End {
    End::Known(match outcome {
        WriteOutcome::Refused(Error { code, message }) => {
            Err(WriteError::NotDone(ClientError::of_answer(code, message)))
        }
        done => Ok(done),
    })
}

impl Retry {
    fn elsewhere(reason: String) -> Retry {
        Retry { reason, may_have_happened: false, is_elsewhere: true }
    }

    pub(super) fn hole() -> Retry {
        Retry::elsewhere("the region map does not cover the key".to_owned())
    }

    pub(super) fn moved() -> Retry {
        Retry::elsewhere("the region is no more".to_owned())
    }

    fn no_primary(region: RegionId) -> Retry {
        let reason = format!("region {region} has no primary");
        Retry { reason, may_have_happened: false, is_elsewhere: false }
    }
}

/// What all handles of one table share.
pub(super) struct TableState {
    name: TableName,
    map: Mutex<Option<Arc<TableMap>>>,
    /// Held by the one who fetches the map.
    turn: tokio::sync::Mutex<()>,
}

impl TableState {
    pub fn new(name: TableName) -> TableState {
        TableState { name, map: Mutex::default(), turn: Default::default() }
    }

    fn trusted(&self) -> Option<Arc<TableMap>> {
        self.map.lock().clone()
    }

    /// `map` failed somebody. A newer one is kept.
    fn distrust(&self, map: &Arc<TableMap>) {
        let mut current = self.map.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, map)) {
            *current = None;
        }
    }
}

fn check_key(key: &[u8]) -> Result<(), ClientError> {
    match key.len() {
        1..=KEY_BYTES_MAX => Ok(()),
        len => Err(ClientError::Invalid(format!("a key has 1 to {KEY_BYTES_MAX} bytes, this one has {len}"))),
    }
}

fn check_operation(operation: &WriteOperation) -> Result<(), ClientError> {
    check_key(operation.key())?;
    match route::operation_len(operation) {
        len if len <= VALUE_BYTES_MAX => Ok(()),
        len => {
            Err(ClientError::Invalid(format!("an operation has at most {VALUE_BYTES_MAX} bytes, this one has {len}")))
        }
    }
}

/// The server carried something out, but not what was asked.
fn unexpected_outcome(outcome: &WriteOutcome) -> WriteError {
    WriteError::Unknown(ClientError::Invalid(format!("the server tells the outcome of another operation: {outcome:?}")))
}

//! The client against a toy cluster: real front ends on one simulated node, a service that keeps its regions in memory and
//! answers repeated requests as it should, and faults between them.

use bytes::Bytes;
use env::sim::{CrashKind, World, WorldOptions, single};
use env::{BoxFuture, Env, Task};
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;
use steadfast::client::limits::SESSION_WINDOW_MAX;
use steadfast::client::{Client, ClientError, Compared, Options, Table, WriteError};
use steadfast::frontend::native::{self, Service};
use steadfast::protocol::peer::PeerMessage;
use steadfast::protocol::*;
use steadfast::region::{
    Durability, KeyRange, RegionConfig, RegionId, Salt, ServerId, TableName, TableSpec, even_splits,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Chances in a hundred for each request.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// It is never seen.
    request_lost: u64,
    /// It is carried out, and never answered.
    answer_lost: u64,
    /// It is carried out, and the answer is that nobody knows.
    unknown: u64,
    /// It is refused for now.
    unavailable: u64,
    /// It takes some milliseconds.
    slow: u64,
}

/// What all nodes of the toy know and hold.
#[derive(Default)]
struct Toy {
    faults: Faults,
    spec: Option<TableSpec>,
    /// The region and its primary; ranges come from `splits`.
    regions: Vec<(RegionId, usize)>,
    splits: Vec<Bytes>,
    addresses: Vec<String>,
    data: BTreeMap<Bytes, Bytes>,
    /// By region and session: the floor, and outcomes by number.
    sessions: BTreeMap<(RegionId, u64), (u64, BTreeMap<u64, Vec<WriteOutcome>>)>,
    /// Writes that were carried out, repeats not counted.
    writes: u64,
    /// The answer to each write, whatever it is.
    refuse_writes: Option<ErrorCode>,
    describes: u64,
    admin: Vec<AdminRequest>,
    admin_answers_lost: u64,
}

impl Toy {
    fn map(&self) -> Option<TableMap> {
        let places =
            KeyRange::between(&self.splits).into_iter().zip(&self.regions).map(|(range, (region, primary))| {
                let config = RegionConfig::initial(*region, vec![ServerId(*primary as u64)]);
                RegionPlace { range, config, address: self.addresses.get(*primary).cloned() }
            });
        Some(TableMap { name: name(), spec: self.spec.clone()?, regions: places.collect() })
    }

    fn stored(&self, key: &[u8]) -> Bytes {
        let salt = self.spec.as_ref().expect("a table").salt;
        salt.map_or(Bytes::copy_from_slice(key), |salt| salt.stored_key(key))
    }

    /// Checks that `node` leads `region` and `region` holds `keys`.
    fn check<'a>(&self, node: usize, region: RegionId, mut keys: impl Iterator<Item = &'a Bytes>) -> Result<(), Error> {
        let ranges = KeyRange::between(&self.splits);
        let Some(at) = self.regions.iter().position(|(id, _)| *id == region) else {
            return Err(Error::new(ErrorCode::WrongRegion, "no such region"));
        };
        if self.regions[at].1 != node {
            return Err(Error::new(ErrorCode::Fenced, "another leads"));
        }
        match keys.all(|key| ranges[at].contains(&self.stored(key))) {
            true => Ok(()),
            false => Err(Error::new(ErrorCode::WrongRegion, "a key is elsewhere")),
        }
    }

    fn answer(&mut self, node: usize, request: Request) -> Result<Response, Error> {
        match request {
            Request::Read(read) => {
                self.check(node, read.region, read.keys.iter())?;
                Ok(Response::Read(read.keys.iter().map(|key| self.data.get(key).cloned()).collect()))
            }
            Request::Write(write) => self.write(node, write),
            Request::Scan(scan) => self.scan(node, scan),
            Request::Admin(admin) => self.admin(admin),
            Request::Control(_) => Err(Error::invalid("not in this toy")),
        }
    }

    fn write(&mut self, node: usize, write: WriteRequest) -> Result<Response, Error> {
        self.check(node, write.region, write.operations.iter().map(WriteOperation::key))?;
        if let Some(code) = self.refuse_writes {
            return Err(Error::new(code, "refused"));
        }
        let id = write.id.expect("the client numbers its writes");
        let (floor, outcomes) = self.sessions.entry((write.region, id.session)).or_default();
        *floor = id.floor.max(*floor);
        *outcomes = outcomes.split_off(floor);
        assert!(outcomes.len() <= SESSION_WINDOW_MAX as usize);
        if id.number < *floor {
            return Err(Error::new(ErrorCode::Unknown, "its outcome is forgotten"));
        }
        if let Some(outcomes) = outcomes.get(&id.number) {
            return Ok(Response::Written(outcomes.clone()));
        }
        self.writes += 1;
        let done: Vec<_> = write.operations.into_iter().map(|operation| apply(&mut self.data, operation)).collect();
        outcomes.insert(id.number, done.clone());
        Ok(Response::Written(done))
    }

    fn scan(&mut self, node: usize, scan: ScanRequest) -> Result<Response, Error> {
        self.check(node, scan.region, [].iter())?;
        let at = self.regions.iter().position(|(id, _)| *id == scan.region).expect("checked");
        let range = &KeyRange::between(&self.splits)[at];
        let here = |(key, _): &(&Bytes, &Bytes)| range.contains(&self.stored(key)) && **key > scan.cursor;
        let mut rest = self.data.iter().filter(here).map(|(key, value)| (key.clone(), value.clone()));
        let records: Vec<_> = rest.by_ref().take(scan.limit as usize).collect();
        let cursor = records.last().filter(|_| rest.next().is_some()).map(|(key, _)| key.clone());
        Ok(Response::Scanned(Scanned { records, cursor }))
    }

    fn admin(&mut self, admin: AdminRequest) -> Result<Response, Error> {
        self.admin.push(admin.clone());
        match admin {
            AdminRequest::DescribeTable { name: asked } => {
                self.describes += 1;
                let map = self.map().filter(|_| asked == name());
                let map = map.ok_or_else(|| Error::new(ErrorCode::NotFound, "no such table"))?;
                Ok(Response::Admin(AdminResponse::Table(map)))
            }
            AdminRequest::DropTable { .. } => match self.spec.take() {
                Some(_) => Ok(Response::Admin(AdminResponse::Done)),
                None => Err(Error::new(ErrorCode::NotFound, "no such table")),
            },
            _ => Ok(Response::Admin(AdminResponse::Done)),
        }
    }
}

fn apply(data: &mut BTreeMap<Bytes, Bytes>, operation: WriteOperation) -> WriteOutcome {
    match operation {
        WriteOperation::Put { key, value, .. } => {
            data.insert(key, value);
            WriteOutcome::Done
        }
        WriteOperation::Delete { key } => WriteOutcome::Deleted { existed: data.remove(&key).is_some() },
        WriteOperation::CompareAndSet { key, expected, new } => {
            let actual = data.get(&key).cloned();
            if actual != expected {
                return WriteOutcome::Compared { set: false, actual };
            }
            match new {
                Some(new) => drop(data.insert(key, new)),
                None => drop(data.remove(&key)),
            }
            WriteOutcome::Compared { set: true, actual: None }
        }
        WriteOperation::Increment { key, delta } => {
            let text = data.get(&key).map_or("0", |value| std::str::from_utf8(value).unwrap());
            match text.parse::<i64>() {
                Ok(value) => {
                    data.insert(key, (value + delta).to_string().into());
                    WriteOutcome::Incremented(value + delta)
                }
                Err(_) => WriteOutcome::Refused(Error::invalid("not a number")),
            }
        }
        WriteOperation::Append { key, suffix } => {
            let value = data.entry(key).or_default();
            *value = [&value[..], &suffix].concat().into();
            WriteOutcome::Appended { len: value.len() as u64 }
        }
    }
}

struct Node {
    env: Env,
    number: usize,
    world: Arc<Mutex<Toy>>,
}

impl Service for Node {
    fn identity(&self) -> Welcome {
        Welcome { cluster: Some(ClusterId(1)), role: Role::Server }
    }

    fn request(&self, request: Request) -> BoxFuture<'static, Response> {
        let (env, number, world) = (self.env.clone(), self.number, self.world.clone());
        Box::pin(async move {
            let chance = |percent| env.random_below(100) < percent;
            let is_admin = matches!(request, Request::Admin(_));
            let faults = world.lock().faults;
            if chance(faults.slow) {
                env.sleep(MS * env.random_below(100) as u32).await;
            }
            if chance(faults.request_lost) {
                return pending().await;
            }
            if chance(faults.unavailable) {
                return Response::Error(Error::unavailable("not now"));
            }
            let response = world.lock().answer(number, request).unwrap_or_else(Response::Error);
            let admin_lost = is_admin && {
                let left = &mut world.lock().admin_answers_lost;
                let lost = *left > 0;
                *left -= u64::from(lost);
                lost
            };
            if chance(faults.answer_lost) || admin_lost {
                return pending().await;
            }
            match response {
                Response::Written(_) if chance(faults.unknown) => {
                    Response::Error(Error::new(ErrorCode::Unknown, "who knows"))
                }
                response => response,
            }
        })
    }

    fn peer(&self, _: ServerId, _: PeerMessage) {}

    fn raft(&self, _: Bytes) -> BoxFuture<'static, Result<Bytes, Error>> {
        Box::pin(async { Err(Error::invalid("not in this toy")) })
    }
}

struct Cluster {
    env: Env,
    world: Arc<Mutex<Toy>>,
    servers: Mutex<Vec<Task<()>>>,
}

fn name() -> TableName {
    "test:table".parse().unwrap()
}

/// Of one table, led by three nodes.
fn six_regions() -> Toy {
    let salt = Some(Salt::Xxh32);
    Toy {
        spec: Some(TableSpec { salt, ..TableSpec::new(1) }),
        regions: (0..6).map(|i| (RegionId(i), i as usize % 3)).collect(),
        splits: even_splits(6),
        ..Toy::default()
    }
}

impl Cluster {
    /// Three nodes and a table of six regions.
    async fn new(env: &Env) -> Arc<Cluster> {
        let world = Arc::new(Mutex::new(six_regions()));
        let cluster = Arc::new(Cluster { env: env.clone(), world, servers: Mutex::default() });
        for number in 0..3 {
            let server = cluster.start(number, "127.0.0.1:0").await;
            cluster.servers.lock().push(server);
        }
        cluster
    }

    async fn start(&self, number: usize, address: &str) -> Task<()> {
        let listener = self.env.net().listen(address).await.unwrap();
        let mut world = self.world.lock();
        if number == world.addresses.len() {
            world.addresses.push(listener.local_address());
        }
        let service = Node { env: self.env.clone(), number, world: self.world.clone() };
        self.env.spawn("node", native::serve(self.env.clone(), listener, Arc::new(service), native::Options::default()))
    }

    /// Ends a node's connections and starts it anew.
    async fn restart(&self, number: usize) {
        let address = self.world.lock().addresses[number].clone();
        self.servers.lock()[number].abort();
        self.env.sleep(MS).await;
        let server = self.start(number, &address).await;
        self.servers.lock()[number] = server;
    }

    fn stop_all(&self) {
        self.servers.lock().iter().for_each(Task::abort);
    }

    fn set_faults(&self, faults: Faults) {
        self.world.lock().faults = faults;
    }

    /// Moves leads and restarts nodes for ever.
    fn churn(self: &Arc<Self>) -> Task<()> {
        let cluster = self.clone();
        self.env.spawn("churn", async move {
            loop {
                let env = &cluster.env;
                env.sleep(MS * env.random_below(400) as u32).await;
                match env.random_below(2) {
                    0 => cluster.restart(env.random_below(3) as usize).await,
                    _ => {
                        let mut world = cluster.world.lock();
                        let region = env.random_below(6) as usize;
                        world.regions[region].1 = env.random_below(3) as usize;
                    }
                }
            }
        })
    }

    fn client(&self, options: Options) -> Client {
        Client::connect(self.env.clone(), self.world.lock().addresses.clone(), options)
    }

    fn table(&self) -> Table {
        self.client(patient()).table(name())
    }
}

/// Time enough for any fault here.
fn patient() -> Options {
    Options { call_time: 600 * SECOND, attempt_time: 200 * MS, ..Options::default() }
}

const ALL_FAULTS: Faults = Faults { request_lost: 5, answer_lost: 10, unknown: 5, unavailable: 5, slow: 20 };

fn key(number: u64) -> Bytes {
    format!("key-{number}").into()
}

async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    futures.collect::<FuturesUnordered<_>>().collect().await
}

#[test]
fn each_operation_does_what_it_says() {
    single(1, |env| async move {
        let cluster = Cluster::new(&env).await;
        let table = cluster.table();
        assert_eq!(table.get("a").await, Ok(None));
        table.put("a", "1").await.unwrap();
        assert_eq!(table.get("a").await, Ok(Some("1".into())));
        assert_eq!(table.increment("a", 41).await, Ok(42));
        assert_eq!(table.append("a", "!").await, Ok(3));
        let set = |expected: Option<&'static str>, new: Option<&'static str>| {
            table.compare_and_set("a", expected.map(Bytes::from), new.map(Bytes::from))
        };
        assert_eq!(set(None, Some("x")).await, Ok(Compared::Differs(Some("42!".into()))));
        assert_eq!(set(Some("42!"), Some("x")).await, Ok(Compared::Set));
        assert_eq!(table.delete("a").await, Ok(true));
        assert_eq!(table.delete("a").await, Ok(false));
        assert_eq!(cluster.world.lock().describes, 1, "the region map is fetched once");
    });
}

/// redis/jedis#3187: an increment counted up to five times.
#[test]
fn increments_are_exact_under_every_fault() {
    for seed in 0..4 {
        single(seed, |env| async move {
            let cluster = Cluster::new(&env).await;
            cluster.set_faults(ALL_FAULTS);
            let churn = cluster.churn();
            let table = cluster.table();
            let counters = (0..16).map(|task| {
                let table = table.clone();
                async move {
                    for i in 0..125 {
                        table.increment(key((task + i) % 10), 1).await.unwrap();
                    }
                }
            });
            all(counters).await;
            churn.abort();
            cluster.set_faults(Faults::default());
            let counts = table.batch_get((0..10).map(key).collect()).await.unwrap();
            let text = |count: Bytes| String::from_utf8(count.to_vec()).unwrap().parse::<i64>().unwrap();
            let sum: i64 = counts.into_iter().flatten().map(text).sum();
            assert_eq!((sum, cluster.world.lock().writes), (2000, 2000));
        });
    }
}

#[test]
fn what_is_not_acknowledged_is_counted_once_or_not_at_all() {
    for seed in 0..4 {
        single(seed, |env| async move {
            let cluster = Cluster::new(&env).await;
            cluster.set_faults(Faults { request_lost: 20, answer_lost: 20, ..ALL_FAULTS });
            let options = Options { call_time: 500 * MS, attempt_time: 100 * MS, ..Options::default() };
            let table = cluster.client(options).table(name());
            let (mut done, mut not_done, mut unknown) = (0, 0, 0);
            for _ in 0..300 {
                let call = table.increment("n", 1);
                // Some are given up by the caller.
                match env.timeout(MS * (50 + env.random_below(600) as u32), call).await {
                    Ok(Ok(_)) => done += 1,
                    Ok(Err(WriteError::NotDone(_))) => not_done += 1,
                    Ok(Err(WriteError::Unknown(_))) | Err(_) => unknown += 1,
                }
            }
            assert!(done > 50 && unknown > 20, "{done} done, {not_done} not done, {unknown} unknown");
            cluster.set_faults(Faults::default());
            env.sleep(SECOND).await;
            let count: i64 = table.increment("n", 0).await.unwrap();
            assert!((done..=done + unknown).contains(&count), "{count} counted, {done} done and {unknown} unknown");
        });
    }
}

#[test]
fn a_thousand_cancelled_calls_never_mix_answers() {
    single(3, |env| async move {
        let cluster = Cluster::new(&env).await;
        let table = cluster.table();
        let records = (0..50).map(|i| (key(i), key(i))).collect();
        assert!(table.batch_put(records).await.iter().all(Result::is_ok));
        cluster.set_faults(Faults { slow: 80, ..Faults::default() });
        let mut cancelled = 0;
        for _ in 0..100 {
            let calls = (0..10).map(|_| {
                let (table, env) = (table.clone(), env.clone());
                async move {
                    let key = key(env.random_below(50));
                    let call = table.get(key.clone());
                    match env.timeout(MS * env.random_below(100) as u32, call).await {
                        Ok(value) => assert_eq!(value, Ok(Some(key))),
                        Err(_) => return 1,
                    }
                    0
                }
            });
            cancelled += all(calls).await.iter().sum::<u64>();
        }
        assert!((200..800).contains(&cancelled), "{cancelled} cancelled");
    });
}

#[test]
fn batches_cross_regions_and_keep_their_order() {
    single(4, |env| async move {
        let cluster = Cluster::new(&env).await;
        cluster.set_faults(ALL_FAULTS);
        let churn = cluster.churn();
        let table = cluster.table();
        let records = (0..5000).map(|i| (key(i), format!("value {i}").into())).collect();
        assert!(table.batch_put(records).await.iter().all(Result::is_ok));
        let keys: Vec<u64> = (0..6000).map(|_| env.random_below(6000)).collect();
        let values = table.batch_get(keys.iter().copied().map(key).collect()).await.unwrap();
        for (number, value) in keys.into_iter().zip(values) {
            let expected = (number < 5000).then(|| Bytes::from(format!("value {number}")));
            assert_eq!(value, expected, "key {number}");
        }
        churn.abort();
        assert_eq!(table.batch_get(Vec::new()).await, Ok(Vec::new()));
        assert_eq!(table.batch_write(Vec::new()).await, Vec::new());
    });
}

#[test]
fn the_outcome_of_each_operation_of_a_batch_is_told() {
    single(5, |env| async move {
        let cluster = Cluster::new(&env).await;
        let table = cluster.table();
        table.put("text", "abc").await.unwrap();
        let results = table
            .batch_write(vec![
                WriteOperation::Increment { key: "n".into(), delta: 1 },
                WriteOperation::Increment { key: "text".into(), delta: 1 },
                WriteOperation::Increment { key: "n".into(), delta: 1 },
                WriteOperation::Delete { key: "gone".into() },
            ])
            .await;
        assert_eq!(results[0], Ok(WriteOutcome::Incremented(1)));
        assert!(matches!(&results[1], Err(WriteError::NotDone(ClientError::Invalid(_)))), "{:?}", results[1]);
        assert_eq!(results[2], Ok(WriteOutcome::Incremented(2)));
        assert_eq!(results[3], Ok(WriteOutcome::Deleted { existed: false }));
        assert!(matches!(table.put("", "x").await, Err(WriteError::NotDone(ClientError::Invalid(_)))));
        assert!(matches!(table.get(vec![7; 100_000]).await, Err(ClientError::Invalid(_))));
    });
}

/// More values than a frame takes: the server gives what fits, and the client asks for the rest.
#[test]
fn values_too_many_for_one_answer_come_in_several() {
    single(6, |env| async move {
        let cluster = Cluster::new(&env).await;
        {
            let mut world = cluster.world.lock();
            world.splits = Vec::new();
            world.regions.truncate(1);
            let value = Bytes::from(vec![7; 3 << 20]);
            (0..30).for_each(|i| drop(world.data.insert(key(i), value.clone())));
        }
        let table = cluster.client(Options::default()).table(name());
        let values = table.batch_get((0..31).map(key).collect()).await.unwrap();
        let sizes: Vec<_> = values.iter().map(|value| value.as_ref().map(Bytes::len)).collect();
        assert_eq!(sizes, [vec![Some(3 << 20); 30], vec![None]].concat());
    });
}

#[test]
fn a_write_ends_in_one_of_three_ways() {
    single(7, |env| async move {
        let cluster = Cluster::new(&env).await;
        let options = Options { call_time: 2 * SECOND, attempt_time: 300 * MS, ..Options::default() };
        let table = cluster.client(options).table(name());
        table.put("a", "0").await.unwrap();
        let start = env.now();

        // Carried out, and no answer ever.
        cluster.set_faults(Faults { answer_lost: 100, ..Faults::default() });
        cluster.world.lock().describes = 0;
        let lost = table.increment("a", 1).await;
        assert!(matches!(lost, Err(WriteError::Unknown(ClientError::Unavailable(_)))), "{lost:?}");
        assert_eq!(cluster.world.lock().data["a".as_bytes()], "1", "once");

        // Never carried out, and refused for certain.
        cluster.set_faults(Faults::default());
        for code in [ErrorCode::Full, ErrorCode::Invalid, ErrorCode::Conflict, ErrorCode::Unavailable] {
            cluster.world.lock().refuse_writes = Some(code);
            let refused = table.increment("a", 1).await;
            assert!(matches!(refused, Err(WriteError::NotDone(_))), "{code}: {refused:?}");
        }
        // Nobody knows, says the server, again and again.
        for code in [ErrorCode::Unknown, ErrorCode::Io] {
            cluster.world.lock().refuse_writes = Some(code);
            let refused = table.increment("a", 1).await;
            assert!(matches!(refused, Err(WriteError::Unknown(_))), "{code}: {refused:?}");
        }
        cluster.world.lock().refuse_writes = None;

        // Nobody there.
        cluster.stop_all();
        env.sleep(MS).await;
        let refused = table.increment("a", 1).await;
        assert!(matches!(refused, Err(WriteError::NotDone(ClientError::Unavailable(_)))), "{refused:?}");
        assert!(matches!(table.get("a").await, Err(ClientError::Unavailable(_))));
        let took = env.now().since(start);
        assert!(took < 5 * 2 * SECOND + SECOND, "each call ends in its time: {took:?}");
    });
}

/// A refusal of the second attempt says nothing about the first.
#[test]
fn a_refusal_after_a_lost_answer_leaves_the_outcome_unknown() {
    single(8, |env| async move {
        let cluster = Cluster::new(&env).await;
        let table = cluster.table();
        table.put("a", "0").await.unwrap();
        cluster.set_faults(Faults { answer_lost: 100, ..Faults::default() });
        let call = env.spawn("call", {
            let table = table.clone();
            async move { table.increment("a", 1).await }
        });
        env.sleep(100 * MS).await;
        cluster.set_faults(Faults::default());
        cluster.world.lock().refuse_writes = Some(ErrorCode::Full);
        let end = call.await.unwrap();
        assert!(matches!(end, Err(WriteError::Unknown(ClientError::Full(_)))), "{end:?}");
    });
}

#[test]
fn a_region_that_is_replaced_is_found_again() {
    single(9, |env| async move {
        let cluster = Cluster::new(&env).await;
        let table = cluster.table();
        table.put("a", "1").await.unwrap();
        for (number, region) in cluster.world.lock().regions.iter_mut().zip(10..).map(|(r, n)| (n, r)) {
            region.0 = RegionId(number);
        }
        assert_eq!(table.get("a").await, Ok(Some("1".into())));
        cluster.world.lock().regions.iter_mut().for_each(|region| region.0.0 += 10);
        table.put("a", "2").await.unwrap();
        assert_eq!(table.increment("a", 1).await, Ok(3));

        // A write that may have happened in the old region must not happen again in the new.
        cluster.set_faults(Faults { answer_lost: 100, ..Faults::default() });
        let call = env.spawn("call", {
            let table = table.clone();
            async move { table.increment("a", 1).await }
        });
        env.sleep(100 * MS).await;
        cluster.set_faults(Faults::default());
        cluster.world.lock().regions.iter_mut().for_each(|region| region.0.0 += 10);
        assert!(matches!(call.await.unwrap(), Err(WriteError::Unknown(_))));
        assert_eq!(table.get("a").await, Ok(Some("4".into())));
    });
}

#[test]
fn a_failing_primary_is_no_reason_for_a_herd() {
    single(10, |env| async move {
        let cluster = Cluster::new(&env).await;
        let table = cluster.table();
        table.get("a").await.unwrap();
        cluster.world.lock().describes = 0;
        cluster.set_faults(Faults { unavailable: 100, ..Faults::default() });
        let calls = (0..500).map(|i| {
            let table = table.clone();
            async move { table.get(key(i)).await }
        });
        let (results, ()) = futures_util::future::join(all(calls), async {
            env.sleep(5 * SECOND).await;
            cluster.set_faults(Faults::default());
        })
        .await;
        assert!(results.iter().all(|result| *result == Ok(None)));
        let describes = cluster.world.lock().describes;
        assert!(describes < 100, "{describes} region maps for 500 calls");
    });
}

#[test]
fn a_scan_gives_every_record() {
    single(11, |env| async move {
        let cluster = Cluster::new(&env).await;
        let table = cluster.table();
        assert_eq!(table.scan().collect().await, Ok(Vec::new()));
        let records: Vec<_> = (0..2000).map(|i| (key(i), Bytes::from(format!("value {i}")))).collect();
        assert!(table.batch_put(records.clone()).await.iter().all(Result::is_ok));
        cluster.set_faults(ALL_FAULTS);
        let churn = cluster.churn();
        let scanned = table.scan().records_at_a_time(50).collect().await.unwrap();
        churn.abort();
        let scanned: BTreeMap<_, _> = scanned.into_iter().collect();
        assert_eq!(scanned, records.into_iter().collect());
    });
}

fn spec() -> TableSpec {
    TableSpec { durability: Durability::Buffered, ..TableSpec::new(1) }
}

#[test]
fn any_node_will_do_and_a_dead_one_is_passed_over() {
    single(12, |env| async move {
        let cluster = Cluster::new(&env).await;
        let mut seeds = vec!["127.0.0.1:1".to_owned(), "127.0.0.1:2".to_owned()];
        seeds.push(cluster.world.lock().addresses[0].clone());
        let client = Client::connect(env.clone(), seeds, patient());
        let start = env.now();
        client.create_table("x:y".parse().unwrap(), spec(), Vec::new()).await.unwrap();
        client.hand_over(RegionId(1), ServerId(2)).await.unwrap();
        assert!(env.now().since(start) < SECOND);
        let missing = client.describe_table("no:such".parse().unwrap()).await;
        assert!(matches!(missing, Err(ClientError::NotFound(_))), "{missing:?}");
        let missing = client.table("no:such".parse().unwrap()).put("a", "b").await;
        assert!(matches!(missing, Err(WriteError::NotDone(ClientError::NotFound(_)))), "{missing:?}");
        assert_eq!(client.describe_table(name()).await.unwrap().regions.len(), 6);
    });
}

#[test]
fn an_order_whose_answer_is_lost_is_repeated_only_if_that_does_no_harm() {
    single(13, |env| async move {
        let cluster = Cluster::new(&env).await;
        let client = cluster.client(patient());
        cluster.world.lock().admin_answers_lost = 1;
        client.drop_table(name()).await.expect("gone at the first attempt, and the second says so");
        assert_eq!(cluster.world.lock().admin.len(), 2);
        let again = client.drop_table(name()).await;
        assert!(matches!(again, Err(WriteError::NotDone(ClientError::NotFound(_)))), "{again:?}");

        cluster.world.lock().admin.clear();
        cluster.world.lock().admin_answers_lost = 1;
        let lost = client.recover_accept_loss(RegionId(1), ServerId(1)).await;
        assert!(matches!(lost, Err(WriteError::Unknown(_))), "{lost:?}");
        assert_eq!(cluster.world.lock().admin.len(), 1);
        client.recover_accept_loss(RegionId(1), ServerId(1)).await.unwrap();
    });
}

#[test]
fn a_client_that_no_node_wants_is_told_at_once() {
    single(14, |env| async move {
        let cluster = Cluster::new(&env).await;
        let start = env.now();
        let stranger = cluster.client(Options { cluster: Some(ClusterId(2)), ..patient() });
        let refused = stranger.status().await;
        assert!(matches!(refused, Err(ClientError::Refused(_))), "{refused:?}");
        let secret = Secret::new(b"a secret that nobody asks for").unwrap();
        let refused = cluster.client(Options { secret: Some(secret), ..patient() }).table(name()).get("a").await;
        assert!(matches!(refused, Err(ClientError::Refused(_))), "{refused:?}");
        assert!(env.now().since(start) < SECOND);
    });
}

/// What the clients of [`apart`] have done: a key counted up, and when.
type Counted = Arc<Mutex<Vec<(u64, Duration)>>>;

const KEYS: u64 = 12;
const NODES: [&str; 3] = ["node-0", "node-1", "node-2"];

/// Three nodes and a client, each on a machine of its own, that counts up each of some keys all the time.
fn apart(seed: u64) -> (World, Arc<Mutex<Toy>>, Counted) {
    let mut world = World::new(WorldOptions::new(seed));
    let addresses: Vec<String> = NODES.map(|node| format!("{node}:7000")).into();
    let toy = Arc::new(Mutex::new(Toy { addresses: addresses.clone(), ..six_regions() }));
    let counted = Counted::default();
    for (number, node) in NODES.into_iter().enumerate() {
        let toy = toy.clone();
        world.add_node(node, &format!("10.0.0.{}", number + 1), move |env| {
            let world = toy.clone();
            Box::pin(async move {
                let listener = env.net().listen("0.0.0.0:7000").await?;
                let node = Arc::new(Node { env: env.clone(), number, world });
                native::serve(env, listener, node, native::Options::default()).await;
                Ok(())
            })
        });
    }
    let out = counted.clone();
    world.add_node("client", "10.0.1.1", move |env| {
        let (addresses, counted) = (addresses.clone(), out.clone());
        Box::pin(async move {
            let table = Client::connect(env.clone(), addresses, patient()).table(name());
            let start = env.now();
            let counters = (0..KEYS).map(|number| {
                let (table, env, counted) = (table.clone(), env.clone(), counted.clone());
                async move {
                    loop {
                        table.increment(key(number), 1).await.unwrap();
                        counted.lock().push((number, env.now().since(start)));
                        env.sleep(50 * MS).await;
                    }
                }
            });
            all(counters).await;
            Ok(())
        })
    });
    (world, toy, counted)
}

/// Runs until each key has been counted once more. How long that took.
fn until_all_count(world: &mut World, counted: &Counted) -> Duration {
    let (start, seen) = (world.now(), counted.lock().len());
    let all_count = |_: &mut World| {
        let counted = counted.lock();
        (0..KEYS).all(|number| counted[seen..].iter().any(|(key, _)| *key == number))
    };
    assert!(world.run_until(30 * SECOND, all_count).expect("healthy"), "some keys are not counted any more");
    world.now() - start
}

/// Bytes that a partition swallows leave connections that look alive. Nobody may wait for them for long, nor count twice.
#[test]
fn after_a_partition_or_a_crash_all_goes_on_soon_and_exactly() {
    for seed in 0..3 {
        let (mut world, toy, counted) = apart(seed);
        until_all_count(&mut world, &counted);
        for round in 0..12 {
            let node = NODES[round % 3];
            let length = MS * (300 + 977 * (seed as u32 + round as u32) % 4000);
            match round % 4 {
                0 => world.partition("client", node),
                1 => world.partition_oneway("client", node),
                2 => world.partition_oneway(node, "client"),
                _ => world.crash(node, CrashKind::Power),
            }
            world.run_for(length).expect("healthy");
            match round % 4 {
                3 => world.restart(node),
                _ => world.repair_all(),
            }
            let took = until_all_count(&mut world, &counted);
            assert!(took < 4 * SECOND, "seed {seed}, round {round}: {took:?} after {length:?}");
        }
        let done = counted.lock().len() as u64;
        let writes = toy.lock().writes;
        assert!((done..=done + KEYS).contains(&writes), "{writes} writes, {done} acknowledged");
        let sum: u64 = toy.lock().data.values().map(|n| std::str::from_utf8(n).unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, writes);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = || {
        let (mut world, _, counted) = apart(9);
        until_all_count(&mut world, &counted);
        world.crash("node-1", CrashKind::Process);
        world.partition("client", "node-2");
        world.run_for(2 * SECOND).expect("healthy");
        world.repair_all();
        world.restart("node-1");
        until_all_count(&mut world, &counted);
        let counted = counted.lock().clone();
        (world.trace().digest(), counted)
    };
    assert_eq!(trace(), trace());
}

/// The same over the kernel's sockets, where closing with unread input throws away the last words.
#[test]
fn real_sockets_carry_it_too() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = env::real::runtime().unwrap();
    runtime.block_on(async {
        let options = env::real::Options {
            data_dir: folder.path().to_owned(),
            node: "test".to_owned(),
            io: env::real::IoChoice::Threads,
        };
        let env = env::real::open(options).unwrap();
        env.enter(async {
            let cluster = Cluster::new(&env).await;
            let table = cluster.table();
            let counters = (0..64).map(|number| {
                let table = table.clone();
                async move {
                    for count in 1..=100 {
                        assert_eq!(table.increment(key(number), 1).await, Ok(count));
                    }
                }
            });
            let start = env.now();
            all(counters).await;
            println!("6400 increments of 64 callers in {:?}", env.now().since(start));
            let records: Vec<_> = (0..5000).map(|i| (key(i), Bytes::from(vec![7; 1000]))).collect();
            assert!(table.batch_put(records).await.iter().all(Result::is_ok));
            let values = table.batch_get((0..5000).map(key).collect()).await.unwrap();
            assert!(values.iter().all(|value| value.as_ref().is_some_and(|value| value.len() == 1000)));

            let address = cluster.world.lock().addresses[0].clone();
            let mut stream = env.net().connect(&address).await.unwrap();
            let much = [&b"GET / HTTP/1.1\r\n"[..], &vec![b'x'; 100_000]].concat();
            stream.write_all(&much).await.unwrap();
            let mut heard = String::new();
            env.timeout(10 * SECOND, stream.read_to_string(&mut heard)).await.unwrap().unwrap();
            assert!(heard.starts_with("HTTP/1.1 400 "), "{heard:?}");
        })
        .await;
    });
}

//! Master groups behind real front ends on simulated nodes, with crashes, power losses and partitions between them.

use bytes::Bytes;
use env::sim::{CrashKind, Dice, Digest, NodeState, World, WorldOptions, stream};
use env::{BoxFuture, Env};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use steadfast::frontend::native::{self, Options, Service};
use steadfast::master::placement::Patience;
use steadfast::master::raft::RaftTiming;
use steadfast::master::transport::PoolTransport;
use steadfast::master::{Master, MasterOptions, Timing};
use steadfast::protocol::connection::Caller;
use steadfast::protocol::message::*;
use steadfast::protocol::peer::PeerMessage;
use steadfast::protocol::pool::Pool;
use steadfast::region::{Change, RegionConfig, Seqno, ServerId, TableName, TableSpec};

const SECOND: Duration = Duration::from_secs(1);

fn timing() -> Timing {
    Timing {
        raft: RaftTiming { heartbeat_ms: 100, election_min_ms: 400, election_max_ms: 800, data_ms: 2000 },
        tick_ms: 100,
        liveness_ms: 1500,
        patience: Patience { missing_ms: 3000, learner_ms: 5000, step_ms: 300 },
        request_ms: 2000,
    }
}

/// A master as a node's service.
struct Front(Arc<Master>);

impl Service for Front {
    fn identity(&self) -> Welcome {
        Welcome { cluster: self.0.cluster(), role: Role::Master }
    }

    fn request(&self, request: Request) -> BoxFuture<'static, Response> {
        let master = self.0.clone();
        Box::pin(async move { master.handle(request).await })
    }

    fn peer(&self, _: ServerId, _: PeerMessage) {}

    fn raft(&self, body: Bytes) -> BoxFuture<'static, Result<Bytes, Error>> {
        let master = self.0.clone();
        Box::pin(async move { master.raft(body).await })
    }
}

/// A simulated group, and a look at each running master of it.
struct Stage {
    world: World,
    masters: BTreeMap<u64, String>,
    running: Arc<Mutex<BTreeMap<u64, Weak<Master>>>>,
}

fn node(id: u64) -> String {
    format!("master-{id}")
}

impl Stage {
    fn new(seed: u64, masters: u64) -> Stage {
        let masters: BTreeMap<u64, String> = (1..=masters).map(|id| (id, format!("{}:7000", node(id)))).collect();
        let mut stage = Stage { world: World::new(WorldOptions::new(seed)), masters, running: Arc::default() };
        for id in stage.masters.keys().copied().collect::<Vec<_>>() {
            let (masters, running) = (stage.masters.clone(), stage.running.clone());
            stage.world.add_node(&node(id), &format!("192.168.0.{id}"), move |env| {
                Box::pin(run(env, id, masters.clone(), running.clone()))
            });
        }
        stage
    }

    /// Adds a node that runs `script` once.
    fn client<F>(&mut self, script: impl Fn(Client) -> F + Clone + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let masters = self.masters.clone();
        self.world.add_node("client", "192.168.0.100", move |env| {
            let (script, client) = (script.clone(), Client::new(env, masters.values().cloned().collect()));
            Box::pin(async move {
                script(client).await;
                Ok(())
            })
        });
    }

    fn active(&self) -> Option<u64> {
        let running = self.running.lock().unwrap();
        let active =
            |(&id, master): (&u64, &Weak<Master>)| Some((master.upgrade()?, id)).filter(|(m, _)| m.is_active());
        running.iter().filter_map(active).max_by_key(|(master, _)| master.standing().term).map(|(_, id)| id)
    }

    fn wait_for_active(&mut self) -> u64 {
        let (running, count) = (self.running.clone(), self.masters.len());
        let stage = |_: &mut World| {
            let running = running.lock().unwrap();
            let live = running.values().filter_map(Weak::upgrade);
            live.filter(|master| master.is_active()).count() == 1 && running.len() == count
        };
        assert!(self.world.run_until(20 * SECOND, stage).unwrap(), "no master became active");
        self.active().expect("one did")
    }

    /// Runs until the client's script has ended.
    fn finish(&mut self, limit: Duration) {
        let ended = |world: &mut World| matches!(world.state("client"), NodeState::Exited(_));
        assert!(self.world.run_until(limit, ended).unwrap(), "the client is still busy");
        assert_eq!(self.world.state("client"), NodeState::Exited(Ok(())));
    }
}

async fn run(
    env: Env,
    id: u64,
    masters: BTreeMap<u64, String>,
    running: Arc<Mutex<BTreeMap<u64, Weak<Master>>>>,
) -> io::Result<()> {
    let options = MasterOptions { id, masters: masters.clone(), folder: "master".to_owned(), timing: timing() };
    let transport = Arc::new(PoolTransport::new(&env, None));
    let master = Arc::new(Master::start(env.clone(), options, transport).await.map_err(io::Error::other)?);
    running.lock().unwrap().insert(id, Arc::downgrade(&master));
    let listener = env.net().listen(&masters[&id]).await?;
    let served = native::serve(env, listener, Arc::new(Front(master.clone())), Options::default());
    tokio::select! {
        biased;
        why = master.stopped() => Err(io::Error::other(why)),
        () = served => Ok(()),
    }
}

/// Asks masters in turn.
#[derive(Clone)]
struct Client {
    env: Env,
    pool: Pool,
    masters: Vec<String>,
}

impl Client {
    fn new(env: Env, masters: Vec<String>) -> Client {
        let hello = Hello { version: VERSION, purpose: Purpose::Client, cluster: None };
        Client { pool: Pool::new(env.clone(), Caller { hello, secret: None }), env, masters }
    }

    /// One attempt at one master; `None` without an answer.
    async fn ask(&self, address: &str, request: &Request) -> Option<Response> {
        self.pool.call(address, request, self.env.now() + 4 * SECOND).await.ok()
    }

    /// Attempts at any master until one answers something other than "not now".
    async fn insist(&self, request: Request) -> Response {
        loop {
            let master = &self.masters[self.env.random_below(self.masters.len() as u64) as usize];
            match self.ask(master, &request).await {
                None => (),
                Some(Response::Error(Error { code: ErrorCode::Unavailable | ErrorCode::Unknown, .. })) => (),
                Some(response) => return response,
            }
            self.env.sleep(Duration::from_millis(100)).await;
        }
    }

    async fn register(&self, server: u64) -> ServerId {
        let (cluster, address) = (None, format!("server-{server}:7100"));
        let request = ControlRequest::Register { id: None, cluster, incarnation: server, address };
        match self.insist(Request::Control(request)).await {
            Response::Control(ControlResponse::Registered { id, .. }) => id,
            other => panic!("a registration was answered by {other:?}"),
        }
    }

    async fn report(&self, server: ServerId, incarnation: u64, replicas: Vec<ReplicaReport>) -> Response {
        let load = ServerLoad::default();
        self.insist(Request::Control(ControlRequest::Report(Report { server, incarnation, known: 0, replicas, load })))
            .await
    }

    async fn describe(&self, table: &str) -> Option<Vec<RegionConfig>> {
        match self.insist(Request::Admin(AdminRequest::DescribeTable { name: name(table) })).await {
            Response::Admin(AdminResponse::Table(map)) => Some(map.regions.into_iter().map(|r| r.config).collect()),
            Response::Error(Error { code: ErrorCode::NotFound, .. }) => None,
            other => panic!("a description was answered by {other:?}"),
        }
    }
}

fn name(table: &str) -> TableName {
    TableName { namespace: "n".to_owned(), table: table.to_owned() }
}

fn create(table: &str, factor: u8) -> Request {
    let spec = TableSpec { min_in_sync: 1, ..TableSpec::new(factor) };
    Request::Admin(AdminRequest::CreateTable { name: name(table), spec, splits: Vec::new() })
}

fn done() -> Response {
    Response::Admin(AdminResponse::Done)
}

#[test]
fn a_single_master_knows_its_tables_after_every_kind_of_restart() {
    let mut stage = Stage::new(1, 1);
    stage.client(|client| async move {
        client.register(1).await;
        for table in ["a", "b", "c"] {
            assert_eq!(client.insist(create(table, 1)).await, done());
        }
    });
    stage.finish(20 * SECOND);
    for kind in [CrashKind::Process, CrashKind::Power] {
        stage.world.crash("master-1", kind);
        stage.world.run_for(SECOND).unwrap();
        stage.world.restart("master-1");
        let master = stage.wait_for_active();
        let master = stage.running.lock().unwrap()[&master].upgrade().expect("it runs");
        assert_eq!(master.catalog().tables().len(), 3, "after {kind:?}");
        assert_eq!(master.catalog().servers().len(), 1, "after {kind:?}");
    }
}

#[test]
fn any_master_answers_for_the_active_one() {
    let mut stage = Stage::new(2, 3);
    stage.wait_for_active();
    stage.client(|client| async move {
        client.register(1).await;
        assert_eq!(client.insist(create("t", 1)).await, done());
        for master in client.masters.clone() {
            let listed = client.ask(&master, &Request::Admin(AdminRequest::ListTables)).await;
            assert_eq!(listed, Some(Response::Admin(AdminResponse::Tables(vec![name("t")]))), "{master}");
        }
        let Response::Admin(AdminResponse::Status(status)) = client.insist(Request::Admin(AdminRequest::Status)).await
        else {
            panic!("no status")
        };
        assert_eq!(status.masters.iter().filter(|master| master.active).count(), 1);
        assert_eq!((status.servers.len(), status.tables.len()), (1, 1));
        assert_eq!((status.tables[0].unavailable, status.tables[0].under_replicated), (1, 0));
    });
    stage.finish(30 * SECOND);
}

#[test]
fn an_active_master_without_a_majority_commits_nothing() {
    let mut stage = Stage::new(3, 3);
    let old = stage.wait_for_active();
    let others: Vec<u64> = (1..=3).filter(|&id| id != old).collect();
    for &other in &others {
        stage.world.partition(&node(old), &node(other));
    }
    let (isolated, majority) = (stage.masters[&old].clone(), stage.masters[&others[0]].clone());
    stage.client(move |client| {
        let (isolated, majority) = (isolated.clone(), majority.clone());
        async move {
            let register = |server: u64| {
                let (cluster, address) = (None, format!("server-{server}:7100"));
                Request::Control(ControlRequest::Register { id: None, cluster, incarnation: server, address })
            };
            let refused = client.ask(&isolated, &register(1)).await;
            assert!(matches!(refused, None | Some(Response::Error(_))), "{refused:?}");
            let read = client.ask(&isolated, &Request::Admin(AdminRequest::ListTables)).await;
            assert!(matches!(read, None | Some(Response::Error(_))), "{read:?}");
            while !matches!(client.ask(&majority, &register(2)).await, Some(Response::Control(_))) {
                client.env.sleep(Duration::from_millis(100)).await;
            }
        }
    });
    stage.finish(30 * SECOND);
    stage.world.repair_all();
    stage.world.run_for(3 * SECOND).unwrap();
    let running = stage.running.lock().unwrap();
    let catalogs: Vec<_> = running.values().map(|master| master.upgrade().expect("it runs").catalog()).collect();
    assert!(catalogs.iter().all(|catalog| *catalog == catalogs[0]));
    assert!(catalogs[0].servers().values().any(|server| server.incarnation == 2));
}

#[test]
fn placement_fills_a_region_up_and_tells_servers_what_they_hold() {
    let mut stage = Stage::new(4, 3);
    stage.client(|client| async move {
        let mut servers = Vec::new();
        for server in 1..=4u64 {
            servers.push((client.register(server).await, server));
        }
        let hear = async |replicas: &(dyn Fn(ServerId) -> Vec<ReplicaReport> + Sync)| {
            for &(id, incarnation) in &servers {
                client.report(id, incarnation, replicas(id)).await;
            }
        };
        hear(&|_| Vec::new()).await;
        assert_eq!(client.insist(create("t", 3)).await, done());
        let before = client.describe("t").await.expect("it was made").remove(0);
        let (by, lost) = (before.primary.unwrap(), before.in_sync[2]);
        let change = Change::Drop { by, backups: vec![lost] };
        let propose = ControlRequest::Propose { region: before.region, epoch: before.epoch, change };
        let Response::Control(ControlResponse::Changed(dropped)) = client.insist(Request::Control(propose)).await
        else {
            panic!("refused")
        };
        assert_eq!(dropped.in_sync.len(), 2);
        let former = |server: ServerId| {
            let (region, epoch, durable) = (before.region, before.epoch, Seqno(1));
            let replica = ReplicaReport { epoch, durable, ..ReplicaReport::idle(region) };
            if server == lost { vec![replica] } else { Vec::new() }
        };
        let refused = Change::AddLearner { server: lost };
        let propose = ControlRequest::Propose { region: before.region, epoch: dropped.epoch, change: refused };
        let answer = client.insist(Request::Control(propose)).await;
        assert!(matches!(answer, Response::Error(Error { code: ErrorCode::Invalid, .. })), "{answer:?}");
        loop {
            hear(&former).await;
            let config = client.describe("t").await.expect("it is there").remove(0);
            if config.learners == [lost] {
                break;
            }
            assert_eq!(config.learners, [], "somebody else was taken");
        }
        let Response::Control(ControlResponse::Assigned(assigned)) = client.report(lost, lost.0, former(lost)).await
        else {
            panic!("not assigned")
        };
        assert!(assigned.discard.is_empty());
        let regions = assigned.regions.expect("it knows nothing");
        assert_eq!(regions.iter().map(|region| region.config.learners.clone()).collect::<Vec<_>>(), [vec![lost]]);
        assert_eq!(assigned.servers.expect("it knows nothing").len(), 4);
        let stranger = client.report(lost, 99, Vec::new()).await;
        assert!(matches!(stranger, Response::Error(Error { code: ErrorCode::Fenced, .. })), "{stranger:?}");
    });
    stage.finish(60 * SECOND);
}

/// What a client was promised in a run with faults.
#[derive(Default)]
struct Promised {
    created: BTreeSet<String>,
    dropped: BTreeSet<String>,
    config: Option<RegionConfig>,
    answers: u64,
}

/// Creates and drops tables and moves a region from epoch to epoch, until told to stop.
async fn churn(client: Client, promised: Arc<Mutex<Promised>>, until: Duration) {
    let mut servers = Vec::new();
    for server in 1..=3u64 {
        servers.push((client.register(server).await, server));
    }
    for number in 0.. {
        if client.env.now().since_origin() > until {
            return;
        }
        for &(id, incarnation) in &servers {
            client.report(id, incarnation, Vec::new()).await;
        }
        let table = format!("t{number}");
        let made = client.ask(&client.masters[number % client.masters.len()], &create(&table, 2)).await;
        if made == Some(done()) {
            promised.lock().unwrap().created.insert(table.clone());
        }
        if number % 3 == 2 && made == Some(done()) {
            let drop = Request::Admin(AdminRequest::DropTable { name: name(&table) });
            promised.lock().unwrap().created.remove(&table);
            if client.ask(&client.masters[number % client.masters.len()], &drop).await == Some(done()) {
                promised.lock().unwrap().dropped.insert(table);
            }
        }
        step_region(&client, &promised).await;
        promised.lock().unwrap().answers += 1;
    }
}

/// Reads the first region's configuration, which must not be older than the last promised one, and takes it a step on.
async fn step_region(client: &Client, promised: &Mutex<Promised>) {
    let Some(mut configs) = client.describe("t0").await else { return };
    let config = configs.remove(0);
    if let Some(last) = &promised.lock().unwrap().config {
        assert!(config.epoch > last.epoch || config == *last, "promised {last:?}, then read {config:?}");
    }
    let by = config.primary.expect("nobody leaves");
    let change = match (config.in_sync.len(), config.learners.first()) {
        (1, None) => return,
        (1, Some(&learner)) => Change::Admit { by, learner },
        _ => Change::Drop { by, backups: config.others(by).filter(|&other| config.is_in_sync(other)).collect() },
    };
    let propose = ControlRequest::Propose { region: config.region, epoch: config.epoch, change: change.clone() };
    let answer = client.ask(&client.masters[0], &Request::Control(propose)).await;
    if let Some(Response::Control(ControlResponse::Changed(next))) = answer {
        assert_eq!(next, config.change(&change).expect("it was legal"));
        promised.lock().unwrap().config = Some(next);
    }
}

/// One fault, or the end of one.
fn disturb(stage: &mut Stage, dice: &mut Dice) {
    let one = node(1 + dice.below(3));
    let other = node(1 + dice.below(3));
    let is_down = matches!(stage.world.state(&one), NodeState::Crashed(_));
    match dice.below(6) {
        _ if is_down => stage.world.restart(&one),
        0 => stage.world.crash(&one, CrashKind::Process),
        1 => stage.world.crash(&one, CrashKind::Power),
        2 if one != other => stage.world.partition(&one, &other),
        3 if one != other => stage.world.partition_oneway(&one, &other),
        _ => stage.world.repair_all(),
    }
}

fn disturbed(seed: u64) -> (Digest, u64) {
    let mut stage = Stage::new(seed, 3);
    let promised = Arc::new(Mutex::new(Promised::default()));
    let origin = stage.world.now();
    let shared = promised.clone();
    stage.client(move |client| {
        let until = client.env.now().since_origin() + 25 * SECOND;
        churn(client, shared.clone(), until)
    });
    let mut dice = stream(seed, "disturbances");
    stage.wait_for_active();
    while stage.world.now() - origin < 20 * SECOND {
        stage.world.run_for(Duration::from_millis(dice.between(200, 2000))).unwrap();
        disturb(&mut stage, &mut dice);
    }
    heal(&mut stage);
    stage.finish(60 * SECOND);
    check(&mut stage, &promised);
    for id in 1..=3 {
        stage.world.crash(&node(id), CrashKind::Power);
    }
    heal(&mut stage);
    check(&mut stage, &promised);
    let answers = promised.lock().unwrap().answers;
    (stage.world.trace().digest(), answers)
}

fn heal(stage: &mut Stage) {
    stage.world.repair_all();
    for id in 1..=3 {
        if !matches!(stage.world.state(&node(id)), NodeState::Up) {
            stage.world.restart(&node(id));
        }
    }
}

/// All that was promised is in the catalog of the active master.
fn check(stage: &mut Stage, promised: &Mutex<Promised>) {
    stage.wait_for_active();
    stage.world.run_for(SECOND).unwrap();
    let active = stage.active().expect("one is");
    let master = stage.running.lock().unwrap()[&active].upgrade().expect("it runs");
    let catalog = master.catalog();
    catalog.check().unwrap();
    let promised = promised.lock().unwrap();
    let tables: BTreeSet<String> = catalog.tables().keys().map(|name| name.table.clone()).collect();
    assert!(promised.created.is_subset(&tables), "lost {:?}", promised.created.difference(&tables));
    assert!(promised.dropped.is_disjoint(&tables), "came back {:?}", promised.dropped.intersection(&tables));
    if let Some(last) = &promised.config {
        let config = &catalog.regions()[&last.region].config;
        assert!(config.epoch > last.epoch || config == last, "promised {last:?}, is {config:?}");
    }
}

#[test]
fn what_was_promised_survives_crashes_and_partitions() {
    for seed in 10..15 {
        let (_, answers) = disturbed(seed);
        assert!(answers > 10, "seed {seed} did nothing: {answers}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(disturbed(20), disturbed(20));
}

#[test]
fn a_clean_stop_and_a_start_in_the_same_process() {
    env::sim::single(30, |env| async move {
        let masters = BTreeMap::from([(1, "single:7000".to_owned())]);
        for round in 0..3 {
            let options =
                MasterOptions { id: 1, masters: masters.clone(), folder: "master".to_owned(), timing: timing() };
            let transport = Arc::new(PoolTransport::new(&env, None));
            let master = Master::start(env.clone(), options, transport).await.expect("the folder is free");
            while master.cluster().is_none() || !master.is_active() {
                env.sleep(Duration::from_millis(50)).await;
            }
            let (cluster, address) = (master.cluster(), format!("server-{round}:1"));
            let register = ControlRequest::Register { id: None, cluster, incarnation: round, address };
            let answer = master.handle(Request::Control(register)).await;
            let id = ServerId(round + 1);
            let expected = ControlResponse::Registered { id, cluster: cluster.expect("founded above") };
            assert_eq!(answer, Response::Control(expected));
            master.stop().await;
        }
    });
}

#[test]
fn a_master_whose_disk_fails_stops_and_says_so() {
    let mut stage = Stage::new(5, 1);
    stage.wait_for_active();
    stage.world.disk("master-1").faults(|faults| faults.sync = env::sim::Failing::NEXT);
    stage.client(|client| async move {
        let (cluster, address) = (None, "server-1:7100".to_owned());
        let request = ControlRequest::Register { id: None, cluster, incarnation: 1, address };
        let answer = client.ask(&client.masters[0], &Request::Control(request)).await;
        assert!(matches!(answer, None | Some(Response::Error(_))), "{answer:?}");
    });
    stage.finish(20 * SECOND);
    stage.world.run_for(SECOND).unwrap();
    assert!(matches!(stage.world.state("master-1"), NodeState::Exited(Err(_))), "{:?}", stage.world.state("master-1"));
}

use super::*;
use crate::master::state::{Command, Outcome};
use crate::protocol::message::ClusterId;
use crate::region::{RegionConfig, Seqno, TableName, even_splits};

const LIVENESS_MS: u64 = 3000;
const PATIENCE: Patience = Patience { missing_ms: 10_000, learner_ms: 20_000, step_ms: 1000 };

/// A catalog, what its master sees, and a clock.
struct Bench {
    catalog: Catalog,
    view: View,
    memory: Memory,
    now_ms: u64,
}

impl Bench {
    fn new(servers: u64) -> Bench {
        let mut catalog = Catalog::default();
        catalog.apply(&Command::Found { cluster: ClusterId(1) }).unwrap();
        for server in 1..=servers {
            let command = Command::Register { id: None, incarnation: server, address: format!("s{server}:1") };
            catalog.apply(&command).unwrap();
        }
        let view = View::new(0, LIVENESS_MS);
        let mut bench = Bench { catalog, view, memory: Memory::default(), now_ms: LIVENESS_MS + 1 };
        (1..=servers).for_each(|server| bench.hear(server, &[]));
        bench
    }

    fn spec(factor: u8) -> TableSpec {
        TableSpec { min_in_sync: 1, ..TableSpec::new(factor) }
    }

    fn create(&mut self, factor: u8, regions: u32) {
        let spec = Bench::spec(factor);
        let members = choose_members(&self.catalog, &self.view, &spec, regions as usize, self.now_ms).unwrap();
        let name = TableName { namespace: "n".to_owned(), table: "t".to_owned() };
        let command = Command::CreateTable { name, spec, splits: even_splits(regions), members };
        self.catalog.apply(&command).unwrap();
    }

    fn hear(&mut self, server: u64, replicas: &[(u64, ReplicaState, u64)]) {
        let replica = |&(region, state, durable)| {
            let (epoch, durable) = (Epoch(1), Seqno(durable));
            ReplicaReport { epoch, state, durable, ..ReplicaReport::idle(RegionId(region)) }
        };
        let replicas = replicas.iter().map(replica).collect();
        let load = ServerLoad::default();
        self.view
            .reported(Report { server: ServerId(server), incarnation: server, known: 0, replicas, load }, self.now_ms);
    }

    /// Time passes, and only `alive` say that they live.
    fn pass(&mut self, ms: u64, alive: &[u64]) {
        self.now_ms += ms;
        for &server in alive {
            self.view.seen(ServerId(server), self.now_ms);
        }
    }

    fn plan(&mut self) -> Vec<Step> {
        plan(&self.catalog, &self.view, &PATIENCE, &mut self.memory, self.now_ms)
    }

    fn change(&mut self, region: u64, change: Change) -> RegionConfig {
        let epoch = self.catalog.regions()[&RegionId(region)].config.epoch;
        let command = Command::Change { region: RegionId(region), epoch, change };
        match self.catalog.apply(&command) {
            Ok(Outcome::Changed(config)) => config,
            other => panic!("{command}: {other:?}"),
        }
    }

    /// Plans a round and has the catalog follow it.
    fn round(&mut self) -> Vec<Change> {
        let steps = self.plan();
        steps.into_iter().map(|step| (self.change(step.region.0, step.change.clone()), step.change).1).collect()
    }

    fn lose_backup(&mut self, region: u64, backup: u64) {
        let by = self.catalog.regions()[&RegionId(region)].config.primary.unwrap();
        self.change(region, Change::Drop { by, backups: vec![ServerId(backup)] });
    }
}

fn learner(server: u64) -> Change {
    Change::AddLearner { server: ServerId(server) }
}

#[test]
fn a_new_table_is_spread_evenly() {
    let mut bench = Bench::new(5);
    bench.create(3, 50);
    for (server, share) in shares(&bench.catalog) {
        assert_eq!(share, Share { primaries: 10, replicas: 30, learners: 0 }, "server {server}");
    }
}

#[test]
fn a_new_table_uses_live_servers_only() {
    let mut bench = Bench::new(4);
    bench.pass(LIVENESS_MS + 1, &[1, 3]);
    bench.create(3, 4);
    let shares = shares(&bench.catalog);
    assert_eq!(shares.values().map(|share| share.replicas).collect::<Vec<_>>(), [4, 0, 4, 0]);
    bench.pass(LIVENESS_MS + 1, &[]);
    let nobody = choose_members(&bench.catalog, &bench.view, &Bench::spec(1), 1, bench.now_ms);
    assert!(nobody.unwrap_err().message.contains("0 servers are alive"));
}

#[test]
fn a_healthy_cluster_is_left_alone() {
    let mut bench = Bench::new(5);
    bench.create(3, 20);
    for _ in 0..50 {
        bench.pass(1000, &[1, 2, 3, 4, 5]);
        assert_eq!(bench.plan(), []);
    }
}

#[test]
fn a_backup_that_returns_is_taken_back_at_once() {
    let mut bench = Bench::new(4);
    bench.create(3, 1);
    bench.lose_backup(1, 3);
    assert_eq!(bench.plan(), [], "it gets time to come back");
    bench.hear(3, &[(1, ReplicaState::Former, 5)]);
    assert_eq!(bench.round(), [learner(3)]);
    bench.pass(60_000, &[1, 2, 3, 4]);
    assert_eq!(bench.plan(), [], "it copies");
    bench.change(1, Change::Admit { by: ServerId(1), learner: ServerId(3) });
    assert_eq!(bench.plan(), []);
}

#[test]
fn a_backup_that_stays_away_is_replaced() {
    let mut bench = Bench::new(4);
    bench.create(3, 1);
    bench.lose_backup(1, 3);
    assert_eq!(bench.plan(), []);
    bench.pass(PATIENCE.missing_ms - 1, &[1, 2, 4]);
    assert_eq!(bench.plan(), []);
    bench.pass(1, &[1, 2, 4]);
    assert_eq!(bench.round(), [learner(4)]);
    bench.hear(3, &[(1, ReplicaState::Former, 5)]);
    bench.pass(PATIENCE.step_ms, &[1, 2, 3, 4]);
    assert_eq!(bench.plan(), [], "there are enough");
    let config = &bench.catalog.regions()[&RegionId(1)].config;
    assert_eq!((config.in_sync.len(), &config.learners[..]), (2, &[ServerId(4)][..]));
    assert_eq!(discards(&bench.catalog, ServerId(3), &reports(1)), [], "not before the new one is in sync");
    bench.change(1, Change::Admit { by: ServerId(1), learner: ServerId(4) });
    assert_eq!(discards(&bench.catalog, ServerId(3), &reports(1)), [RegionId(1)]);
    assert_eq!(discards(&bench.catalog, ServerId(2), &reports(1)), []);
}

fn reports(region: u64) -> Vec<ReplicaReport> {
    vec![ReplicaReport { epoch: Epoch(1), durable: Seqno(1), ..ReplicaReport::idle(RegionId(region)) }]
}

#[test]
fn of_two_former_holders_the_one_that_lacks_less_is_taken() {
    let mut bench = Bench::new(5);
    bench.create(3, 1);
    bench.lose_backup(1, 3);
    bench.hear(4, &[(1, ReplicaState::Former, 3)]);
    bench.hear(5, &[(1, ReplicaState::Former, 8)]);
    assert_eq!(bench.round(), [learner(5)]);
}

#[test]
fn a_dead_learner_is_given_up_when_another_can_take_its_place() {
    let mut bench = Bench::new(3);
    bench.create(3, 1);
    bench.lose_backup(1, 3);
    bench.change(1, learner(3));
    bench.pass(PATIENCE.learner_ms + 1, &[1, 2]);
    assert_eq!(bench.plan(), [], "nobody else is there");
    let command = Command::Register { id: None, incarnation: 4, address: "s4:1".to_owned() };
    bench.catalog.apply(&command).unwrap();
    bench.view.seen(ServerId(4), bench.now_ms);
    assert_eq!(bench.round(), [Change::RemoveLearner { server: ServerId(3) }]);
    assert_eq!(bench.plan(), [], "one step at a time");
    bench.pass(PATIENCE.missing_ms, &[1, 2, 4]);
    assert_eq!(bench.round(), [learner(4)]);
}

#[test]
fn a_new_active_master_waits_before_it_believes_anybody_dead() {
    let mut bench = Bench::new(4);
    bench.create(3, 1);
    bench.lose_backup(1, 3);
    bench.plan();
    bench.pass(PATIENCE.missing_ms, &[1, 2, 4]);
    bench.view = View::new(bench.now_ms, LIVENESS_MS);
    bench.pass(LIVENESS_MS, &[4]);
    assert_eq!(bench.plan(), []);
    bench.pass(1, &[4]);
    assert_eq!(bench.plan().len(), 1);
}

#[test]
fn the_loss_of_a_server_does_not_drown_the_others() {
    let mut bench = Bench::new(4);
    bench.create(3, 100);
    for region in 1..=100 {
        let config = bench.catalog.regions()[&RegionId(region)].config.clone();
        match config.is_in_sync(ServerId(4)) {
            true if config.is_primary(ServerId(4)) => {
                bench.change(region, Change::Promote { candidate: config.in_sync[1] })
            }
            true => bench.change(region, Change::Drop { by: config.primary.unwrap(), backups: vec![ServerId(4)] }),
            false => config,
        };
    }
    bench.plan();
    let mut rounds = 0;
    loop {
        bench.pass(PATIENCE.missing_ms, &[1, 2, 3]);
        let changes = bench.round();
        assert!(changes.len() <= 3 * LEARNERS_PER_SERVER_MAX);
        if changes.is_empty() {
            break;
        }
        rounds += 1;
        for region in 1..=100 {
            let config = bench.catalog.regions()[&RegionId(region)].config.clone();
            if let (Some(by), Some(&learner)) = (config.primary, config.learners.first()) {
                bench.change(region, Change::Admit { by, learner });
            }
        }
    }
    let full = |region: &Region| region.config.in_sync.len() == 3;
    assert!(bench.catalog.regions().values().all(full));
    assert!((3..=6).contains(&rounds), "{rounds} rounds");
}

#[test]
fn data_of_dropped_regions_is_discarded_and_of_unknown_ones_kept() {
    let mut bench = Bench::new(1);
    bench.create(1, 1);
    assert_eq!(discards(&bench.catalog, ServerId(1), &reports(1)), []);
    let name = bench.catalog.tables().keys().next().unwrap().clone();
    bench.catalog.apply(&Command::DropTable { name }).unwrap();
    assert_eq!(discards(&bench.catalog, ServerId(1), &reports(1)), [RegionId(1)]);
    assert_eq!(discards(&bench.catalog, ServerId(1), &reports(99)), []);
}

use super::*;
use crate::region::{Salt, even_splits};
use proptest::prelude::*;

const CLUSTER: ClusterId = ClusterId(7);

fn spec(factor: u8) -> TableSpec {
    TableSpec { salt: Some(Salt::Xxh32), ..TableSpec::new(factor) }
}

fn name(table: &str) -> TableName {
    TableName { namespace: "n".to_owned(), table: table.to_owned() }
}

fn register(id: Option<u64>, incarnation: u64, address: &str) -> Command {
    Command::Register { id: id.map(ServerId), incarnation, address: address.to_owned() }
}

fn ids(list: &[u64]) -> Vec<ServerId> {
    list.iter().copied().map(ServerId).collect()
}

fn create(table: &str, factor: u8, members: &[&[u64]]) -> Command {
    let splits = even_splits(members.len() as u32);
    let members = members.iter().map(|list| ids(list)).collect();
    Command::CreateTable { name: name(table), spec: spec(factor), splits, members }
}

fn change(region: u64, epoch: u64, change: Change) -> Command {
    Command::Change { region: RegionId(region), epoch: Epoch(epoch), change }
}

/// A cluster of so many servers and no tables.
fn cluster(servers: u64) -> Catalog {
    let mut catalog = Catalog::default();
    catalog.apply(&Command::Found { cluster: CLUSTER }).unwrap();
    for server in 1..=servers {
        let registered = catalog.apply(&register(None, 100 + server, &format!("server-{server}:1"))).unwrap();
        assert_eq!(registered, Outcome::Registered(ServerId(server)));
    }
    catalog
}

fn refusal(answer: Applied) -> (ErrorCode, String) {
    let error = answer.expect_err("it is to be refused");
    (error.code, error.message)
}

#[test]
fn a_cluster_is_founded_once() {
    let mut catalog = Catalog::default();
    assert_eq!(refusal(catalog.apply(&register(None, 1, "a:1"))).0, ErrorCode::Unavailable);
    assert_eq!(catalog.apply(&Command::Found { cluster: CLUSTER }), Ok(Outcome::Founded(CLUSTER)));
    assert_eq!(catalog.apply(&Command::Found { cluster: ClusterId(8) }), Ok(Outcome::Founded(CLUSTER)));
}

#[test]
fn a_server_keeps_its_number_and_a_lost_answer_does_not_cost_a_second_one() {
    let mut catalog = cluster(2);
    assert_eq!(catalog.apply(&register(None, 102, "server-2:1")), Ok(Outcome::Registered(ServerId(2))));
    assert_eq!(catalog.apply(&register(Some(2), 103, "elsewhere:1")), Ok(Outcome::Registered(ServerId(2))));
    assert_eq!(catalog.address(ServerId(2)), Some("elsewhere:1"));
    assert_eq!(refusal(catalog.apply(&register(Some(9), 1, "a:1"))).0, ErrorCode::Invalid);
}

#[test]
fn an_address_leads_to_one_server() {
    let mut catalog = cluster(2);
    let before = catalog.version();
    assert_eq!(catalog.apply(&register(None, 7, "server-1:1")), Ok(Outcome::Registered(ServerId(3))));
    assert_eq!((catalog.address(ServerId(1)), catalog.address(ServerId(3))), (None, Some("server-1:1")));
    let addresses = catalog.addresses_since(before).expect("they changed");
    assert_eq!(addresses, [(ServerId(2), "server-2:1".to_owned()), (ServerId(3), "server-1:1".to_owned())]);
    assert_eq!(catalog.addresses_since(catalog.version()), None);
}

#[test]
fn a_table_is_made_once() {
    let mut catalog = cluster(3);
    let command = create("t", 3, &[&[1, 2, 3], &[2, 3, 1]]);
    assert_eq!(catalog.apply(&command), Ok(Outcome::Done));
    let made = catalog.clone();
    assert_eq!(catalog.apply(&command), Ok(Outcome::Done));
    assert_eq!(catalog, made);
    assert_eq!(refusal(catalog.apply(&create("t", 2, &[&[1, 2]]))).0, ErrorCode::Exists);
    assert_eq!(catalog, made);
    let regions: Vec<_> = catalog.regions().values().map(|region| region.config.primary).collect();
    assert_eq!(regions, [Some(ServerId(1)), Some(ServerId(2))]);
}

#[test]
fn a_bad_table_is_refused_with_a_reason() {
    let mut catalog = cluster(2);
    let before = catalog.clone();
    let mut refused = |command: &Command, part: &str| {
        let (code, message) = refusal(catalog.apply(command));
        assert_eq!(code, ErrorCode::Invalid, "{message}");
        assert!(message.contains(part), "{message:?} should say {part:?}");
        assert_eq!(catalog, before);
    };
    refused(&create("t", 3, &[&[1, 2]]), "factor 3 needs 3 servers; the cluster has 2");
    refused(&create("t", 0, &[&[1]]), "factor 0");
    refused(&create("t", 4, &[&[1]]), "factor 4");
    refused(&create("t", 2, &[&[1, 1]]), "members");
    refused(&create("t", 2, &[&[1, 9]]), "server 9 is not known");
    let splits = |splits: &[&'static [u8]]| {
        let splits: Vec<_> = splits.iter().map(|split| Bytes::from_static(split)).collect();
        let members = vec![ids(&[1]); splits.len() + 1];
        Command::CreateTable { name: name("t"), spec: spec(1), splits, members }
    };
    refused(&splits(&[b"b", b"a"]), "rising order");
    refused(&splits(&[b"a", b"a"]), "rising order");
    refused(&splits(&[b""]), "0 bytes");
    let many = Command::CreateTable {
        name: name("t"),
        spec: spec(1),
        splits: even_splits(REGIONS_PER_TABLE_MAX as u32 + 1),
        members: Vec::new(),
    };
    refused(&many, "16385 regions");
    let odd = TableSpec { min_in_sync: 2, ..spec(1) };
    let command = Command::CreateTable { name: name("t"), spec: odd, splits: Vec::new(), members: vec![ids(&[1])] };
    refused(&command, "min_in_sync 2");
}

#[test]
fn a_dropped_region_is_remembered_and_its_number_not_used_again() {
    let mut catalog = cluster(1);
    catalog.apply(&create("a", 1, &[&[1], &[1]])).unwrap();
    catalog.apply(&create("b", 1, &[&[1]])).unwrap();
    let known = catalog.version();
    catalog.apply(&Command::DropTable { name: name("a") }).unwrap();
    assert_eq!(catalog.apply(&Command::DropTable { name: name("a") }), Ok(Outcome::Done));
    assert_eq!(catalog.regions_since(ServerId(1), known).expect("it lost two").len(), 1);
    catalog.apply(&create("a", 1, &[&[1]])).unwrap();
    let dropped: Vec<_> = (1..=5).filter(|&id| catalog.is_dropped(RegionId(id))).collect();
    assert_eq!(dropped, [1, 2]);
    assert_eq!(catalog.regions().keys().map(|id| id.0).collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn a_change_takes_place_at_its_epoch_alone_and_may_be_repeated() {
    let mut catalog = cluster(3);
    catalog.apply(&create("t", 3, &[&[1, 2, 3]])).unwrap();
    let drop_3 = Change::Drop { by: ServerId(1), backups: ids(&[3]) };
    let Ok(Outcome::Changed(after)) = catalog.apply(&change(1, 1, drop_3.clone())) else { panic!("refused") };
    assert_eq!((after.epoch, after.in_sync.clone()), (Epoch(2), ids(&[1, 2])));
    let version = catalog.version();
    assert_eq!(catalog.apply(&change(1, 1, drop_3)), Ok(Outcome::Changed(after.clone())));
    assert_eq!(catalog.version(), version);
    let promote = |epoch| change(1, epoch, Change::Promote { candidate: ServerId(2) });
    let late = catalog.apply(&promote(1)).unwrap();
    assert!(matches!(&late, Outcome::NotChanged { current, .. } if *current == after), "{late:?}");
    assert!(matches!(catalog.apply(&promote(2)), Ok(Outcome::Changed(_))));
    let illegal = catalog.apply(&change(1, 3, Change::Promote { candidate: ServerId(3) })).unwrap();
    assert!(matches!(illegal, Outcome::NotChanged { reason, .. } if reason.contains("not in the in-sync set")));
    let unknown = catalog.apply(&change(1, 3, Change::AddLearner { server: ServerId(9) })).unwrap();
    assert!(matches!(unknown, Outcome::NotChanged { reason, .. } if reason.contains("server 9 is not known")));
    assert_eq!(refusal(catalog.apply(&change(2, 1, Change::Leave { server: ServerId(1) }))).0, ErrorCode::NotFound);
}

#[test]
fn a_server_hears_of_its_own_regions_when_they_change() {
    let mut catalog = cluster(3);
    catalog.apply(&create("t", 2, &[&[1, 2], &[2, 3]])).unwrap();
    let known = catalog.version();
    assert_eq!(catalog.regions_since(ServerId(1), 0).expect("it knows nothing").len(), 1);
    assert_eq!(catalog.regions_since(ServerId(1), known), None);
    catalog.apply(&change(2, 1, Change::Drop { by: ServerId(2), backups: ids(&[3]) })).unwrap();
    assert_eq!(catalog.regions_since(ServerId(1), known), None);
    assert_eq!(catalog.regions_since(ServerId(3), known), Some(Vec::new()));
    assert_eq!(catalog.regions_since(ServerId(2), known).expect("it lost a backup").len(), 2);
    assert!(catalog.regions_since(ServerId(1), catalog.version() + 1).is_some(), "a version of another history");
}

#[test]
fn damage_to_a_catalog_is_seen() {
    let mut catalog = cluster(2);
    catalog.apply(&create("t", 2, &[&[1, 2], &[2, 1]])).unwrap();
    catalog.check().unwrap();
    let mut broken = catalog.clone();
    broken.regions.get_mut(&RegionId(2)).unwrap().range.start = Bytes::from_static(b"z");
    assert!(broken.check().is_err());
    let mut broken = catalog.clone();
    broken.regions.remove(&RegionId(2));
    assert!(broken.check().is_err());
    catalog.regions.get_mut(&RegionId(1)).unwrap().config.in_sync.clear();
    assert!(catalog.check().is_err());
}

fn any_server() -> impl Strategy<Value = ServerId> {
    (1..=5u64).prop_map(ServerId)
}

fn any_change() -> impl Strategy<Value = Change> {
    let two = || (any_server(), any_server());
    prop_oneof![
        any_server().prop_map(|candidate| Change::Promote { candidate }),
        two().prop_map(|(by, backup)| Change::Drop { by, backups: vec![backup] }),
        two().prop_map(|(by, learner)| Change::Admit { by, learner }),
        two().prop_map(|(by, to)| Change::HandOver { by, to }),
        any_server().prop_map(|server| Change::Leave { server }),
        any_server().prop_map(|server| Change::AddLearner { server }),
        any_server().prop_map(|server| Change::RemoveLearner { server }),
        any_server().prop_map(|survivor| Change::AcceptLoss { survivor }),
    ]
}

/// A command, of which a change's epoch counts from the region's own: mostly right, sometimes late or early.
fn any_command() -> impl Strategy<Value = (Command, i64)> {
    let table = || prop_oneof![Just("a"), Just("b")];
    let members = proptest::collection::vec(proptest::sample::subsequence(vec![1, 2, 3, 4, 5u64], 1..=3), 1..4);
    let created = (table(), 1..=3u8, members).prop_map(|(table, factor, members)| {
        let members: Vec<_> = members.iter().map(Vec::as_slice).collect();
        create(table, factor, &members)
    });
    let changed = (1..=6u64, any_change()).prop_map(|(region, what)| change(region, 0, what));
    let registered = (proptest::option::of(1..=5u64), 0..3u64, 0..4u64)
        .prop_map(|(id, incarnation, place)| register(id, incarnation, &format!("server-{place}:1")));
    let command = prop_oneof![
        1 => registered,
        1 => created,
        1 => table().prop_map(|table| Command::DropTable { name: name(table) }),
        9 => changed,
    ];
    (command, prop_oneof![8 => Just(0i64), 1 => Just(-1), 1 => Just(1)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_commands_breaks_the_catalog(commands in proptest::collection::vec(any_command(), 0..60)) {
        let mut catalog = cluster(4);
        for (mut command, shift) in commands {
            if let Command::Change { region, epoch, .. } = &mut command {
                let current = catalog.regions().get(region).map_or(1, |region| region.config.epoch.0);
                *epoch = Epoch(current.saturating_add_signed(shift));
            }
            let before = catalog.clone();
            let answer = catalog.apply(&command);
            prop_assert_eq!(catalog.check(), Ok(()));
            prop_assert!(catalog.version() >= before.version());
            let refused = matches!(answer, Err(_) | Ok(Outcome::NotChanged { .. }));
            prop_assert!(!refused || catalog == before, "{:?} was refused and changed something", command);
            for (id, region) in catalog.regions() {
                let Some(old) = before.regions().get(id) else { continue };
                prop_assert!(region.config == old.config || region.config.epoch == old.config.epoch.next());
                prop_assert!(region.config == old.config || catalog.version() > before.version());
            }
            let mut again = catalog.clone();
            prop_assert_eq!(&again.apply(&command), &answer, "the same answer to a retry");
            prop_assert_eq!(&again.regions, &catalog.regions);
        }
        let encoded = postcard::to_stdvec(&catalog).unwrap();
        prop_assert_eq!(postcard::from_bytes::<Catalog>(&encoded).unwrap(), catalog);
    }
}

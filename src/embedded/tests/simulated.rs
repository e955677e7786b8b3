//! The library on a simulated disk: what it holds is what a map would, and after any crash a beginning of what was done, as
//! long as its durability promises.

use embedded::{AsyncDb, Batch, Compression, Durability, Error, Index, Options};
use env::Env;
use env::sim::{Dice, DiskState, single_crashing, single_with, stream};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

type Key = Vec<u8>;
type Model = BTreeMap<Key, Vec<u8>>;
/// What one call changed.
type Step = Vec<(Key, Option<Vec<u8>>)>;

/// What was done, and how much of it a crash must leave.
#[derive(Default)]
struct History {
    steps: Vec<Step>,
    /// Of the steps, by what crash they survive.
    process: usize,
    power: usize,
}

impl History {
    fn model(&self, steps: usize) -> Model {
        let mut model = Model::new();
        for (key, value) in self.steps[..steps].iter().flatten() {
            match value {
                Some(value) => model.insert(key.clone(), value.clone()),
                None => model.remove(key),
            };
        }
        model
    }

    /// The state after a crash is one that there was, at the least promised or later.
    fn check(&mut self, found: &Model, least: usize) {
        let steps = (least..=self.steps.len()).rev().find(|&steps| self.model(steps) == *found);
        let steps = steps.unwrap_or_else(|| panic!("no state from step {least} to {} is {found:?}", self.steps.len()));
        self.steps.truncate(steps);
        (self.process, self.power) = (steps, steps);
    }
}

fn options(index: Index, durability: Durability) -> Options {
    Options::new().index(index).durability(durability).segment_bytes(2048).dead_share(0.3)
}

async fn everything(db: &AsyncDb) -> Model {
    let mut entries = db.iter().await.expect("begins");
    let mut all = Model::new();
    while let Some(entry) = entries.next().await {
        let (key, value) = entry.expect("reads");
        assert_eq!(all.insert(key.to_vec(), value.to_vec()), None, "each key once");
    }
    all
}

fn random_key(dice: &mut Dice) -> Key {
    let len = if dice.percent(95) { 1 + dice.between(0, 2) as usize } else { 300 };
    let mut key = vec![dice.between(0, 255) as u8 & 3; len];
    key[0] = dice.between(0, 20) as u8;
    key
}

fn random_value(dice: &mut Dice) -> Vec<u8> {
    vec![dice.between(0, 255) as u8; dice.between(0, 120) as usize]
}

/// One call, as its steps say it.
async fn step(db: &AsyncDb, dice: &mut Dice, before: &Model, history: &Mutex<History>) -> Result<(), Error> {
    let begin = |step: Step| history.lock().expect("free").steps.push(step);
    let (key, value) = (random_key(dice), random_value(dice));
    match dice.between(0, 9) {
        0..4 => {
            begin(vec![(key.clone(), Some(value.clone()))]);
            db.put(&key, &value).await?;
        }
        4 => {
            begin(vec![(key.clone(), None)]);
            db.delete(&key).await?;
        }
        5 => {
            begin(vec![(key.clone(), Some(value.clone()))]);
            let old = db.replace(&key, &value).await?;
            assert_eq!(old.as_deref(), before.get(&key).map(Vec::as_slice));
        }
        6 => {
            begin(vec![(key.clone(), None)]);
            let old = db.take(&key).await?;
            assert_eq!(old.as_deref(), before.get(&key).map(Vec::as_slice));
        }
        7 => {
            let mut batch = Batch::new();
            let mut changes = Step::new();
            for _ in 0..dice.between(1, 6) {
                let (key, value) = (random_key(dice), dice.percent(70).then(|| random_value(dice)));
                match &value {
                    Some(value) => batch.put(&key, value),
                    None => batch.delete(&key),
                };
                changes.push((key, value));
            }
            begin(changes);
            db.write(batch).await?;
        }
        8 => {
            let mut transaction = db.transaction().await?;
            assert_eq!(transaction.get(&key).await?.as_deref(), before.get(&key).map(Vec::as_slice));
            transaction.put(&key, &value)?;
            begin(vec![(key.clone(), Some(value.clone()))]);
            transaction.commit().await?;
        }
        _ => {
            assert_eq!(db.get(&key).await?.as_deref(), before.get(&key).map(Vec::as_slice));
        }
    }
    Ok(())
}

async fn work(env: Env, options: Options, durability: Durability, mut dice: Dice, history: Arc<Mutex<History>>) {
    let db = AsyncDb::in_env(&env, "db", options).await.expect("opens");
    let promised = |synced: bool| {
        let mut history = history.lock().expect("free");
        let steps = history.steps.len();
        if synced || durability == Durability::Synced {
            history.power = steps;
        }
        if synced || durability != Durability::Relaxed {
            history.process = steps;
        }
    };
    let mut model = everything(&db).await;
    let mut snapshot = None;
    for _ in 0..dice.between(5, 60) {
        if let Err(error) = step(&db, &mut dice, &model, &history).await {
            panic!("{error}");
        }
        promised(false);
        let steps = history.lock().expect("free").steps.len();
        model = history.lock().expect("free").model(steps);
        match dice.between(0, 30) {
            0 => {
                db.sync().await.expect("flushes");
                promised(true);
            }
            1 => drop(db.merge(|_| ()).await.expect("merges")),
            2 => snapshot = Some((db.snapshot().await.expect("is open"), model.clone())),
            3 => snapshot = None,
            4 => env.sleep(std::time::Duration::from_millis(dice.between(1, 3000))).await,
            5 => assert_eq!(everything(&db).await, model),
            _ => {}
        }
        if let Some((snapshot, then)) = &snapshot
            && dice.percent(30)
        {
            let key = random_key(&mut dice);
            assert_eq!(snapshot.get(&key).await.expect("reads").as_deref(), then.get(&key).map(Vec::as_slice));
            if dice.percent(20) {
                let mut entries = snapshot.iter().expect("is open");
                let mut all = Model::new();
                while let Some(entry) = entries.next().await {
                    let (key, value) = entry.expect("reads");
                    assert_eq!(all.insert(key.to_vec(), value.to_vec()), None, "each key once");
                    if dice.percent(20) {
                        step(&db, &mut dice, &model, &history).await.expect("goes on");
                        promised(false);
                        let steps = history.lock().expect("free").steps.len();
                        model = history.lock().expect("free").model(steps);
                    }
                }
                assert_eq!(all, *then, "as it was, whatever was done meanwhile");
            }
        }
    }
    assert_eq!(everything(&db).await, model);
    if dice.percent(30) {
        drop(snapshot);
        db.close().await.expect("closes");
        promised(true);
        assert!(matches!(db.put(b"k", b"v").await, Err(Error::Closed)));
    }
}

fn crashes(index: Index, durability: Durability) {
    for seed in 0..25 {
        let mut dice = stream(seed, "crashes");
        let disk = DiskState::new(seed, "embedded");
        let history = Arc::new(Mutex::new(History::default()));
        for round in 0..6 {
            // The index may change from one opening to the next, and so may the compression.
            let index = if dice.percent(20) { Index::Hash } else { index };
            let options = options(index, durability).compression(if dice.percent(30) {
                Compression::Lz4
            } else {
                Compression::None
            });
            let (shared, inner) = (history.clone(), stream(seed * 100 + round, "work"));
            let body = |env| work(env, options, durability, inner, shared);
            if dice.percent(70) {
                single_crashing(disk.clone(), seed * 100 + round, dice.between(0, 400), body);
            } else {
                single_with(disk.clone(), seed * 100 + round, body);
            }
            let least = if dice.percent(50) {
                disk.power_loss(seed * 100 + round);
                history.lock().expect("free").power
            } else {
                history.lock().expect("free").process
            };
            let checking = history.clone();
            single_with(disk.clone(), seed * 100 + round + 50, |env| async move {
                let db = AsyncDb::in_env(&env, "db", Options::new().index(index).segment_bytes(2048)).await;
                let found = everything(&db.expect("every crash leaves what opens")).await;
                checking.lock().expect("free").check(&found, least);
            });
        }
    }
}

#[test]
fn synced_writes_survive_every_crash() {
    crashes(Index::Hash, Durability::Synced);
    crashes(Index::Radix, Durability::Synced);
}

#[test]
fn buffered_writes_survive_the_process_and_lose_an_end_with_the_power() {
    crashes(Index::Hash, Durability::Buffered);
    crashes(Index::Radix, Durability::Buffered);
}

#[test]
fn relaxed_writes_lose_an_end_and_nothing_else() {
    crashes(Index::Hash, Durability::Relaxed);
    crashes(Index::Radix, Durability::Relaxed);
}

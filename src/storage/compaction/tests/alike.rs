//! Keys that the index cannot tell apart, many of whose records lie in one page: what is live is to be told all the same.

use super::*;

/// A region that changes at random, and a map that says what it should hold.
struct Follower {
    region: Region,
    model: Model,
    dice: Dice,
    index: (Kind, u64),
    wall_ms: u64,
}

impl Follower {
    /// Few keys and short values, so that a page holds several records of the same ones.
    fn record(&mut self) -> OwnedRecord {
        let key: Bytes = format!("k{}", self.dice.below(7)).into();
        if self.dice.percent(35) {
            return OwnedRecord::Tombstone { key };
        }
        // Some run over the end of their page.
        let len_max = if self.dice.percent(5) { 700 } else { 12 };
        // Few and far between in time, so that what has expired stays so.
        let expiry_ms = self.dice.percent(15).then(|| 1000 * self.dice.below(4));
        random_put(&mut self.dice, key, len_max, expiry_ms)
    }

    fn append(&mut self) {
        let records: Vec<_> = (0..self.dice.between(1, 9)).map(|_| self.record()).collect();
        self.region.append(&records.iter().map(OwnedRecord::as_record).collect::<Vec<_>>());
        records.into_iter().for_each(|record| apply(&mut self.model, record));
    }

    /// What may come between two steps of a compaction.
    async fn perhaps_change(&mut self) {
        if self.dice.percent(25) {
            self.append();
            if self.dice.percent(60) {
                self.region.commit().await;
            }
        }
    }

    async fn compact(&mut self) -> bool {
        let Some(run) = random_run(&self.region, &mut self.dice) else { return false };
        let Some(mut planner) = self.region.store.planner(&self.region.log, run.0, run.1, self.wall_ms) else {
            return false;
        };
        while planner.load().await.expect("reads") {
            while !self.region.store.mark_some(&mut planner, self.dice.between(1, 30) as usize) {
                self.perhaps_change().await;
            }
        }
        let job = planner.finish().await.expect("reads").expect("no switch came between");
        let output = job.run().await.expect("writes");
        self.region.order(&output.plan()).await;
        assert!(self.region.log.switch(output).await.expect("switches"));
        let mut mover = self.region.store.mover().expect("the log was switched");
        while mover.load().await.expect("reads") {
            while !self.region.store.move_some(&mut mover, self.dice.between(1, 10) as usize) {
                self.perhaps_change().await;
                self.check().await;
            }
        }
        self.region.store.moved(mover);
        assert!(self.region.log.remove_retired().await.expect("removes"));
        true
    }

    async fn check(&mut self) {
        self.region.commit().await;
        let expected = live(self.model.clone(), self.wall_ms);
        assert_eq!(live(self.region.everything().await, self.wall_ms), expected);
        for key in 0..7 {
            let key = format!("k{key}");
            let found = self.region.get(&key).await.filter(|entry| !entry.expired(self.wall_ms));
            assert_eq!(found.as_ref(), expected.get(key.as_bytes()), "{key}");
        }
    }

    async fn restart(mut self, env: &Env) -> Follower {
        self.region.commit().await;
        drop(self.region);
        Follower { region: Region::open_with(env, self.index.0, self.index.1).await, ..self }
    }

    /// An index made anew says the same.
    async fn compare_with_rebuilt(&self) {
        let Region { log, store } = &self.region;
        let rebuilt = build(log, self.index.0, self.index.1).await;
        assert_eq!(rebuilt.len(), store.len());
        assert_eq!(rebuilt.space(log), store.space(log));
        assert_eq!(rebuilt.segment_uses(log), store.segment_uses(log));
    }
}

async fn follow(env: Env, dice: Dice, (kind, hash_mask): (Kind, u64)) -> u64 {
    let region = Region::open_with(&env, kind, hash_mask).await;
    let mut follower = Follower { region, model: Model::new(), dice, index: (kind, hash_mask), wall_ms: 0 };
    let mut compactions = 0;
    for _ in 0..4 {
        for _ in 0..follower.dice.between(10, 60) {
            follower.append();
            if follower.dice.percent(40) {
                follower.region.commit().await;
            }
            if follower.dice.percent(15) {
                follower.check().await;
                follower.wall_ms = (follower.wall_ms + follower.dice.below(500)).min(2999);
                compactions += follower.compact().await as u64;
                follower.check().await;
                follower.compare_with_rebuilt().await;
            }
        }
        follower = follower.restart(&env).await;
        follower.check().await;
    }
    compactions
}

#[test]
fn records_alike_to_the_index_are_told_apart() {
    for kind in [Kind::Plain, Kind::Hash, Kind::Coarse] {
        for hash_mask in [0, 1, u64::MAX] {
            let run = |seed| single(seed, |env| follow(env, stream(seed, "alike"), (kind, hash_mask)));
            let compactions: u64 = (0..8).map(run).sum();
            assert!(compactions > 40, "{compactions} with {kind:?}");
        }
    }
}

//! Other engines, each behind a feature of its own, with their default settings.

#[cfg(any(feature = "fjall", feature = "rocksdb"))]
use super::{Engine, Outcome};
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
use std::path::Path;
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
use std::sync::Arc;

pub fn by_name(name: &str) -> Option<super::Open> {
    match name {
        #[cfg(feature = "fjall")]
        "fjall" => Some(fjall_engine::open),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Some(rocksdb_engine::open),
        _ => None,
    }
}

#[cfg(feature = "fjall")]
mod fjall_engine {
    use super::*;
    use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

    struct Fjall {
        database: Database,
        keyspace: Keyspace,
    }

    pub fn open(folder: &Path) -> Outcome<Arc<dyn Engine>> {
        let database = Database::builder(folder).open()?;
        let keyspace = database.keyspace("bench", KeyspaceCreateOptions::default)?;
        Ok(Arc::new(Fjall { database, keyspace }))
    }

    impl Engine for Fjall {
        fn name(&self) -> &'static str {
            "fjall"
        }

        fn unsynced(&self) -> &'static str {
            "buffered"
        }

        fn put(&self, key: &[u8], value: &[u8]) {
            self.keyspace.insert(key, value).expect("puts");
        }

        fn put_synced(&self, key: &[u8], value: &[u8]) {
            self.put(key, value);
            self.database.persist(PersistMode::SyncData).expect("flushes");
        }

        fn get(&self, key: &[u8]) -> Option<usize> {
            self.keyspace.get(key).expect("gets").map(|value| value.len())
        }

        fn settle(&self) {
            self.database.persist(PersistMode::SyncAll).expect("flushes");
        }
    }
}

#[cfg(feature = "rocksdb")]
mod rocksdb_engine {
    use super::*;
    use rocksdb::{DB, Options, WriteOptions};

    struct Rocks {
        db: DB,
        synced: WriteOptions,
    }

    pub fn open(folder: &Path) -> Outcome<Arc<dyn Engine>> {
        let mut options = Options::default();
        options.create_if_missing(true);
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        Ok(Arc::new(Rocks { db: DB::open(&options, folder)?, synced }))
    }

    impl Engine for Rocks {
        fn name(&self) -> &'static str {
            "rocksdb"
        }

        fn unsynced(&self) -> &'static str {
            "buffered"
        }

        fn put(&self, key: &[u8], value: &[u8]) {
            self.db.put(key, value).expect("puts");
        }

        fn put_synced(&self, key: &[u8], value: &[u8]) {
            self.db.put_opt(key, value, &self.synced).expect("puts");
        }

        fn get(&self, key: &[u8]) -> Option<usize> {
            self.db.get_pinned(key).expect("gets").map(|value| value.len())
        }
    }
}

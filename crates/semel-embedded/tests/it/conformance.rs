//! The conformance suite on the embedded store, on a real directory.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::{env::Env, identity::Identity, store::StoreAdmin};
use semel_embedded::EmbeddedStore;
use semel_testkit::{clock::ManualClock, conformance::Bed};

use crate::keys::{options, quick_dir};

struct EmbeddedBed {
    dir: tempfile::TempDir,
    clock: ManualClock,
    store: Mutex<Arc<EmbeddedStore>>,
}

impl EmbeddedBed {
    fn store(&self) -> Arc<EmbeddedStore> {
        Arc::clone(&self.store.lock())
    }
}

fn open(dir: &tempfile::TempDir, clock: &ManualClock) -> Arc<EmbeddedStore> {
    let env = Env { clock: Arc::new(clock.clone()), ..Env::system() };
    Arc::new(EmbeddedStore::open(dir.path(), &env, &options()).unwrap())
}

impl Bed for EmbeddedBed {
    const SEQUENCES: u32 = 160;

    async fn start() -> Self {
        let (dir, clock) = (quick_dir(), ManualClock::new());
        let store = Mutex::new(open(&dir, &clock));
        Self { dir, clock, store }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        self.store() as _
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        self.store().plant(id, bytes).await.unwrap();
    }

    async fn reopen(&self) -> bool {
        self.store().close();
        let again = open(&self.dir, &self.clock);
        *self.store.lock() = again;
        true
    }

    async fn written(&self) -> Option<u64> {
        Some(self.store().written())
    }
}

semel_testkit::conformance!(EmbeddedBed);

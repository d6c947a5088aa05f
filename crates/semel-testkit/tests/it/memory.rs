//! The conformance suite on the memory store.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use semel_core::{
    env::Env,
    identity::Identity,
    record::Record,
    store::{Capacity, MemoryStore, StoreAdmin},
};
use semel_testkit::{clock::ManualClock, conformance::Bed};

struct MemoryBed {
    clock: ManualClock,
    store: Arc<MemoryStore>,
}

impl Bed for MemoryBed {
    async fn start() -> Self {
        let clock = ManualClock::new();
        let env = Env { clock: Arc::new(clock.clone()), ..Env::system() };
        Self { clock, store: Arc::new(MemoryStore::new(&env, Capacity::default())) }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        Arc::clone(&self.store) as _
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        self.store.plant(id, bytes.map(|b| Record::decode(&b)));
    }
}

semel_testkit::conformance!(MemoryBed);

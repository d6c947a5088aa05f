//! The conformance suite on one server, each case on a private one that writes what it acknowledges to disk.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use semel_core::{identity::Identity, store::StoreAdmin};
use semel_testkit::{
    conformance::{Bed, Shift, Shifted},
    servers::redis::{Redis, Setup},
};
use tokio::sync::Mutex;

use crate::beds::{self, connect, move_back, plant};

struct Alone {
    server: Mutex<Redis>,
    shift: Shift,
}

impl Bed for Alone {
    const RECKONED_WITHIN: Duration = beds::RECKONED_WITHIN;
    const SEQUENCES: u32 = 160;

    async fn start() -> Self {
        let server = Redis::start(&Setup::new().keeps()).await;
        Self { server: Mutex::new(server), shift: Shift::default() }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        let store = connect(&self.server.lock().await.url(), "semel").await;
        Arc::new(Shifted::new(store, self.shift.clone()))
    }

    async fn advance(&self, by: Duration) {
        move_back(self.server.lock().await.port(), "semel", by).await;
        self.shift.advance(by);
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        let bytes = bytes.map(|bytes| self.shift.stored(bytes));
        assert!(plant(self.server.lock().await.port(), &format!("semel:{id}"), bytes).await);
    }

    async fn reopen(&self) -> bool {
        self.server.lock().await.start_again().await;
        true
    }

    async fn written(&self) -> Option<u64> {
        self.server.lock().await.info("persistence", "rdb_changes_since_last_save").await.parse().ok()
    }
}

semel_testkit::conformance!(Alone);

//! Beds on servers that all cases share: each has a prefix of its own there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use semel_core::{identity::Identity, store::StoreAdmin};
use semel_testkit::conformance::{Shift, Shifted};

use super::{connect, move_back, plant, shared::Shared};

/// One case's place there.
pub(crate) struct Place {
    servers: &'static Shared,
    prefix: String,
    shift: Shift,
}

impl Place {
    pub(crate) fn on(servers: &'static Shared) -> Self {
        static PLACES: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("t{}.{}", std::process::id(), PLACES.fetch_add(1, Ordering::Relaxed));
        Self { servers, prefix, shift: Shift::default() }
    }

    pub(crate) async fn client(&self) -> Arc<dyn StoreAdmin> {
        let store = connect(&self.servers.url(), &self.prefix).await;
        Arc::new(Shifted::new(store, self.shift.clone()))
    }

    pub(crate) async fn advance(&self, by: Duration) {
        for port in self.servers.masters() {
            move_back(*port, &self.prefix, by).await;
        }
        self.shift.advance(by);
    }

    pub(crate) async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        let bytes = bytes.map(|bytes| self.shift.stored(bytes));
        for port in self.servers.masters() {
            if plant(*port, &format!("{}:{id}", self.prefix), bytes.clone()).await {
                return;
            }
        }
        panic!("no server has the slot of {id}");
    }
}

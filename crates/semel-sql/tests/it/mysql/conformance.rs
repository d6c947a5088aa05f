//! The conformance suite on MariaDB: one server for the cases that run at the same time, a database for each.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use semel_core::{identity::Identity, store::StoreAdmin};
use semel_sql::MySqlStore;
use semel_testkit::conformance::{Bed, Shift, Shifted};

use super::place::Place;

struct MariaDbBed {
    place: Place,
    shift: Shift,
    /// For what is done behind the back of the clients.
    store: MySqlStore,
}

impl Bed for MariaDbBed {
    const SEQUENCES: u32 = 160;

    async fn start() -> Self {
        let place = Place::shared().await;
        let store = place.store().await;
        Self { place, shift: Shift::default(), store }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(Shifted::new(self.place.store().await, self.shift.clone()))
    }

    async fn advance(&self, by: Duration) {
        self.shift.advance(by);
        self.store.shift(by).await.unwrap();
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        let bytes = bytes.map(|bytes| self.shift.stored(bytes));
        self.store.plant(id, bytes).await.unwrap();
    }

    /// The stores' sessions end; the server itself is restarted by a test of its own.
    async fn reopen(&self) -> bool {
        self.place.end_sessions().await;
        true
    }

    /// Rows of the record's table that the server changed, by its own count.
    async fn written(&self) -> Option<u64> {
        let sql = "SELECT CAST(ROWS_CHANGED AS CHAR) FROM information_schema.TABLE_STATISTICS \
                   WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'semel_record'";
        Some(self.place.number(sql).await)
    }
}

semel_testkit::conformance!(MariaDbBed);

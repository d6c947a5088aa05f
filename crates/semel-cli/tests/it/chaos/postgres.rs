//! PostgreSQL.

use std::{net::SocketAddr, time::Duration};

use semel_testkit::{
    checker::{Collector, Promise},
    servers::{
        Postgres,
        proxy::{Request, Speaks},
    },
    sim::Seeded,
};

use super::{
    backing::{Backing, StoreCall, Wire, forgotten, migrate},
    end::{AFTER_SUCCESS_SHARED, SEEN},
    fates::between,
    field::{LEASE, Plan, play},
    storms::storms,
};

struct Database {
    server: Postgres,
    /// Whether somebody empties the table.
    may_lose: bool,
}

impl Database {
    async fn start(may_lose: bool) -> Self {
        let server = Postgres::start_with(&["max_connections=200"]).await;
        migrate(&server.url()).await;
        Self { server, may_lose }
    }

    fn at(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.server.port()))
    }
}

/// Each statement begins with its number.
fn is(call: StoreCall, request: &Request<'_>) -> bool {
    let number = match call {
        StoreCall::Claim => "= 1::bigint",
        StoreCall::Complete => "= 2::bigint",
        StoreCall::Renew => "= 12::bigint",
    };
    request.executes && request.contains(number)
}

impl Backing for Database {
    fn url(&self, through: Option<SocketAddr>) -> String {
        self.server.url().replace(&self.at().to_string(), &through.unwrap_or(self.at()).to_string())
    }

    fn wire(&self) -> Option<Wire> {
        Some(Wire { server: self.at(), speaks: Speaks::Postgres, is })
    }

    fn fates(&self) -> &'static [&'static str] {
        if self.may_lose {
            &["postgres emptied"]
        } else {
            &["postgres crashed", "postgres restarted", "postgres paused", "sessions ended", "table locked"]
        }
    }

    async fn suffer(&mut self, fate: &'static str, collector: &Collector, random: &Seeded) {
        let time = between(random, LEASE / 10, LEASE);
        match fate {
            "postgres crashed" => {
                self.server.stop_at_once();
                tokio::time::sleep(time).await;
                self.server.start_again().await;
            }
            "postgres restarted" => self.server.restart().await,
            "postgres paused" => {
                self.server.process().pause();
                tokio::time::sleep(time + Duration::from_millis(300)).await;
                self.server.process().resume();
            }
            "sessions ended" => {
                for _ in 0..5 {
                    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> \
                                 pg_backend_pid() AND backend_type = 'client backend'";
                    self.server.sql(ended);
                    tokio::time::sleep(time / 5).await;
                }
            }
            "table locked" => {
                let locked = format!(
                    "BEGIN; LOCK TABLE semel_record IN EXCLUSIVE MODE; SELECT pg_sleep({}); COMMIT",
                    time.as_secs_f64()
                );
                self.server.sql(&locked);
            }
            "postgres emptied" => {
                let began = collector.forgot(None);
                self.server.sql("DELETE FROM semel_record");
                forgotten(collector, began).await;
            }
            other => panic!("{other}"),
        }
    }
}

const PLAN: Plan = Plan { gateways: 3, rule: "", promise: Promise::strict(AFTER_SUCCESS_SHARED), expected: SEEN };

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_storms_over_gateways_have_one_effect_per_key() {
    storms(Database::start(false).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_no_fault_doubles_anything() {
    let report = play(Database::start(false).await, &PLAN).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_what_somebody_deleted_runs_again_and_is_counted() {
    let report = play(Database::start(true).await, &PLAN).await;
    assert!(report.doubles.loss > 0, "{report}");
}

//! PostgreSQL.

use std::{net::SocketAddr, time::Duration};

use semel_testkit::{
    checker::Collector,
    servers::{
        Postgres, SmallDisk,
        proxy::{Request, Speaks},
    },
    sim::Seeded,
};

use super::{
    backing::{Backing, StoreCall, Wire, forgotten, migrate},
    calls::are_told_apart,
    end::{SEEN, SEEN_FULL, SHARED, SHARED_FULL},
    fates::{between, is_told_full, orders_are_done},
    field::{LEASE, Plan, play},
    storms::storms,
};

struct Database {
    server: Postgres,
    /// The records are there, and nothing else; none where the server loses what it has.
    disk: Option<SmallDisk>,
}

const SETTINGS: &[&str] = &["max_connections=200", "deadlock_timeout=100ms"];

/// Somebody takes a row that a statement of the store's then waits for, and asks for the table that the statement has in use:
/// each waits for the other. The store's statement is the one that looks for a deadlock, and so the one that gives way.
const DEADLOCK: &str = "SET deadlock_timeout = '60s'; \
    DO $$ BEGIN \
      PERFORM FROM semel_record WHERE state = 1 FOR UPDATE; \
      FOR n IN 1..400 LOOP \
        EXIT WHEN EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
                          WHERE NOT l.granted AND a.application_name = 'semel'); \
        PERFORM pg_sleep(0.005), pg_stat_clear_snapshot(); \
      END LOOP; \
      LOCK TABLE semel_record IN SHARE MODE; \
    END $$";

/// Rows nobody asks for, until none goes in: whatever room the table had is gone then.
const LAST_ROOM: &str = "DO $$ DECLARE refused integer := 0; BEGIN \
      WHILE refused < 3 LOOP BEGIN \
        INSERT INTO semel_record SELECT sha256(random()::text::bytea), 1, 2, 4, 1, sha256('x'), '\\x00112233445566778899aabbccddeeff', \
          1, 1, 0, 9000000000000000, 'filler', 'k', '', sha256('y') || sha256('z'); \
        EXCEPTION WHEN disk_full THEN refused := refused + 1; END; \
      END LOOP; END $$";

impl Database {
    async fn start(may_lose: bool) -> Self {
        let server = Postgres::start_with(SETTINGS).await;
        migrate(&server.url()).await;
        let disk = (!may_lose).then(|| SmallDisk::mount(64));
        if let Some(disk) = &disk {
            server.tablespace("small", disk);
            server.sql("ALTER TABLE semel_record SET TABLESPACE small");
            for index in ["semel_record_pkey", "semel_record_expires_at"] {
                server.sql(&format!("ALTER INDEX {index} SET TABLESPACE small"));
            }
        }
        Self { server, disk }
    }

    /// It crashes, and somebody brings it back with other data.
    async fn is_back_with(&mut self, other: Postgres, collector: &Collector) {
        self.server.stop_at_once();
        let loss = collector.forgets(None);
        self.server.start_on_data_of(other).await;
        forgotten(collector, loss, 1).await;
    }

    /// How often its log says this.
    fn said(&self, words: &str) -> usize {
        self.server.process().said().matches(words).count()
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
    fn url(&self, through: &[SocketAddr]) -> String {
        self.server.url().replace(&self.at().to_string(), &through[0].to_string())
    }

    fn wire(&self) -> Option<Wire> {
        Some(Wire { servers: vec![self.at()], speaks: Speaks::Postgres, is })
    }

    fn fates(&self) -> &'static [&'static str] {
        match self.disk {
            Some(_) => &[
                "postgres crashed",
                "postgres restarted",
                "postgres paused",
                "sessions ended",
                "table locked",
                "deadlocks",
                "disk full",
            ],
            None => &["postgres emptied", "postgres restarted empty", "postgres restarted on an older backup"],
        }
    }

    /// Not by rows that somebody deleted, and not by a backup, which has the mark as well.
    fn loses_its_mark(&self, fate: &str) -> bool {
        fate == "postgres restarted empty"
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
                self.server.pause();
                tokio::time::sleep(time + Duration::from_millis(300)).await;
                self.server.resume();
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
            "deadlocks" => {
                let before = self.said("deadlock detected");
                for _ in 0..20 {
                    self.server.sql(DEADLOCK);
                    if self.said("deadlock detected") > before {
                        return;
                    }
                }
                panic!("no statement of the store's came into a deadlock");
            }
            "disk full" => {
                let disk = self.disk.as_ref().expect("this fate is of a server with one");
                let before = collector.told("store-full");
                disk.fill();
                self.server.sql(LAST_ROOM);
                is_told_full(collector, before).await;
                tokio::time::sleep(time).await;
                disk.clear();
                self.server.sql("DELETE FROM semel_record WHERE namespace = 'filler'");
            }
            "postgres emptied" => {
                let loss = collector.forgets(None);
                self.server.sql("DELETE FROM semel_record");
                forgotten(collector, loss, 1).await;
            }
            "postgres restarted empty" => {
                let empty = Postgres::start_with(SETTINGS).await;
                migrate(&empty.url()).await;
                self.is_back_with(empty, collector).await;
            }
            "postgres restarted on an older backup" => {
                let backup = self.server.copy().await;
                orders_are_done(collector).await;
                self.is_back_with(backup, collector).await;
            }
            other => panic!("{other}"),
        }
    }
}

const PLAN: Plan = Plan { gateways: 3, rule: "", promise: SHARED, expected: SEEN };
const FULL: Plan = Plan { promise: SHARED_FULL, expected: SEEN_FULL, ..PLAN };

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_faults_meet_the_calls_they_are_about() {
    are_told_apart(Database::start(true).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_storms_over_gateways_have_one_effect_per_key() {
    storms(Database::start(false).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_no_fault_doubles_anything() {
    let report = play(Database::start(false).await, &FULL).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_what_was_deleted_or_is_not_in_the_backup_runs_again_and_is_counted() {
    let report = play(Database::start(true).await, &PLAN).await;
    assert!(report.doubles.loss > 0, "{report}");
}

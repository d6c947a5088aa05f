//! MariaDB.

use std::{net::SocketAddr, process::Command, time::Duration};

use semel_core::record::StateCode;
use semel_testkit::{
    checker::Collector,
    servers::{
        MariaDb, SmallDisk,
        proxy::{Request, Speaks},
    },
    sim::Seeded,
};

use super::{
    backing::{Backing, StoreCall, Wire, forgotten, migrate},
    calls::are_told_apart,
    end::{SEEN, SEEN_FULL, SHARED, SHARED_FULL},
    fates::{between, is_told_full},
    field::{LEASE, Plan, play},
    storms::storms,
};

struct Database {
    server: MariaDb,
    /// The records are there, and nothing else; none where the server loses all it has.
    disk: Option<SmallDisk>,
}

/// Somebody takes every gap of the index of ends, as a report under REPEATABLE READ does, and then goes through the table: a
/// claim that came meanwhile has its row and waits for its gap. He has written more than the claim, which is why it gives way.
const DEADLOCK: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET innodb_lock_wait_timeout = 10; BEGIN; \
    INSERT INTO weight SELECT seq FROM seq_1_to_500; \
    SELECT COUNT(id) FROM semel_record FORCE INDEX (semel_record_ends) WHERE expires_at > 0 FOR UPDATE; \
    DO SLEEP(0.2); SELECT COUNT(*) FROM semel_record FORCE INDEX (PRIMARY) FOR UPDATE; ROLLBACK";

/// Rows nobody asks for, until thirty in a row did not go in: whatever room the table had is gone then.
const LAST_ROOM: &str = "BEGIN NOT ATOMIC DECLARE refused INT DEFAULT 0; \
    DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET refused = refused + 1; \
    WHILE refused < 30 DO INSERT INTO semel_record VALUES (UNHEX(SHA2(RAND(), 256)), 1, 2, 4, 0, NULL, REPEAT(CHAR(1), 16), 7, 1, \
    0, 9000000000000000, REPEAT('x', 200), 'filler', 'k', ''); END WHILE; END//";

impl Database {
    async fn start(may_lose: bool) -> Self {
        let server = MariaDb::start().await;
        let database = Self { server, disk: (!may_lose).then(|| SmallDisk::mount(64)) };
        database.sql("CREATE DATABASE semel");
        if let Some(disk) = &database.disk {
            database.server.move_database("semel", disk);
        }
        migrate(&database.server.url("semel")).await;
        database.sql("CREATE TABLE mysql.weight (n INT); CREATE VIEW semel.weight AS SELECT n FROM mysql.weight");
        database
    }

    fn deadlocks(&self) -> u64 {
        let said = self.sql("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'");
        said.split_whitespace().last().and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    fn sql(&self, sql: &str) -> String {
        self.tell(&["-e", sql])
    }

    fn tell(&self, what: &[&str]) -> String {
        self.try_to_tell(what).unwrap_or_else(|error| panic!("{what:?}: {error}"))
    }

    fn try_to_tell(&self, what: &[&str]) -> Result<String, String> {
        let port = self.server.port().to_string();
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-u", "root", "-N", "-P", &port]).args(what);
        let done = client.output().expect("the client is installed with the server");
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() { Ok(said(&done.stdout)) } else { Err(said(&done.stderr)) }
    }

    fn at(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.server.port()))
    }
}

fn is(call: StoreCall, request: &Request<'_>) -> bool {
    let words = match call {
        StoreCall::Claim => "INSERT INTO semel_record (id, v, state",
        StoreCall::Complete => "UPDATE semel_record SET flags = (flags & 1) | ?, state = ?",
        StoreCall::Renew => "UPDATE semel_record SET lease_until = GREATEST(lease_until",
    };
    // The same statement says that an outcome is unknown.
    let is_done = || bound(request, 1) == Some(StateCode::Done as i16);
    request.executes && request.contains(words) && (call != StoreCall::Complete || is_done())
}

/// The `n`-th of the values that a prepared statement is executed with, where it and those before it are small numbers: after
/// the packet's head (4 bytes), the command, the statement's number, flags and a count (10), a bit for each value and a byte
/// that says that the types of all follow.
fn bound(request: &Request<'_>, n: usize) -> Option<i16> {
    let values = request.statement.matches('?').count();
    let at = 4 + 10 + values.div_ceil(8) + 1 + 2 * values + 2 * n;
    Some(i16::from_le_bytes(request.bytes.get(at..at + 2)?.try_into().ok()?))
}

impl Backing for Database {
    fn url(&self, through: &[SocketAddr]) -> String {
        self.server.url("semel").replace(&self.at().to_string(), &through[0].to_string())
    }

    fn wire(&self) -> Option<Wire> {
        Some(Wire { servers: vec![self.at()], speaks: Speaks::MySql, is })
    }

    fn fates(&self) -> &'static [&'static str] {
        match self.disk {
            Some(_) => {
                &["mariadb crashed", "mariadb restarted", "mariadb paused", "table locked", "deadlocks", "disk full"]
            }
            None => &["mariadb emptied", "mariadb restarted"],
        }
    }

    fn loses_its_mark(&self, fate: &str) -> bool {
        fate == "mariadb emptied"
    }

    async fn suffer(&mut self, fate: &'static str, collector: &Collector, random: &Seeded) {
        let time = between(random, LEASE / 10, LEASE);
        match fate {
            "mariadb crashed" => {
                self.server.kill();
                tokio::time::sleep(time).await;
                self.server.restart().await;
            }
            "mariadb restarted" => self.server.restart().await,
            "mariadb paused" => {
                self.server.pause();
                tokio::time::sleep(time + Duration::from_millis(300)).await;
                self.server.resume();
            }
            "table locked" => {
                self.sql(&format!(
                    "LOCK TABLES semel.semel_record WRITE; DO SLEEP({}); UNLOCK TABLES",
                    time.as_secs_f64()
                ));
            }
            "deadlocks" => {
                for _ in 0..20 {
                    let before = self.deadlocks();
                    match self.try_to_tell(&["semel", "-e", DEADLOCK]) {
                        Ok(_) if self.deadlocks() > before => return,
                        // It was not the claim that gave way.
                        Err(error) => assert!(error.contains("ERROR 1213") || error.contains("ERROR 1205"), "{error}"),
                        Ok(_) => {}
                    }
                }
                panic!("no claim came into a deadlock");
            }
            "disk full" => {
                let disk = self.disk.as_ref().expect("this fate is of a server with one");
                let before = collector.told("store-full");
                disk.fill();
                self.tell(&["semel", "--delimiter=//", "-e", LAST_ROOM]);
                is_told_full(collector, before).await;
                tokio::time::sleep(time).await;
                disk.clear();
                self.sql("DELETE FROM semel.semel_record WHERE namespace = 'filler'");
            }
            "mariadb emptied" => {
                let loss = collector.forgets(None);
                self.server.restart_empty().await;
                self.sql("CREATE DATABASE semel");
                migrate(&self.server.url("semel")).await;
                forgotten(collector, loss, 1).await;
            }
            other => panic!("{other}"),
        }
    }
}

const PLAN: Plan = Plan { gateways: 3, rule: "", promise: SHARED, expected: SEEN };

#[tokio::test(flavor = "multi_thread")]
async fn on_mariadb_faults_meet_the_calls_they_are_about() {
    are_told_apart(Database::start(true).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_mariadb_storms_over_gateways_have_one_effect_per_key() {
    storms(Database::start(false).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_mariadb_no_fault_doubles_anything() {
    let plan = Plan { promise: SHARED_FULL, expected: SEEN_FULL, ..PLAN };
    let report = play(Database::start(false).await, &plan).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}

/// An empty data directory, into which somebody made the tables anew.
#[tokio::test(flavor = "multi_thread")]
async fn on_mariadb_what_a_lost_disk_forgot_runs_again_and_is_counted() {
    let report = play(Database::start(true).await, &PLAN).await;
    assert!(report.doubles.loss > 0, "{report}");
}

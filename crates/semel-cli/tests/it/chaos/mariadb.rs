//! MariaDB.

use std::{net::SocketAddr, process::Command, time::Duration};

use semel_testkit::{
    checker::{Collector, Promise},
    servers::{
        MariaDb,
        proxy::{Request, Speaks},
    },
    sim::Seeded,
};

use super::{
    backing::{Backing, StoreCall, Wire, migrate},
    end::{AFTER_SUCCESS_SHARED, SEEN},
    fates::between,
    field::{LEASE, Plan, play},
    storms::storms,
};

struct Database(MariaDb);

impl Database {
    async fn start() -> Self {
        let database = Self(MariaDb::start().await);
        database.sql("CREATE DATABASE semel");
        migrate(&database.0.url("semel")).await;
        database
    }

    fn sql(&self, sql: &str) {
        let port = self.0.port().to_string();
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-u", "root", "-P", &port, "-e", sql]);
        let done = client.output().expect("the client is installed with the server");
        assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn at(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.0.port()))
    }
}

fn is(call: StoreCall, request: &Request<'_>) -> bool {
    let words = match call {
        StoreCall::Claim => "INSERT INTO semel_record (id, v, state",
        StoreCall::Complete => "UPDATE semel_record SET flags = (flags & 1) | ?, state = ?",
        StoreCall::Renew => "UPDATE semel_record SET lease_until = GREATEST(lease_until",
    };
    request.executes && request.contains(words)
}

impl Backing for Database {
    fn url(&self, through: Option<SocketAddr>) -> String {
        self.0.url("semel").replace(&self.at().to_string(), &through.unwrap_or(self.at()).to_string())
    }

    fn wire(&self) -> Option<Wire> {
        Some(Wire { server: self.at(), speaks: Speaks::MySql, is })
    }

    fn fates(&self) -> &'static [&'static str] {
        &["mariadb crashed", "mariadb restarted", "mariadb paused", "table locked"]
    }

    async fn suffer(&mut self, fate: &'static str, _: &Collector, random: &Seeded) {
        let time = between(random, LEASE / 10, LEASE);
        match fate {
            "mariadb crashed" => {
                self.0.kill();
                tokio::time::sleep(time).await;
                self.0.restart().await;
            }
            "mariadb restarted" => self.0.restart().await,
            "mariadb paused" => {
                self.0.pause();
                tokio::time::sleep(time + Duration::from_millis(300)).await;
                self.0.resume();
            }
            "table locked" => {
                self.sql(&format!(
                    "LOCK TABLES semel.semel_record WRITE; DO SLEEP({}); UNLOCK TABLES",
                    time.as_secs_f64()
                ));
            }
            other => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_mariadb_storms_over_gateways_have_one_effect_per_key() {
    storms(Database::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_mariadb_no_fault_doubles_anything() {
    let plan = Plan { gateways: 3, rule: "", promise: Promise::strict(AFTER_SUCCESS_SHARED), expected: SEEN };
    let report = play(Database::start().await, &plan).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}

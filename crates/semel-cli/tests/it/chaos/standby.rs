//! PostgreSQL with a standby that takes the primary's place. What a synchronous one confirmed is never lost; an asynchronous
//! one loses what it had not received: that is measured, not hidden.
//!
//! Gateways know one address. A proxy stands there, and whoever promotes the standby aims it anew, as an operator does with
//! an address that moves.

use std::net::SocketAddr;

use semel_testkit::{
    checker::Collector,
    servers::{Postgres, proxy::Proxy},
    sim::Seeded,
};

use super::{
    apart::Side,
    backing::{Backing, forgotten, migrate},
    end::SHARED,
    fates::{between, orders_are_done, until},
    field::{LEASE, Plan, play},
};
use crate::system::{alone, upstream::Upstream};

/// What an answer of the primary has waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// That the standby has it.
    Synchronous,
    /// Nothing but its own disk.
    Asynchronous,
}

/// A commit that waits for a standby keeps its session, also when nobody waits for it any more.
const SETTINGS: &[&str] = &["max_connections=500"];

struct Pair {
    kind: Kind,
    primary: Postgres,
    standby: Postgres,
    /// The way on which the standby hears of the primary.
    link: Proxy,
    /// Where gateways find the primary.
    address: Proxy,
}

fn at(server: &Postgres) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

fn url_by(address: &Proxy) -> String {
    format!("postgres://postgres@{}/postgres", address.address())
}

impl Pair {
    async fn start(kind: Kind) -> Self {
        let primary = Postgres::start_with(SETTINGS).await;
        migrate(&primary.url()).await;
        if kind == Kind::Synchronous {
            // The standby copies this, and is as strict when it is promoted. It holds from the next reload on.
            primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'walreceiver'");
        }
        let link = Proxy::start(at(&primary)).await;
        let standby = primary.standby_through(&link).await;
        assert_eq!(primary.sql("SELECT pg_reload_conf()"), "t");
        let pair = Self { kind, address: Proxy::start(at(&primary)).await, primary, standby, link };
        pair.follows().await;
        pair
    }

    /// Until the standby has what the primary has, and is waited for where it is to be.
    async fn follows(&self) {
        let state = if self.kind == Kind::Synchronous { "sync" } else { "async" };
        let has = self.primary.sql("SELECT pg_current_wal_flush_lsn()");
        let has_all = format!(
            "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = '{state}' \
             AND application_name = 'walreceiver' AND flush_lsn >= '{has}'"
        );
        until("the standby follows", async || self.primary.sql(&has_all) == "1").await;
    }

    /// Whoever comes now finds the standby, and nobody the old primary.
    fn move_address(&self) {
        self.address.aim(at(&self.standby));
        self.address.cut();
    }

    /// The standby was promoted: another one follows it. Gives back the old primary.
    async fn gets_another_standby(&mut self) -> Postgres {
        let link = Proxy::start(at(&self.standby)).await;
        let next = self.standby.standby_through(&link).await;
        self.link = link;
        let promoted = std::mem::replace(&mut self.standby, next);
        let old = std::mem::replace(&mut self.primary, promoted);
        self.follows().await;
        old
    }
}

fn records(server: &Postgres) -> u64 {
    server.sql("SELECT count(*) FROM semel_record").parse().expect("a count is a number")
}

const CRASHED: &str = "primary crashed, its standby promoted";
const HUNG: &str = "primary hung, its standby promoted, and went on";
const AWAY: &str = "standby hung";
const BEHIND: &str = "primary crashed, a standby that was behind promoted";
const PLANNED: &str = "primary stopped, its standby promoted";

impl Backing for Pair {
    fn url(&self, _: &[SocketAddr]) -> String {
        url_by(&self.address)
    }

    fn only_its_own(&self) -> bool {
        true
    }

    fn fates(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Synchronous => &[CRASHED, HUNG, AWAY],
            Kind::Asynchronous => &[BEHIND, PLANNED],
        }
    }

    async fn suffer(&mut self, fate: &'static str, collector: &Collector, random: &Seeded) {
        let time = between(random, LEASE / 10, LEASE);
        match fate {
            CRASHED => {
                self.primary.stop_at_once();
                tokio::time::sleep(time).await;
                self.standby.promote();
                self.move_address();
                self.gets_another_standby().await;
            }
            HUNG => {
                self.primary.pause();
                tokio::time::sleep(time).await;
                self.standby.promote();
                self.move_address();
                let old = self.gets_another_standby().await;
                // Nobody has told it. What had been sent to it, it does now, and waits for a standby that is gone.
                old.resume();
                tokio::time::sleep(LEASE).await;
            }
            AWAY => {
                self.standby.pause();
                let before = collector.told("store-unavailable");
                until("nothing is confirmed", async || collector.told("store-unavailable") > before).await;
                tokio::time::sleep(time).await;
                self.standby.resume();
                self.follows().await;
            }
            BEHIND => {
                let loss = collector.forgets(None);
                self.link.stall();
                orders_are_done(collector).await;
                let before = records(&self.primary);
                self.primary.stop_at_once();
                // What was on its way is gone with it.
                self.link.refuse();
                self.standby.promote();
                let left = records(&self.standby);
                assert!(left < before, "{before} records were there, and {left} are left: nothing was lost");
                // Nobody can ask meanwhile: what runs again does so when the loss is over.
                forgotten(collector, loss, 1).await;
                self.move_address();
                self.gets_another_standby().await;
            }
            PLANNED => {
                // It ends when the standby has all of it.
                self.primary.stop();
                self.standby.promote();
                self.move_address();
                self.gets_another_standby().await;
            }
            other => panic!("{other}"),
        }
        // Outcomes that waited for a primary are told again by then.
        tokio::time::sleep(3 * LEASE).await;
    }
}

const PLAN: Plan =
    Plan { gateways: 2, rule: "", promise: SHARED, expected: &["fresh", "replayed", "store-unavailable"] };

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_what_a_synchronous_standby_has_never_runs_again() {
    let report = play(Pair::start(Kind::Synchronous).await, &PLAN).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_only_what_an_asynchronous_standby_had_not_received_runs_again() {
    let report = play(Pair::start(Kind::Asynchronous).await, &PLAN).await;
    assert!(report.doubles.loss > 0, "{report}");
}

/// How many orders come to both sides.
const ORDERS: usize = 4;

/// A gateway with a way of its own to the primary.
async fn side(pair: &Pair, upstream: &Upstream) -> Side<Proxy> {
    let way = Proxy::start(at(&pair.primary)).await;
    let url = url_by(&way);
    Side::start(way, &url, upstream).await
}

/// A network between the two gateways, and a primary on each side: the old one was told nothing.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_primary_whose_synchronous_standby_was_promoted_grants_nothing_any_more() {
    let _alone = alone().await;
    let mut pair = Pair::start(Kind::Synchronous).await;
    let upstream = Upstream::start().await;
    let left = side(&pair, &upstream).await;
    let right = side(&pair, &upstream).await;
    // Whatever comes first on a busy machine, in the end it is recorded.
    left.gets("before", "replayed").await;
    right.gets("before", "replayed").await;

    pair.link.refuse();
    pair.standby.promote();
    right.ways.aim(at(&pair.standby));
    right.ways.cut();
    let old = pair.gets_another_standby().await;
    for n in 0..ORDERS {
        let key = format!("both-{n}");
        // Its second try may come upon the first one, which waits.
        let told = left.ask(&key).await;
        assert!(["store-unavailable", "in-flight"].contains(&told.as_str()), "{key}: {told}");
        right.gets(&key, "replayed").await;
    }
    assert_eq!(old.sql("SELECT pg_is_in_recovery()"), "f", "it is a primary, for all it knows");
    let waiting = old.sql("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    assert_eq!(waiting, "t", "what was given up waits there for a standby that is another's");

    left.ways.aim(at(&pair.primary));
    left.ways.cut();
    left.until("after", "fresh").await;
    for n in 0..ORDERS {
        let key = format!("both-{n}");
        left.gets(&key, "replayed").await;
        assert_eq!(upstream.effects(&key).len(), 1, "{key}");
    }
}

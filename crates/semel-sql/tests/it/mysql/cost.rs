//! What calls cost the server, by its own counts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use semel_core::{
    env::Env,
    record::StateCode,
    store::{AskFor, Claimed, Filter, NewToken, Renewal, Store, StoreAdmin},
};
use semel_sql::{MySqlStore, Options};
use semel_testkit::servers::proxy::{Proxy, Rule, Speaks};
use sqlx::{AssertSqlSafe, Row, mysql::MySqlConnection};

use super::{
    calls::{LEASE, TTL, about, ask, ask_for, done, free, granted, hold, id, plain, unknown},
    place::{Place, options},
};

/// A server's counters.
pub(super) struct Counter {
    connection: MySqlConnection,
}

impl Counter {
    pub(super) async fn of(place: &Place) -> Self {
        Self { connection: place.connection().await }
    }

    pub(super) async fn value(&mut self, name: &str) -> u64 {
        let sql = format!("SHOW GLOBAL STATUS LIKE '{name}'");
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut self.connection).await.unwrap();
        row.try_get::<String, _>(1).unwrap().parse().unwrap()
    }

    /// Prepared statements that were executed, and prepared, while `call` ran.
    async fn during<T>(&mut self, call: impl Future<Output = T>) -> (T, u64) {
        let (executed, prepared) = (self.value("Com_stmt_execute").await, self.value("Com_stmt_prepare").await);
        let answer = call.await;
        assert_eq!(self.value("Com_stmt_prepare").await, prepared, "it was to be warm");
        (answer, self.value("Com_stmt_execute").await - executed)
    }
}

/// One connection, so that every statement is prepared once.
async fn store(place: &Place) -> MySqlStore {
    place.store_with(Options { connections: 1, ..options() }).await
}

/// Every call once, in the same order.
async fn every_call(store: &MySqlStore, n: u64, counter: &mut Counter) -> Vec<(&'static str, u64)> {
    let mut cost = Vec::new();
    let (claim, trips) = counter.during(hold(store, n)).await;
    cost.push(("fresh claim", trips));
    let (_, trips) = counter.during(store.claim(&ask(n))).await;
    cost.push(("duplicate", trips));
    let batch = [Renewal { claim: &claim, lease: LEASE, keep: TTL }];
    cost.push(("renewal", counter.during(store.renew(&batch)).await.1));
    cost.push(("release", counter.during(store.release(&free(&claim))).await.1));
    let (claim, trips) = counter.during(hold(store, n)).await;
    cost.push(("claim of a free record", trips));
    cost.push(("unknown", counter.during(store.settle(&claim, &unknown())).await.1));
    cost.push(("completion", counter.during(store.settle(&claim, &done(b"x"))).await.1));
    cost.push(("get", counter.during(store.get(&id(n))).await.1));
    cost.push(("delete", counter.during(store.delete(&id(n), StateCode::Done)).await.1));
    cost.push(("completion of a lost claim", counter.during(store.settle(&claim, &done(b"x"))).await.1));

    let n = n + 1;
    granted(store.claim(&ask_for(AskFor { takeover: true, ..about(n) })).await);
    store.shift(2 * LEASE).await.unwrap();
    let (answer, trips) = counter.during(store.claim(&ask(n))).await;
    assert_eq!(granted(answer).attempt(), 2);
    cost.push(("takeover", trips));

    let token = NewToken { identity: id(n + 1), ttl: TTL, max_life: 2 * TTL, rest: plain() };
    cost.push(("issue", counter.during(store.issue(&token)).await.1));
    let used = ask_for(AskFor { needs_token: true, ..about(n + 1) });
    cost.push(("use of a token", counter.during(store.claim(&used)).await.1));
    cost
}

#[tokio::test]
async fn every_call_costs_the_statements_that_are_promised() {
    let place = Place::alone(&[]).await;
    let (store, mut counter) = (store(&place).await, Counter::of(&place).await);
    // The first time prepares; what it costs is not looked at.
    let warm = async {
        let mut blind = Counter::of(&place).await;
        let claim = hold(&store, 1000).await;
        let _ = store.claim(&ask(1000)).await.unwrap();
        store.renew(&[Renewal { claim: &claim, lease: LEASE, keep: TTL }]).await.unwrap();
        let _ = store.release(&free(&claim)).await.unwrap();
        let claim = hold(&store, 1000).await;
        let _ = store.settle(&claim, &done(b"x")).await.unwrap();
        store.delete(&id(1000), StateCode::Done).await.unwrap();
        let _ = store.settle(&claim, &done(b"x")).await.unwrap();
        store.shift(Duration::ZERO).await.unwrap();
        assert!(blind.value("Com_stmt_prepare").await > 0);
    };
    warm.await;
    let cost = every_call(&store, 1, &mut counter).await;
    let promised = [
        ("fresh claim", 1),
        ("duplicate", 2),
        ("renewal", 2),
        ("release", 1),
        ("claim of a free record", 3),
        ("unknown", 1),
        ("completion", 1),
        ("get", 1),
        ("delete", 2),
        ("completion of a lost claim", 3),
        ("takeover", 3),
        ("issue", 2),
        ("use of a token", 2),
    ];
    assert_eq!(cost, promised);
}

/// Each call about keys from `n` on.
pub(super) async fn calls(store: &MySqlStore, n: u64) {
    let claims = [hold(store, n).await, hold(store, n + 1).await, hold(store, n + 2).await];
    let _ = store.claim(&ask(n)).await.unwrap();
    for held in [&claims[..1], &claims[..]] {
        let batch: Vec<_> = held.iter().map(|claim| Renewal { claim, lease: 2 * LEASE, keep: TTL }).collect();
        store.renew(&batch).await.unwrap();
    }
    let _ = store.settle(&claims[0], &done(b"x")).await.unwrap();
    let _ = store.settle(&claims[1], &unknown()).await.unwrap();
    let _ = store.release(&free(&claims[2])).await.unwrap();
    let _ = store.claim(&ask(n + 2)).await.unwrap();
    store.delete(&id(n), StateCode::Done).await.unwrap();
    let token = NewToken { identity: id(n + 3), ttl: TTL, max_life: 2 * TTL, rest: plain() };
    let _ = store.issue(&token).await.unwrap();
    let _ = store.extend(&id(n + 3), 2 * TTL).await.unwrap();
    assert!(store.withdraw(&id(n + 3)).await.unwrap());
    store.list(&Filter { state: Some(StateCode::Unknown), ..Filter::default() }, None, 10).await.unwrap();
    store.audit("somebody did something").await.unwrap();
    store.purge(10).await.unwrap();
    store.health().await.unwrap();
}

/// The driver sets no `TCP_NODELAY`: a packet that has no answer would keep the next one back until the server acknowledges
/// it, which takes 40 ms. So no call sends one: closing a statement, sending long data.
#[tokio::test]
async fn no_call_sends_a_packet_that_has_no_answer() {
    const SILENT: [u8; 2] = [0x18, 0x19];
    let place = Place::alone(&[]).await;
    let (port, mut counter) = (place.server.port(), Counter::of(&place).await);
    let proxy = Proxy::speaking(Speaks::MySql, ([127, 0, 0, 1], port).into()).await;
    let seen = Arc::new([const { AtomicU64::new(0) }; 2]);
    let sees = Arc::clone(&seen);
    // It fits nothing, and sees everything.
    proxy.rule(Rule::when(move |request| {
        let silent = request.bytes.get(4).is_some_and(|command| SILENT.contains(command));
        sees[usize::from(silent)].fetch_add(1, Ordering::SeqCst);
        false
    }));
    let url = place.url().replace(&port.to_string(), &proxy.address().port().to_string());
    let store = MySqlStore::connect(&url, &Env::system(), Options { connections: 1, ..options() }).await.unwrap();
    for n in 0..3 {
        calls(&store, 10 * n).await;
    }
    let executed = counter.value("Com_stmt_execute").await;
    let [answered, silent] = seen.each_ref().map(|count| count.load(Ordering::SeqCst));
    assert!(executed > 50 && answered > executed, "{executed} statements in {answered} requests");
    assert_eq!(silent, 0);
}

#[tokio::test]
async fn a_batch_of_renewals_costs_two_statements() {
    let place = Place::alone(&[]).await;
    let (store, mut counter) = (store(&place).await, Counter::of(&place).await);
    let mut claims = Vec::new();
    for n in 0..50 {
        claims.push(hold(&store, n).await);
    }
    let batch: Vec<_> = claims.iter().map(|claim| Renewal { claim, lease: 2 * LEASE, keep: TTL }).collect();
    assert_eq!(store.renew(&batch).await.unwrap().len(), 50);
    assert_eq!(counter.during(store.renew(&batch)).await.1, 2);
}

/// Not one byte of the redo log, which is what a server has to sync.
#[tokio::test]
async fn a_duplicate_writes_no_redo_log() {
    let place = Place::alone(&[]).await;
    let (store, mut counter) = (store(&place).await, Counter::of(&place).await);
    let running = hold(&store, 1).await;
    let claim = hold(&store, 2).await;
    let _ = store.settle(&claim, &done(b"x")).await.unwrap();
    let _ = store.claim(&ask(1)).await.unwrap();
    // The server tidies up behind the claims.
    let mut before = counter.value("Innodb_lsn_current").await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = counter.value("Innodb_lsn_current").await;
        if std::mem::replace(&mut before, now) == now {
            break;
        }
    }
    for _ in 0..50 {
        for n in [1, 2] {
            assert!(matches!(store.claim(&ask(n)).await, Ok(Claimed::Found { .. })));
        }
    }
    assert_eq!(counter.value("Innodb_lsn_current").await, before);
    let _ = store.settle(&running, &done(b"x")).await.unwrap();
    assert!(counter.value("Innodb_lsn_current").await > before, "a settlement is written");
}

/// No call reads or locks more rows than it is about, however many there are.
#[tokio::test]
async fn the_cost_of_a_call_does_not_grow_with_the_table() {
    let place = Place::alone(&[]).await;
    let (store, mut counter) = (store(&place).await, Counter::of(&place).await);
    place
        .run(
            "INSERT INTO semel_record SELECT UNHEX(SHA2(seq, 256)), 1, 2, 0, 0, NULL, UNHEX(MD5(seq)), seq, 1, 0, \
             9000000000000000, '', 'http:orders', 'k', '' FROM seq_1_to_5000",
        )
        .await;
    let rows = async |counter: &mut Counter| {
        let mut sum = 0;
        for name in ["Handler_read_next", "Handler_read_rnd_next", "Handler_read_prev", "Handler_read_first"] {
            // `SHOW STATUS` reads some itself; that is the same each time.
            sum += counter.value(name).await;
        }
        sum
    };
    let noise = {
        let before = rows(&mut counter).await;
        rows(&mut counter).await - before
    };
    let claims = [hold(&store, 1).await, hold(&store, 2).await, hold(&store, 3).await];
    let before = rows(&mut counter).await;
    let _ = store.claim(&ask(4)).await.unwrap();
    let _ = store.claim(&ask(1)).await.unwrap();
    let batch: Vec<_> = claims.iter().map(|claim| Renewal { claim, lease: 2 * LEASE, keep: TTL }).collect();
    store.renew(&batch).await.unwrap();
    let _ = store.settle(&claims[0], &done(b"x")).await.unwrap();
    let _ = store.settle(&claims[1], &unknown()).await.unwrap();
    let _ = store.release(&free(&claims[2])).await.unwrap();
    let _ = store.claim(&ask(3)).await.unwrap();
    let _ = store.get(&id(1)).await.unwrap();
    let _ = store.delete(&id(1), StateCode::Done).await.unwrap();
    assert_eq!(store.purge(10).await.unwrap().removed, 0);
    assert_eq!(store.list(&Filter::default(), None, 5).await.unwrap().entries.len(), 5);
    let read = rows(&mut counter).await - before - noise;
    assert!(read < 60, "{read} rows were read");
}

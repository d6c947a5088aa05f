//! Servers that restart, follow, take over.

use std::time::Duration;

use semel_core::{
    env::Env,
    record::StateCode,
    store::{Claimed, Did, Durability, FenceStrength, Grade, Releasing, Settled, Store, StoreAdmin},
};
use semel_sql::{ConnectError, Options, PostgresStore};
use semel_testkit::servers::{PgBouncer, Postgres};

use super::asking::{LEASE, answer, ask, done, granted, hold, id};

async fn connect(url: &str) -> Result<PostgresStore, ConnectError> {
    PostgresStore::connect(url, &Env::system(), Options::default()).await
}

/// The call, as often as it takes until its server is back.
async fn patiently<T>(mut call: impl AsyncFnMut() -> Result<T, semel_core::store::StoreError>) -> T {
    for _ in 0..200 {
        match call().await {
            Ok(answer) => return answer,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    panic!("the server did not come back")
}

/// Stopped without a word, as at a crash: what was acknowledged is there, and claims are still their owners'.
#[tokio::test]
async fn a_primary_that_restarts_keeps_what_it_acknowledged() {
    let mut server = Postgres::start_with(&["fsync=on"]).await;
    PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    let store = connect(&server.url()).await.unwrap();
    assert_eq!((store.facts().durability, store.facts().fence), (Durability::Power, FenceStrength::Strong));
    let claims = [hold(&store, 1).await, hold(&store, 2).await, hold(&store, 3).await];
    let _ = store.settle(&claims[0], &done(b"kept")).await.unwrap();
    server.stop_at_once();
    let error = store.claim(&ask(4)).await.unwrap_err();
    assert!(matches!(error.did, Did::Unknown | Did::Nothing));
    // The connection that was open may have taken the claim with it; those that are made now have not.
    assert_eq!(store.claim(&ask(4)).await.unwrap_err().did, Did::Nothing);
    server.start_again().await;
    let seen = patiently(async || store.get(&id(1)).await).await;
    assert_eq!(seen.record.unwrap().rest, answer(b"kept"));
    match patiently(async || store.claim(&ask(2)).await).await {
        Claimed::Found { record: Some(r), .. } => assert!(r.belongs_to(claims[1].owner(), claims[1].fence())),
        other => panic!("it is held: {other:?}"),
    }
    let settled = store.settle(&claims[1], &done(b"late")).await.unwrap();
    assert!(matches!(settled, Settled::Ok { restored: false }));
    let free = Releasing::Held { claim: &claims[2], counts: true, park: false, keep: LEASE, rest: answer(b"") };
    let _ = store.release(&free).await.unwrap();
    assert!(hold(&store, 3).await.fence() > claims[2].fence());
}

/// It comes back with Semel's tables and nothing in them, as from a backup of the first day.
#[tokio::test]
async fn a_server_that_comes_back_with_nothing_is_noticed_and_keeps_late_outcomes() {
    let mut server = Postgres::start().await;
    PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    let store = connect(&server.url()).await.unwrap();
    let claims = [hold(&store, 1).await, hold(&store, 2).await];
    let born = store.health().await.unwrap().birth;
    let fresh = Postgres::start().await;
    PostgresStore::migrate(&fresh.url(), &Options::default()).await.unwrap();
    server.stop_at_once();
    server.start_on_data_of(fresh).await;
    let again = patiently(async || store.health().await).await.birth;
    assert!(again.is_some() && again != born, "it is told that the records are gone");
    let newer = granted(Ok(patiently(async || store.claim(&ask(1)).await).await));
    assert!(newer.fence() > claims[0].fence());
    assert!(matches!(store.settle(&claims[0], &done(b"late")).await, Ok(Settled::Lost(_))));
    assert!(matches!(store.settle(&claims[1], &done(b"kept")).await, Ok(Settled::Ok { restored: true })));
    assert_eq!(store.get(&id(2)).await.unwrap().record.unwrap().rest, answer(b"kept"));
}

/// It comes back without the tables: nothing is granted until somebody makes them.
#[tokio::test]
async fn a_server_that_comes_back_without_tables_grants_nothing_until_they_are_made() {
    let mut server = Postgres::start().await;
    PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    let store = connect(&server.url()).await.unwrap();
    hold(&store, 1).await;
    let bare = Postgres::start().await;
    server.stop_at_once();
    server.start_on_data_of(bare).await;
    // The connection that was open may have taken the first one with it.
    let _first = store.claim(&ask(2)).await.unwrap_err();
    for _ in 0..3 {
        assert_eq!(store.claim(&ask(2)).await.unwrap_err().did, Did::Nothing);
    }
    PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    granted(Ok(patiently(async || store.claim(&ask(2)).await).await));
}

#[tokio::test]
async fn a_standby_is_refused_until_it_is_the_primary() {
    let mut primary = Postgres::start().await;
    PostgresStore::migrate(&primary.url(), &Options::default()).await.unwrap();
    let store = connect(&primary.url()).await.unwrap();
    let claim = hold(&store, 1).await;
    let standby = primary.standby().await;
    let refused = connect(&standby.url()).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Refused { .. }) && refused.to_string().contains("standby"), "{refused}");
    let worst = store.inspect().await.unwrap().iter().map(|f| f.grade).max();
    assert_eq!(worst, Some(Grade::Warning), "an asynchronous standby, and fsync is off");
    // What was written reaches it before the primary is gone.
    let at = primary.sql("SELECT pg_current_wal_lsn()");
    for _ in 0..500 {
        if standby.sql(&format!("SELECT pg_last_wal_replay_lsn() >= '{at}'")) == "t" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    primary.stop_at_once();
    standby.promote();
    let after = connect(&standby.url()).await.unwrap();
    assert_eq!(store.facts().name, after.facts().name);
    let record = after.get(&id(1)).await.unwrap().record.unwrap();
    assert!(record.belongs_to(claim.owner(), claim.fence()));
    let _ = after.settle(&claim, &done(b"on the new primary")).await.unwrap();
    assert!(hold(&after, 2).await.fence() > claim.fence());
}

/// A primary that was demoted without a restart: the sessions are open, and nothing can be written.
#[tokio::test]
async fn a_server_that_takes_no_writes_did_nothing() {
    let server = Postgres::start().await;
    PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    let store = connect(&server.url()).await.unwrap();
    let claim = hold(&store, 1).await;
    server.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    assert_eq!(server.sql("SELECT pg_reload_conf()"), "t");
    let refused = patiently(async || match store.claim(&ask(2)).await {
        Ok(Claimed::Granted { .. }) => Err(semel_core::store::StoreError::unavailable(Did::Nothing)),
        Ok(other) => panic!("nobody else asks: {other:?}"),
        Err(error) => Ok(error),
    })
    .await;
    assert_eq!(refused.did, Did::Nothing, "{refused}");
    assert_eq!(store.settle(&claim, &done(b"x")).await.unwrap_err().did, Did::Nothing);
    let error = connect(&server.url()).await.unwrap_err();
    assert!(error.to_string().contains("default_transaction_read_only"), "{error}");
    server.sql("ALTER SYSTEM RESET default_transaction_read_only");
    assert_eq!(server.sql("SELECT pg_reload_conf()"), "t");
    let settled = patiently(async || store.settle(&claim, &done(b"x")).await).await;
    assert!(matches!(settled, Settled::Ok { restored: false }));
    assert_eq!(store.get(&id(1)).await.unwrap().record.unwrap().state, StateCode::Done);
}

/// A copy of the tables that was made without their indexes, or an index that was never finished.
#[tokio::test]
async fn a_table_whose_ids_may_repeat_is_refused() {
    let server = Postgres::start().await;
    PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    let open = connect(&server.url()).await.unwrap();
    let drop = "ALTER TABLE semel_record DROP CONSTRAINT IF EXISTS semel_record_pkey; DROP INDEX IF EXISTS other; ";
    for (change, refused) in [
        ("CREATE INDEX other ON semel_record (id)", "semel_record (id)"),
        ("CREATE UNIQUE INDEX other ON semel_record (id, v)", "semel_record (id)"),
        ("CREATE UNIQUE INDEX other ON semel_record (id) WHERE state = 1", "semel_record (id)"),
        ("ALTER TABLE semel_record ADD CONSTRAINT semel_record_pkey PRIMARY KEY (id) DEFERRABLE", "semel_record (id)"),
        ("CREATE UNIQUE INDEX other ON semel_record (id)", ""),
        (
            "ALTER TABLE semel_mark DROP CONSTRAINT semel_mark_pkey; ALTER TABLE semel_record ADD PRIMARY KEY (id)",
            "semel_mark (one)",
        ),
        ("ALTER TABLE semel_mark ADD PRIMARY KEY (one); ALTER TABLE semel_record ADD PRIMARY KEY (id)", ""),
    ] {
        server.sql(&format!("{drop}{change}"));
        match connect(&server.url()).await {
            Ok(store) if refused.is_empty() => drop_all(&store).await,
            Err(ConnectError::Refused { findings, .. }) if !refused.is_empty() => {
                assert_eq!(findings.len(), 1, "{change}: {findings:?}");
                assert_eq!(findings[0].what, format!("no unique index on {refused}"), "{change}");
                assert!(findings[0].cure.contains("ADD PRIMARY KEY"), "{}", findings[0]);
                assert!(open.inspect().await.unwrap().contains(&findings[0]));
            }
            other => panic!("{change}: {other:?}"),
        }
    }
    server.sql("DROP INDEX semel_record_expires_at");
    let findings = connect(&server.url()).await.unwrap().inspect().await.unwrap();
    let slow = "no index on semel_record (expires_at)";
    assert!(findings.iter().any(|f| f.grade == Grade::Warning && f.what == slow), "{findings:?}");
}

/// A store that works.
async fn drop_all(store: &PostgresStore) {
    let claim = hold(store, 1).await;
    let _ = store.settle(&claim, &done(b"x")).await.unwrap();
    assert!(store.delete(&id(1), StateCode::Done).await.unwrap());
}

#[tokio::test]
async fn a_transaction_pooler_is_noticed() {
    let server = Postgres::start().await;
    PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    let pooler = PgBouncer::start(&server, 2).await;
    let says = async |url: String| {
        let store = connect(&url).await.unwrap();
        hold(&store, u64::from(url.contains(&server.port().to_string()))).await;
        let findings = store.inspect().await.unwrap();
        findings.iter().any(|finding| finding.what.contains("pooler"))
    };
    assert!(says(pooler.url_of("postgres")).await);
    assert!(!says(server.url()).await);
}

#[tokio::test]
async fn a_server_that_may_lose_what_it_acknowledged_says_so() {
    let server = Postgres::start_with(&["synchronous_commit=off"]).await;
    PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    let store = connect(&server.url()).await.unwrap();
    assert_eq!(store.facts().durability, Durability::Process);
    let findings = store.inspect().await.unwrap();
    for what in ["fsync is off", "synchronous_commit is off"] {
        let finding = findings.iter().find(|finding| finding.what == what).unwrap();
        assert!(finding.grade == Grade::Warning && !finding.cure.is_empty());
    }
    server.sql("ALTER TABLE semel_record SET UNLOGGED");
    let refused = connect(&server.url()).await.unwrap_err();
    assert!(refused.to_string().contains("unlogged"), "{refused}");
}

/// Serializable by default: claims that meet fail there, and are sent again by the store itself.
#[tokio::test]
async fn a_stricter_isolation_is_told_and_works() {
    let server = Postgres::start_with(&["default_transaction_isolation=serializable"]).await;
    PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    let store = connect(&server.url()).await.unwrap();
    let findings = store.inspect().await.unwrap();
    assert!(findings.iter().any(|finding| finding.what.contains("serializable")));
    for n in 0..20 {
        let (a, b, c) = (ask(n), ask(n), ask(n));
        let answers = tokio::join!(store.claim(&a), store.claim(&b), store.claim(&c));
        let grants = [answers.0, answers.1, answers.2].into_iter().filter(|a| matches!(a, Ok(Claimed::Granted { .. })));
        assert_eq!(grants.count(), 1);
    }
    let claim = granted(store.claim(&ask(100)).await);
    let _ = store.settle(&claim, &done(b"x")).await.unwrap();
}

#[tokio::test]
async fn a_refused_log_in_is_told_from_a_server_that_is_not_there() {
    let postgres = Postgres::start().await;
    let stranger = postgres.url().replacen("postgres://postgres@", "postgres://stranger:hush@", 1);
    assert!(stranger.contains("stranger"), "{stranger}");
    let error = connect(&stranger).await.expect_err("there is no such role");
    assert!(error.is_refused_login() && error.is_temporary(), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
    let nowhere = connect(&postgres.url_of("no_such_database")).await.expect_err("there is no such database");
    assert!(!nowhere.is_refused_login(), "{nowhere:?}");
}

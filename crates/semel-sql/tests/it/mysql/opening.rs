//! Migrations, and what is looked at before a store is opened.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use semel_core::{
    env::Env,
    identity::{MarkError, Secret},
    store::{Durability, Finding, Grade, Store},
};
use semel_sql::{ConnectError, Migrated, MySqlStore, Options, Schema};
use semel_testkit::servers::{MariaDb, proxy::Proxy};
use sqlx::{Connection, mysql::MySqlConnection};

use super::{
    calls::{hold, id_under},
    place::{Place, options},
};

async fn refused(url: &str) -> ConnectError {
    MySqlStore::connect(url, &Env::system(), options()).await.expect_err("it is refused")
}

#[track_caller]
fn fatal(error: ConnectError) -> Finding {
    let text = error.to_string();
    match error {
        ConnectError::Refused { findings, .. } => {
            let first = findings.into_iter().next().expect("it says why");
            assert!(first.grade == Grade::Fatal && !first.cure.is_empty(), "{first}");
            first
        }
        _ => panic!("refused for another reason: {text}"),
    }
}

#[tokio::test]
async fn tables_are_made_once_by_however_many() {
    let place = Place::blank(MariaDb::shared().await).await;
    assert!(matches!(refused(&place.url()).await, ConnectError::Schema { schema: Schema::Missing, .. }));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let url = place.url();
        tasks.spawn(async move { MySqlStore::migrate(&url, &Options::default()).await.unwrap() });
    }
    let mut did: Vec<_> = tasks.join_all().await.into_iter().map(|m| (m.from, m.to)).collect();
    did.sort_unstable();
    assert_eq!(did, [(0, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1)]);
    hold(&place.store().await, 1).await;
}

/// DDL commits by itself: what a migration that was killed left behind is "not migrated", and the next one finishes it.
#[tokio::test]
async fn a_migration_that_stopped_in_the_middle_is_finished_by_the_next() {
    let all = MySqlStore::migration_sql();
    let statements: Vec<_> = all.split_inclusive(";\n").collect();
    for n in 0..=statements.len() {
        let place = Place::blank(MariaDb::shared().await).await;
        let some: String = statements[..n].concat();
        if !some.trim().is_empty() {
            place.run(&some).await;
        }
        let whole = some.contains("INSERT INTO semel_schema");
        if !whole {
            assert!(matches!(refused(&place.url()).await, ConnectError::Schema { schema: Schema::Missing, .. }), "{n}");
        }
        let migrated = MySqlStore::migrate(&place.url(), &Options::default()).await.unwrap();
        assert_eq!((migrated.from, migrated.to), (u32::from(whole), 1));
        hold(&place.store().await, 1).await;
    }
}

/// A server that stopped answering in the middle was waited for without an end.
#[tokio::test]
async fn a_migration_gives_up_a_server_that_hangs() {
    let place = Place::blank(MariaDb::shared().await).await;
    let mut other = MySqlConnection::connect(&place.url()).await.unwrap();
    let lock = "SELECT GET_LOCK(CONCAT('semel_migrate_', LEFT(SHA1(DATABASE()), 40)), 60)";
    sqlx::raw_sql(lock).fetch_all(&mut other).await.unwrap();
    let port = place.server.port();
    let proxy = Proxy::start((Ipv4Addr::LOCALHOST, port).into()).await;
    let url = place.url().replace(&port.to_string(), &proxy.port().to_string());
    let migrating = async {
        let options = Options { call_timeout: Duration::from_secs(5), ..Options::default() };
        MySqlStore::migrate(&url, &options).await
    };
    let hanging = async {
        let waiting = "SELECT CAST(COUNT(*) AS CHAR) FROM information_schema.PROCESSLIST WHERE STATE = 'User lock' AND DB = DATABASE()";
        for _ in 0..3_000 {
            if place.number(waiting).await == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(place.number(waiting).await, 1, "no migration waits");
        proxy.stall();
    };
    let (ended, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(300), migrating), hanging);
    let error = ended.expect("it gives up").unwrap_err();
    assert!(error.is_temporary() && error.refused().is_none(), "{error}");
    assert!(error.to_string().contains("the server does not answer any more"), "{error}");
    // The lock was its session's.
    drop(proxy);
    other.close().await.unwrap();
    let migrated = MySqlStore::migrate(&place.url(), &Options::default()).await.unwrap();
    assert_eq!(migrated, Migrated { from: 0, to: 1, findings: vec![] });
}

/// What takes longer than a call may take is waited for, as long as the server is at it.
#[tokio::test]
async fn a_migration_that_takes_longer_than_a_call_is_not_given_up() {
    let place = Place::blank(MariaDb::shared().await).await;
    let mut other = MySqlConnection::connect(&place.url()).await.unwrap();
    let lock = "SELECT GET_LOCK(CONCAT('semel_migrate_', LEFT(SHA1(DATABASE()), 40)), 60)";
    sqlx::raw_sql(lock).fetch_all(&mut other).await.unwrap();
    let url = place.url();
    let later = async {
        tokio::time::sleep(Duration::from_secs(6)).await;
        other.close().await.unwrap();
    };
    let options = Options { call_timeout: Duration::from_secs(60), ..Options::default() };
    let (migrated, ()) = tokio::join!(MySqlStore::migrate(&url, &options), later);
    assert_eq!(migrated.unwrap(), Migrated { from: 0, to: 1, findings: vec![] });
}

#[tokio::test]
async fn tables_of_a_later_version_are_left_alone() {
    let place = Place::shared().await;
    place.run("INSERT INTO semel_schema VALUES (2, 0)").await;
    assert!(matches!(
        refused(&place.url()).await,
        ConnectError::Schema { schema: Schema::Newer { found: 2, known: 1 }, .. }
    ));
    assert!(matches!(
        MySqlStore::migrate(&place.url(), &Options::default()).await,
        Err(ConnectError::Schema { schema: Schema::Newer { found: 2, known: 1 }, .. })
    ));
    place.run("DELETE FROM semel_schema WHERE version = 2").await;
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_refused() {
    let place = Place::alone(&[]).await;
    place.run("SET GLOBAL read_only = 1").await;
    // Also for a user who may write in spite of it.
    let finding = fatal(refused(&place.url()).await);
    assert!(finding.what.contains("read_only"), "{finding}");
}

#[tokio::test]
async fn a_table_that_is_not_innodbs_is_refused() {
    let place = Place::alone(&[]).await;
    place.run("ALTER TABLE semel_record ENGINE = Aria").await;
    assert!(fatal(refused(&place.url()).await).what.contains("Aria"));
}

/// Nothing but the error of a unique index tells the first claim: on a table without one each was granted, without a word.
#[tokio::test]
async fn a_table_whose_ids_may_repeat_is_refused() {
    let place = Place::alone(&[]).await;
    for (change, back) in [
        ("ALTER TABLE semel_record DROP PRIMARY KEY", "ALTER TABLE semel_record ADD PRIMARY KEY (id)"),
        (
            "ALTER TABLE semel_record DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)",
            "ALTER TABLE semel_record DROP PRIMARY KEY, ADD UNIQUE KEY (id)",
        ),
        ("ALTER TABLE semel_mark DROP PRIMARY KEY, ADD KEY (id)", "ALTER TABLE semel_mark ADD PRIMARY KEY (id)"),
    ] {
        let open = place.store().await;
        place.run(change).await;
        let finding = fatal(refused(&place.url()).await);
        let table = change.split(' ').nth(2).expect("the table's name");
        assert_eq!(finding.what, format!("no unique index on {table} (id)"), "{change}");
        assert!(finding.cure.contains("ADD PRIMARY KEY (id)"), "{finding}");
        // Also for whoever asks a store that was opened before.
        assert!(open.inspect().await.unwrap().contains(&finding));
        place.run(back).await;
        hold(&place.store().await, 1).await;
        place.run("DELETE FROM semel_record").await;
    }
    place.run("DROP INDEX semel_record_ends ON semel_record").await;
    let findings = place.store().await.inspect().await.unwrap();
    assert!(findings.iter().any(|f| f.grade == Grade::Warning && f.what == "no index on semel_record (expires_at)"));
}

#[tokio::test]
async fn a_user_without_the_rights_is_refused_by_name_of_what_it_lacks() {
    let place = Place::alone(&[]).await;
    place.run(&format!("CREATE USER plain; GRANT SELECT, INSERT, UPDATE ON {}.* TO plain", place.database)).await;
    let url = place.server.url_of("plain", &place.database);
    assert!(fatal(refused(&url).await).what.contains("DELETE"));
    place.run(&format!("GRANT DELETE ON {}.* TO plain", place.database)).await;
    MySqlStore::connect(&url, &Env::system(), options()).await.unwrap();
}

#[tokio::test]
async fn a_binary_log_that_cannot_take_the_statements_is_refused() {
    let options = ["--log-bin=log", "--binlog-format=STATEMENT", "--sync-binlog=1"];
    let place = Place::blank(Arc::new(MariaDb::start_with(&options).await)).await;
    place.run(&MySqlStore::migration_sql()).await;
    assert!(fatal(refused(&place.url()).await).what.contains("binlog_format"));
    place.run("SET GLOBAL binlog_format = 'MIXED'").await;
    hold(&place.store().await, 1).await;
}

#[tokio::test]
async fn what_a_server_may_lose_is_told_and_said_in_the_facts() {
    for (value, durability) in [("2", Durability::Process), ("0", Durability::None)] {
        let place = Place::alone(&[&format!("--innodb-flush-log-at-trx-commit={value}")]).await;
        let store = place.store().await;
        assert_eq!(store.facts().durability, durability);
        let findings = store.inspect().await.unwrap();
        let worst = &findings[0];
        assert!(worst.grade == Grade::Warning && worst.what.contains("innodb_flush_log_at_trx_commit"), "{worst}");
    }
    let store = Place::shared().await.store().await;
    assert!(store.inspect().await.unwrap().iter().all(|f| f.grade == Grade::Note));
    assert_eq!((store.facts().durability, store.facts().name), (Durability::Power, "mariadb"));
}

#[tokio::test]
async fn the_first_process_chooses_the_secret_for_all() {
    let place = Place::shared().await;
    let (one, two) = tokio::join!(place.store(), place.store());
    assert_eq!(id_under(one.secret(), 1), id_under(two.secret(), 1));
    let mine = Secret::from_material(b"configured in one process").unwrap();
    let error = MySqlStore::connect(&place.url(), &Env::system(), Options { secret: Some(mine), ..options() }).await;
    assert!(matches!(error, Err(ConnectError::Mark { source: MarkError::OtherSecret, .. })));
}

#[tokio::test]
async fn a_configured_secret_is_not_kept_by_the_store() {
    let place = Place::shared().await;
    let mine = || Some(Secret::from_material(b"configured in all processes").unwrap());
    let store = place.store_with(Options { secret: mine(), ..options() }).await;
    assert_eq!(id_under(store.secret(), 1), id_under(&mine().unwrap(), 1));
    place.store_with(Options { secret: mine(), ..options() }).await;
    let error = refused(&place.url()).await;
    assert!(matches!(error, ConnectError::Mark { source: MarkError::NeedsSecret, .. }), "{error}");
}

#[tokio::test]
async fn a_url_that_cannot_be_used_is_refused_without_its_password() {
    for url in ["redis://u:hush@h/db", "mysql://u:hush@h", "mysql://u:hush@h/", "mysql://u:hush@h:99999/db", "mysql:"] {
        let error = refused(url).await;
        assert!(matches!(error, ConnectError::Url { .. }), "{url}: {error}");
        assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
    }
    let place = Place::shared().await;
    let wrong = place.server.url_of("nobody:hush", &place.database);
    let error = refused(&wrong).await;
    assert!(matches!(error, ConnectError::Unreachable { .. }) && !format!("{error} {error:?}").contains("hush"));
    assert!(error.is_refused_login(), "{error:?}");
    let server: Arc<MariaDb> = Arc::clone(&place.server);
    let error = refused(&server.url("no_such_database")).await;
    assert!(matches!(error, ConnectError::Unreachable { .. }) && !error.is_refused_login(), "{error:?}");
    assert!(error.to_string().contains(" refuses: Unknown database"), "{error}");
    assert!(error.cure().is_some_and(|cure| cure.contains("CREATE DATABASE")), "{error:?}");
}

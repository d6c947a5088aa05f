//! Tables: made, found, refused.

use std::{net::Ipv4Addr, time::Duration};

use semel_core::env::Env;
use semel_sql::{ConnectError, Migrated, Options, PostgresStore, Schema};
use semel_testkit::servers::{Postgres, proxy::Proxy};
use sqlx::{Connection, PgConnection};

use super::asking::hold;

async fn connect(url: &str) -> Result<PostgresStore, ConnectError> {
    PostgresStore::connect(url, &Env::system(), Options::default()).await
}

async fn schema(url: &str) -> Schema {
    match connect(url).await {
        Err(error @ ConnectError::Schema { schema, .. }) => {
            assert!(!matches!(schema, Schema::Missing) || error.to_string().contains("semel migrate"), "{error}");
            schema
        }
        other => panic!("its tables do not fit: {other:?}"),
    }
}

#[tokio::test]
async fn tables_are_made_once_and_later_ones_are_refused() {
    let server = Postgres::start().await;
    let url = server.url();
    assert_eq!(schema(&url).await, Schema::Missing);
    let options = Options::default();
    // Two at once wait for each other.
    let (one, two) = tokio::join!(PostgresStore::migrate(&url, &options), PostgresStore::migrate(&url, &options));
    let mut done = [one.unwrap(), two.unwrap()];
    done.sort_by_key(|migrated| migrated.from);
    assert_eq!(done, [0, 1].map(|from| Migrated { from, to: 1, findings: vec![] }));
    hold(&connect(&url).await.unwrap(), 1).await;

    server.sql("INSERT INTO semel_schema (version) VALUES (7)");
    assert_eq!(schema(&url).await, Schema::Newer { found: 7, known: 1 });
    let refused = PostgresStore::migrate(&url, &options).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Schema { schema: Schema::Newer { .. }, .. }), "{refused}");
}

/// A session that holds the lock of migrations until it is told to end.
async fn in_the_way(server: &Postgres) -> PgConnection {
    let mut other = PgConnection::connect(&server.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT pg_advisory_xact_lock(5355210573)").execute(&mut other).await.unwrap();
    other
}

/// Until a migration waits for that lock.
async fn waits(server: &Postgres) {
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    for _ in 0..3_000 {
        if server.sql(waiting) == "1" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("no migration waits");
}

/// A server that stopped answering in the middle was waited for without an end.
#[tokio::test]
async fn a_migration_gives_up_a_server_that_hangs() {
    let server = Postgres::start().await;
    let other = in_the_way(&server).await;
    let proxy = Proxy::start((Ipv4Addr::LOCALHOST, server.port()).into()).await;
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
    let migrating = async {
        let options = Options { call_timeout: Duration::from_secs(5), ..Options::default() };
        PostgresStore::migrate(&url, &options).await
    };
    let hanging = async {
        waits(&server).await;
        proxy.stall();
    };
    let (ended, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(300), migrating), hanging);
    let error = ended.expect("it gives up").unwrap_err();
    assert!(error.is_temporary() && error.refused().is_none(), "{error}");
    assert!(error.to_string().contains("the server does not answer any more"), "{error}");
    drop((proxy, other));
    let migrated = PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    assert_eq!(migrated, Migrated { from: 0, to: 1, findings: vec![] });
}

/// What takes longer than a call may take is waited for, as long as the server is at it.
#[tokio::test]
async fn a_migration_that_takes_longer_than_a_call_is_not_given_up() {
    let server = Postgres::start().await;
    let other = in_the_way(&server).await;
    let options = Options { call_timeout: Duration::from_secs(60), ..Options::default() };
    let later = async {
        waits(&server).await;
        // Until it was looked after several times.
        let looks =
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' AND query LIKE '%pg_stat_activity WHERE pid%'";
        for _ in 0..3_000 {
            if server.sql(looks) == "1" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        other.close().await.unwrap();
    };
    let url = server.url();
    let (migrated, ()) = tokio::join!(PostgresStore::migrate(&url, &options), later);
    assert_eq!(migrated.unwrap(), Migrated { from: 0, to: 1, findings: vec![] });
}

/// What `semel migrate --print` shows is what people can run by hand.
#[tokio::test]
async fn the_printed_statements_make_the_same_tables() {
    let server = Postgres::start().await;
    for database in ["printed", "migrated"] {
        server.sql(&format!("CREATE DATABASE {database}"));
    }
    server.sql_in("printed", &PostgresStore::migration_sql());
    PostgresStore::migrate(&server.url_of("migrated"), &Options::default()).await.unwrap();
    let tables = |database: &str| {
        server.sql_in(
            database,
            "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns \
             WHERE table_schema = 'public' ORDER BY 1, 2",
        )
    };
    assert!(tables("printed").contains("semel_record|expires_at|bigint|NO"));
    assert_eq!(tables("printed"), tables("migrated"));
    hold(&connect(&server.url_of("printed")).await.unwrap(), 1).await;
}

#[tokio::test]
async fn tables_may_lie_in_a_schema_of_their_own() {
    let server = Postgres::start().await;
    server.sql("CREATE SCHEMA apart");
    let url = format!("{}?options[search_path]=apart", server.url());
    PostgresStore::migrate(&url, &Options::default()).await.unwrap();
    hold(&connect(&url).await.unwrap(), 1).await;
    assert_eq!(server.sql("SELECT count(*) FROM apart.semel_record"), "1");
    assert_eq!(schema(&server.url()).await, Schema::Missing);
}

/// They were told that there is no connection, with a line of the server's own source, and to start the server.
#[tokio::test]
async fn a_server_that_says_no_is_told_with_its_words_and_what_to_do() {
    let server = Postgres::start().await;
    let (url, options) = (server.url(), Options::default());
    server.sql("CREATE ROLE few LOGIN");
    let few = url.replacen("postgres@", "few@", 1);
    let made = PostgresStore::migrate(&few, &options).await.expect_err("it may not");
    let nowhere = PostgresStore::migrate(&server.url_of("nope"), &options).await.expect_err("there is none");
    PostgresStore::migrate(&url, &options).await.expect("it may");
    let opened = connect(&few).await.expect_err("it may not read");
    for (error, said, cure) in [
        (made, "permission denied for schema public", "GRANT USAGE, CREATE ON SCHEMA"),
        (nowhere, "database \"nope\" does not exist", "CREATE DATABASE"),
        (opened, "permission denied for table semel_schema", "GRANT SELECT ON semel_schema"),
    ] {
        let text = error.to_string();
        assert!(text.ends_with(&format!(" refuses: {said}")), "{text}");
        assert_eq!(error.refused(), Some(said));
        assert!(error.cure().is_some_and(|told| told.contains(cure)), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_and_may_come_back() {
    let nobody = semel_testkit::servers::free_port();
    let error = connect(&format!("postgres://me:hidden@127.0.0.1:{nobody}/shop")).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("127.0.0.1:{nobody}/shop")) && !text.contains("hidden"), "{text}");
}

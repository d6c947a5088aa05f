//! Tables: made, found, refused.

use semel_core::env::Env;
use semel_sql::{ConnectError, Migrated, Options, PostgresStore, Schema};
use semel_testkit::servers::Postgres;

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
    assert_eq!(done, [Migrated { from: 0, to: 1 }, Migrated { from: 1, to: 1 }]);
    hold(&connect(&url).await.unwrap(), 1).await;

    server.sql("INSERT INTO semel_schema (version) VALUES (7)");
    assert_eq!(schema(&url).await, Schema::Newer { found: 7, known: 1 });
    let refused = PostgresStore::migrate(&url, &options).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Schema { schema: Schema::Newer { .. }, .. }), "{refused}");
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

//! `semel migrate` as whoever sets up a database meets it.

use crate::semel::{before_a_terminal, command, run};
use crate::shared::Shared;

async fn migrate(args: &[&str]) -> (i32, String, String) {
    let ended = run(&[&["migrate"], args].concat()).await;
    (ended.code, ended.out, ended.err)
}

#[tokio::test]
async fn tables_are_made_once_and_then_up_to_date() {
    for server in [Shared::postgres_without_tables().await, Shared::mariadb_without_tables().await] {
        let url = server.url();
        let said = |what: &str| (0, String::new(), format!("{url}: {what}\n"));
        assert_eq!(migrate(&[&url]).await, said("tables made, version 1"));
        for _ in 0..2 {
            assert_eq!(migrate(&[&url]).await, said("tables are up to date, version 1"));
        }
        let list = run(&["keys", "list", "--store", &url]).await;
        assert_eq!((list.code, list.err.as_str()), (0, "no records\n"), "{list:?}");
    }
}

/// They read as up to date, and a gateway then refused to start on them, or read the whole table at each purge.
#[tokio::test]
async fn what_somebody_took_from_the_tables_is_told_with_the_cure() {
    for (server, takes, told, gives) in [
        (
            Shared::postgres().await,
            "DROP INDEX semel_record_expires_at",
            "warning: no index on semel_record (expires_at): each purge reads the whole table. CREATE INDEX CONCURRENTLY",
            "CREATE INDEX CONCURRENTLY semel_record_expires_at ON semel_record (expires_at)",
        ),
        (
            Shared::mariadb().await,
            "ALTER TABLE semel_record DROP PRIMARY KEY",
            "error: no unique index on semel_record (id): it alone tells the first of two claims",
            "ALTER TABLE semel_record ADD PRIMARY KEY (id)",
        ),
    ] {
        server.sql(takes);
        let (code, out, err) = migrate(&[&server.url()]).await;
        let err = err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains("tables are up to date, version 1") && err.contains(told) && err.contains(gives), "{err}");
        server.sql(gives);
        assert_eq!(migrate(&[&server.url()]).await.0, 0);
    }
}

/// It may take long: who sits before a terminal sees for how long it has.
#[tokio::test]
async fn a_migration_tells_a_terminal_that_it_is_at_work() {
    let server = Shared::postgres_without_tables().await;
    let (code, said) = before_a_terminal(command(&["migrate", &server.url()]));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the database is at work on its tables, "), "{said:?}");
    assert!(said.trim_end().ends_with("tables made, version 1"), "{said:?}");
}

/// For whoever may not let a program change tables: what is printed is run by hand, and counts as done.
#[tokio::test]
async fn what_is_printed_makes_the_same_tables() {
    for server in [Shared::postgres_without_tables().await, Shared::mariadb_without_tables().await] {
        let url = server.url();
        let (code, sql, err) = migrate(&[&url, "--print"]).await;
        assert_eq!((code, err.as_str()), (0, ""));
        let list = run(&["keys", "list", "--store", &url]).await;
        assert!(list.code == 3 && list.err.contains("has no tables of Semel"), "printing made tables: {list:?}");
        server.sql(&sql);
        assert_eq!(migrate(&[&url]).await.2, format!("{url}: tables are up to date, version 1\n"));
        let list = run(&["keys", "list", "--store", &url]).await;
        assert_eq!((list.code, list.err.as_str()), (0, "no records\n"), "{list:?}");
    }
}

/// Nobody listens there, and nobody has to.
#[tokio::test]
async fn printing_connects_to_nothing_and_shows_no_password() {
    for (url, first) in [
        ("postgres://ada:hush@127.0.0.1:9/semel", "CREATE TABLE semel_record"),
        ("mysql://ada:hush@127.0.0.1:9/semel", "CREATE TABLE IF NOT EXISTS semel_record"),
    ] {
        let (code, sql, err) = migrate(&[url, "--print"]).await;
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(sql.contains(first) && !sql.contains("hush"), "{sql}");
    }
}

#[tokio::test]
async fn tables_of_a_later_version_are_left_alone() {
    for (server, change) in [
        (Shared::postgres().await, "INSERT INTO semel_schema (version) VALUES (7)"),
        (Shared::mariadb().await, "INSERT INTO semel.semel_schema VALUES (7, 0)"),
    ] {
        server.sql(change);
        let (code, out, err) = migrate(&[&server.url()]).await;
        assert_eq!((code, out.as_str()), (3, ""), "{err}");
        assert!(err.contains("has tables of version 7, this program knows 1 at most"), "{err}");
    }
}

#[tokio::test]
async fn a_store_without_tables_is_a_usage_error() {
    for (args, said) in [
        (&["redis://127.0.0.1:9/0"][..], "needs no tables, only PostgreSQL and MySQL do"),
        (&["memory", "--print"], "needs no tables, only PostgreSQL and MySQL do"),
        (&[], "name the database: semel migrate postgres://"),
    ] {
        let (code, out, err) = migrate(args).await;
        let err = err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(said), "{err}");
    }
}

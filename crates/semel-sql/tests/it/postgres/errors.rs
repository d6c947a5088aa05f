//! Errors of a real server, one of each kind: what the call did, and that the store goes on.

use std::time::Duration;

use semel_core::{
    record::StateCode,
    store::{Claimed, Did, Store, StoreAdmin, StoreErrorKind},
};
use semel_sql::{ConnectError, Options, PostgresStore};
use semel_testkit::{conformance::Bed as _, servers::Postgres};
use sqlx::{Connection, PgConnection, Row, postgres::PgConnectOptions};

use super::{
    asking::{LEASE, ask, done, granted, hold, id, now},
    bed::Bed,
    codes::CODES,
};

/// Makes every write of a record fail with `code`.
async fn fails_with<const POOLED: bool>(bed: &Bed<POOLED>, code: &str) {
    bed.ask(&format!(
        "CREATE OR REPLACE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RAISE EXCEPTION USING ERRCODE = ''{code}'', MESSAGE = ''injected''; END'; \
         CREATE OR REPLACE TRIGGER fail BEFORE INSERT OR UPDATE ON semel_record FOR EACH ROW EXECUTE FUNCTION public.fail()"
    ))
    .await;
}

async fn works_again<const POOLED: bool>(bed: &Bed<POOLED>) {
    bed.ask("DROP TRIGGER fail ON semel_record; DROP FUNCTION public.fail()").await;
}

async fn an_error_of_the_server_is_told_as_the_table_says<const POOLED: bool>() {
    let bed = Bed::<POOLED>::start().await;
    let store = bed.store().await;
    let held = hold(&store, 1).await;
    let (nothing, unknown) = (Did::Nothing, Did::Unknown);
    let (away, full) = (StoreErrorKind::Unavailable, StoreErrorKind::Full);
    let cases = [
        ("23514", nothing, away),
        ("57014", nothing, away),
        ("58030", nothing, away),
        ("XX000", nothing, away),
        ("42501", nothing, away),
        ("25006", nothing, away),
        ("40001", nothing, away),
        ("40P01", nothing, away),
        ("53100", nothing, full),
        ("53200", nothing, full),
        ("53400", nothing, full),
        ("53300", nothing, away),
        ("57P03", nothing, away),
        ("3D000", nothing, away),
        ("28000", nothing, away),
        ("28P01", nothing, away),
        ("0A000", nothing, away),
        ("55P03", nothing, away),
        ("57P01", unknown, away),
        ("57P02", unknown, away),
        ("08006", unknown, away),
        ("08P01", unknown, away),
        // From the first of these on everything goes as plain text.
        ("26000", nothing, away),
        ("42P05", nothing, away),
    ];
    for (code, did, kind) in cases {
        fails_with(&bed, code).await;
        let mut errors = vec![store.settle(&held, &done(b"x")).await.unwrap_err()];
        match store.claim(&ask(2)).await {
            // Whoever finds a row locked is told that somebody is at it.
            Ok(Claimed::Found { .. }) if code == "55P03" => {}
            claimed => errors.push(claimed.unwrap_err()),
        }
        for error in errors {
            assert_eq!((error.did, error.kind), (did, kind), "{code}: {error}");
            assert!(error.to_string().contains("injected"), "{error}");
        }
        works_again(&bed).await;
        assert!(store.get(&id(2)).await.unwrap().record.is_none(), "{code}");
    }
    let is_seen = |known: &str| cases.iter().any(|(code, ..)| code.starts_with(known));
    let unseen: Vec<_> = CODES.iter().filter(|(known, _)| !is_seen(known)).collect();
    assert!(unseen.is_empty(), "in the table, and no server has said them here: {unseen:?}");
    hold(&store, 2).await;
    let _ = store.settle(&held, &done(b"x")).await.unwrap();
}

#[tokio::test]
async fn an_error_of_the_server_is_told_as_the_table_says_straight() {
    an_error_of_the_server_is_told_as_the_table_says::<false>().await;
}

#[tokio::test]
async fn an_error_of_the_server_is_told_as_the_table_says_through_a_pooler() {
    an_error_of_the_server_is_told_as_the_table_says::<true>().await;
}

/// The first time it fails, then not: the store sends the statement again by itself.
#[tokio::test]
async fn a_deadlock_is_tried_again() {
    let bed = Bed::<false>::start().await;
    let store = bed.store().await;
    // A sequence is outside of transactions: it counts what was rolled back.
    bed.ask(
        "CREATE SEQUENCE public.tries; \
         CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN IF nextval(''public.tries'') < 3 THEN RAISE EXCEPTION USING ERRCODE = ''40P01''; END IF; RETURN NEW; END'; \
         CREATE TRIGGER fail BEFORE INSERT ON semel_record FOR EACH ROW EXECUTE FUNCTION public.fail()",
    )
    .await;
    hold(&store, 1).await;
    assert_eq!(bed.ask("SELECT last_value::text FROM public.tries").await, "3");
    bed.ask("DROP TRIGGER fail ON semel_record; DROP FUNCTION public.fail(); DROP SEQUENCE public.tries").await;
}

/// The sessions end while nobody uses them, as at a restart: each call says what it can, and soon all is well again.
#[tokio::test]
async fn sessions_that_ended_cost_one_unknown_call_at_most() {
    let bed = Bed::<false>::start().await;
    let store = bed.store().await;
    for n in 0..5 {
        hold(&store, n).await;
    }
    bed.ask(
        "SELECT count(pg_terminate_backend(pid, 5000))::text FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .await;
    let question = ask(10);
    match store.claim(&question).await {
        Ok(Claimed::Granted { .. }) => {}
        Ok(other) => panic!("nobody else has it: {other:?}"),
        Err(error) => {
            assert_eq!((error.did, error.kind), (Did::Unknown, StoreErrorKind::Unavailable), "{error}");
            granted(store.claim(&question).await);
        }
    }
}

/// `statement_timestamp()`: the lease counts from when the claim was sent, however long it waited for the row.
#[tokio::test]
async fn a_claim_waiting_for_a_row_lock_gets_no_longer_a_lease() {
    let bed = Bed::<false>::start().await;
    let (lock_timeout, call_timeout) = (Duration::from_secs(20), Duration::from_secs(30));
    let store = bed.store_with(Options { lock_timeout, call_timeout, ..Options::default() }).await;
    let first = hold(&store, 1).await;
    let free =
        semel_core::store::Releasing::Held { claim: &first, counts: true, park: false, keep: LEASE, rest: done_rest() };
    let _ = store.release(&free).await.unwrap();
    let mut other = PgConnection::connect(&bed.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT FROM semel_record FOR UPDATE").execute(&mut other).await.unwrap();
    let began = now();
    // Half of it is what a busy machine may take to begin.
    let wait = Duration::from_secs(4);
    let question = ask(1);
    let (claimed, ()) = tokio::join!(store.claim(&question), async {
        tokio::time::sleep(wait).await;
        sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
    });
    assert!(now().since(began) >= wait);
    let claim = granted(claimed);
    let seen = store.get(&id(1)).await.unwrap();
    let left = seen.record.unwrap().lease_until.since(seen.now);
    // It began a moment after the clock was looked at here.
    assert!(left <= LEASE - wait / 2, "{left:?} are left");
    assert_eq!(claim.attempt(), 2);
}

fn done_rest() -> bytes::Bytes {
    super::asking::answer(b"")
}

/// Somebody holds the row for longer than a claim waits: to the claim it is in flight, and nothing was done.
#[tokio::test]
async fn a_row_that_stays_locked_is_in_flight() {
    let bed = Bed::<false>::start().await;
    let lock_timeout = Duration::from_millis(100);
    let store = bed.store_with(Options { lock_timeout, ..Options::default() }).await;
    let first = hold(&store, 1).await;
    let free =
        semel_core::store::Releasing::Held { claim: &first, counts: true, park: false, keep: LEASE, rest: done_rest() };
    let _ = store.release(&free).await.unwrap();
    let mut other = PgConnection::connect(&bed.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT FROM semel_record FOR UPDATE").execute(&mut other).await.unwrap();
    match store.claim(&ask(1)).await {
        Ok(Claimed::Found { record: Some(record), .. }) => assert!(!record.is_readable()),
        other => panic!("it is in flight to whoever asks: {other:?}"),
    }
    let error = store.settle(&first, &done(b"x")).await.unwrap_err();
    assert_eq!((error.did, error.kind), (Did::Nothing, StoreErrorKind::Unavailable), "{error}");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    hold(&store, 1).await;
}

#[tokio::test]
async fn a_purge_passes_over_rows_that_somebody_holds() {
    use semel_core::store::StoreAdmin;
    let bed = Bed::<false>::start().await;
    let store = bed.store().await;
    for n in 0..4 {
        let claim = hold(&store, n).await;
        let _ = store.settle(&claim, &done(b"x")).await.unwrap();
    }
    bed.advance(Duration::from_secs(4000)).await;
    let mut other = PgConnection::connect(&bed.url()).await.unwrap();
    let lock = "BEGIN; SELECT FROM semel_record ORDER BY id LIMIT 1 FOR UPDATE";
    sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
    assert_eq!(store.purge(10).await.unwrap().removed, 3);
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    assert_eq!(store.purge(10).await.unwrap().removed, 1);
}

/// Nobody answers: the call ends in its time, and what it did is open.
#[tokio::test]
async fn a_server_that_hangs_is_given_up_in_time() {
    let server = Postgres::start().await;
    PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    let time = Duration::from_millis(300);
    let options = Options { call_timeout: time, connections: 2, ..Options::default() };
    let store = PostgresStore::connect(&server.url(), &semel_core::env::Env::system(), options).await.unwrap();
    hold(&store, 1).await;
    let sessions =
        server.sql("SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE application_name = 'semel'");
    let stop = |signal: &str| {
        let pids = sessions.split(' ').map(str::to_owned);
        let status = std::process::Command::new("kill").arg(signal).args(pids).status().unwrap();
        assert!(status.success());
    };
    stop("-STOP");
    let began = now();
    let question = ask(2);
    let error = store.claim(&question).await.unwrap_err();
    assert_eq!((error.did, error.kind), (Did::Unknown, StoreErrorKind::Unavailable), "{error}");
    assert!((time..10 * time).contains(&now().since(began)), "{:?}", now().since(began));
    stop("-CONT");
    for _ in 0..50 {
        match store.claim(&question).await {
            Ok(Claimed::Granted { .. }) => return,
            Ok(Claimed::Found { record: Some(r), .. }) if r.owner == question.owner() => return,
            Ok(other) => panic!("nobody else asks: {other:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    panic!("the store did not come back");
}

/// `fetch_one` would return with the first row, before the end of its transaction.
#[tokio::test]
async fn a_grant_is_answered_after_its_commit() {
    let server = Postgres::start().await;
    PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    let options = Options { call_timeout: Duration::from_millis(500), ..Options::default() };
    let store = PostgresStore::connect(&server.url(), &semel_core::env::Env::system(), options).await.unwrap();
    hold(&store, 1).await;
    // From now on every commit waits for a standby that is not there.
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    assert_eq!(server.sql("SELECT pg_reload_conf()"), "t");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let error = store.claim(&ask(2)).await.unwrap_err();
    assert_eq!(error.did, Did::Unknown, "{error}");
}

/// A role that may have two sessions, and wants three.
#[tokio::test]
async fn too_many_connections_did_nothing() {
    let bed = Bed::<false>::start().await;
    let role = format!("few_{}", bed.database);
    bed.ask(&format!(
        "CREATE ROLE {role} LOGIN CONNECTION LIMIT 2; GRANT ALL ON ALL TABLES IN SCHEMA public, fake TO {role}; \
         GRANT USAGE ON SCHEMA fake TO {role}"
    ))
    .await;
    let url = bed.url().replace("postgres@", &format!("{role}@"));
    let env = semel_core::env::Env::system();
    let store = PostgresStore::connect(&url, &env, Options::default()).await.unwrap();
    // Both sessions are taken by claims that wait for the table.
    let mut other = PgConnection::connect(&bed.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE semel_record").execute(&mut other).await.unwrap();
    let (one, two, three) = (ask(1), ask(2), ask(3));
    let (_, _, error, ()) = tokio::join!(
        store.claim(&one),
        store.claim(&two),
        async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            store.claim(&three).await.unwrap_err()
        },
        async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
        }
    );
    assert_eq!((error.did, error.kind), (Did::Nothing, StoreErrorKind::Unavailable), "{error}");
    store.close();
    drop(store);
    bed.ask(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_user_without_rights_is_told_which() {
    let bed = Bed::<false>::start().await;
    let role = format!("none_{}", bed.database);
    bed.ask(&format!("CREATE ROLE {role} LOGIN; GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO {role}")).await;
    let url = bed.url().replace("postgres@", &format!("{role}@"));
    let refused = PostgresStore::connect(&url, &semel_core::env::Env::system(), Options::default()).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("semel_record: UPDATE, semel_record: DELETE"), "{error}");
    bed.ask(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// They were not for what people do: nobody could settle an unknown outcome.
#[tokio::test]
async fn the_rights_that_the_documentation_names_are_enough() {
    const PAGE: &str = include_str!("../../../../../docs/deploy.md");
    let bed = Bed::<false>::start().await;
    let role = format!("documented_{}", bed.database);
    let grants: Vec<_> = PAGE.lines().filter(|line| line.starts_with("GRANT ")).collect();
    assert_eq!(grants.len(), 4, "{grants:?}");
    let grants = grants.join(" ").replace("TO semel;", &format!("TO {role};"));
    bed.ask(&format!(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA fake TO {role}; GRANT SELECT ON fake.clock TO {role}; {grants}"
    ))
    .await;
    let url = bed.url().replace("postgres@", &format!("{role}@"));
    let store = PostgresStore::connect(&url, &semel_core::env::Env::system(), Options::default()).await.unwrap();
    hold(&store, 1).await;
    store.audit("a person looked").await.unwrap();
    assert_eq!(store.audited(1).await.unwrap(), ["a person looked"]);
    assert_eq!(store.purge(10).await.unwrap().removed, 0);
    assert!(!store.delete(&id(1), StateCode::Done).await.unwrap());
    store.close();
    drop(store);
    bed.ask(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// What one client sets for a statement, the next one that gets its session from the pooler does not have.
#[tokio::test]
async fn a_time_out_for_locks_is_the_statements_own() {
    let bed = Bed::<true>::start().await;
    let store = bed.store().await;
    hold(&store, 1).await;
    let options: PgConnectOptions = bed.url().parse().unwrap();
    let mut next = PgConnection::connect_with(&options.extra_float_digits(None)).await.unwrap();
    let rows = sqlx::raw_sql("SHOW lock_timeout").fetch_all(&mut next).await.unwrap();
    assert_eq!(rows[0].try_get::<String, _>(0).unwrap(), "0");
}

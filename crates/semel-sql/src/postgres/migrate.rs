//! The tables, brought up step by step: each step a file, each in a transaction of its own, under one lock.

use std::sync::atomic::{AtomicI32, Ordering};

use sqlx::{Connection, PgConnection, Row, postgres::PgRow};

use super::{inspect, url};
use crate::{
    ConnectError, Migrated, Options, Schema,
    watch::{Watch, watched, within},
};

/// The steps, in order: a database of version n has had the first n.
const STEPS: [&str; 1] = [include_str!("../../migrations/postgres/0001_record.sql")];

/// The version that this program uses.
pub(super) const VERSION: u32 = STEPS.len() as u32;

/// Waits for locks are bounded by the server, which says whose turn it was not; the statements themselves are not: see
/// [`watch`](crate::watch).
const BEGIN: &str = "BEGIN; SET LOCAL lock_timeout = '30s';";

const ALONE: &str = "SELECT pg_advisory_xact_lock(5355210573); \
                     CREATE TABLE IF NOT EXISTS semel_schema (version integer PRIMARY KEY, \
                     applied_at timestamptz NOT NULL DEFAULT clock_timestamp());";

/// The highest version that is there; `None` where there is no table of versions.
pub(super) async fn version(connection: &mut PgConnection) -> sqlx::Result<Option<u32>> {
    let there = "SELECT to_regclass('semel_schema') IS NOT NULL";
    let rows: Vec<PgRow> = sqlx::raw_sql(there).fetch_all(&mut *connection).await?;
    if !rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get::<bool, _>(0)? {
        return Ok(None);
    }
    highest(connection).await.map(Some)
}

async fn highest(connection: &mut PgConnection) -> sqlx::Result<u32> {
    let highest = "SELECT coalesce(max(version), 0) FROM semel_schema";
    let rows: Vec<PgRow> = sqlx::raw_sql(highest).fetch_all(connection).await?;
    let version: i32 = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
    Ok(u32::try_from(version).unwrap_or(0))
}

/// What [`migrate`](super::PostgresStore::migrate) would run on an empty database.
pub(super) fn text() -> String {
    let mut out = String::from("-- Semel's tables on PostgreSQL; run them with `semel migrate URL`, or by hand.\n");
    for (version, step) in (1..).zip(STEPS) {
        out.push_str(&format!("\n{BEGIN} {ALONE}\n{step}{}\nCOMMIT;\n", record(version)));
    }
    out
}

fn record(version: u32) -> String {
    format!("INSERT INTO semel_schema (version) VALUES ({version});")
}

/// Brings the tables up.
pub(super) async fn run(text: &str, options: &Options) -> Result<Migrated, ConnectError> {
    let target = url::parse(text)?;
    let server = url::server(&target);
    let mut connection = url::open(&target, options.connect_timeout).await?;
    let other = url::open(&target, options.connect_timeout).await?;
    let (session, patience) = (AtomicI32::new(0), options.call_timeout);
    let mut watch = Sessions { connection: other, watched: &session };
    let done = watched(steps(&mut connection, &session), &mut watch, patience).await;
    let unreachable = |source| ConnectError::Unreachable { server: server.clone(), source };
    let (from, to) = done.map_err(unreachable)?;
    let findings = within(patience, inspect::tables(&mut connection)).await.map_err(unreachable)?;
    // Dropping the connections would do; these the server hears of at once. What was done stands in any case.
    for connection in [connection, watch.connection] {
        let _closed = within(patience, connection.close()).await;
    }
    match Schema::of(Some(to), VERSION) {
        Some(schema) => Err(ConnectError::Schema { server, schema }),
        None => Ok(Migrated { from, to, findings }),
    }
}

/// Looks at a session from another one. Those of one's own user everybody may see.
struct Sessions<'a> {
    connection: PgConnection,
    /// Behind a pooler each transaction may have another.
    watched: &'a AtomicI32,
}

impl Watch for Sessions<'_> {
    async fn is_at_work(&mut self) -> sqlx::Result<bool> {
        let sql = format!(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {} AND coalesce(state, '') NOT LIKE 'idle%')",
            self.watched.load(Ordering::Relaxed)
        );
        let rows: Vec<PgRow> = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).fetch_all(&mut self.connection).await?;
        rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)
    }
}

async fn steps(connection: &mut PgConnection, session: &AtomicI32) -> sqlx::Result<(u32, u32)> {
    let mut from = None;
    // One more round than there are steps, in which nothing is left to do.
    for _ in 0..=STEPS.len() {
        sqlx::raw_sql(BEGIN).execute(&mut *connection).await?;
        session.store(url::session(connection).await?, Ordering::Relaxed);
        sqlx::raw_sql(ALONE).execute(&mut *connection).await?;
        let at = highest(connection).await?;
        let from = *from.get_or_insert(at);
        let Some(step) = usize::try_from(at).ok().and_then(|n| STEPS.get(n)) else {
            sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await?;
            return Ok((from, at));
        };
        let rest = sqlx::AssertSqlSafe(format!("{step}{} COMMIT;", record(at + 1)));
        sqlx::raw_sql(rest).execute(&mut *connection).await?;
    }
    let at = highest(connection).await?;
    Ok((from.unwrap_or(at), at))
}

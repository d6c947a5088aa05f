//! The tables, brought up step by step: each step a file, each in a transaction of its own, under one lock.

use sqlx::{Connection, PgConnection, Row, postgres::PgRow};

use super::url;
use crate::{ConnectError, Migrated, Options, Schema};

/// The steps, in order: a database of version n has had the first n.
const STEPS: [&str; 1] = [include_str!("../../migrations/postgres/0001_record.sql")];

/// The version that this program uses.
pub(super) const VERSION: u32 = STEPS.len() as u32;

const BEGIN: &str = "BEGIN; SET LOCAL lock_timeout = '30s'; SELECT pg_advisory_xact_lock(5355210573); \
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
        out.push_str(&format!("\n{BEGIN}\n{step}{}\nCOMMIT;\n", record(version)));
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
    let done = steps(&mut connection).await;
    let unreachable = |source| ConnectError::Unreachable { server: server.clone(), source };
    let (from, to) = done.map_err(unreachable)?;
    // Dropping the connection would do; this one the server hears of at once.
    connection.close().await.map_err(unreachable)?;
    match Schema::of(Some(to), VERSION) {
        Some(schema) => Err(ConnectError::Schema { server, schema }),
        None => Ok(Migrated { from, to }),
    }
}

async fn steps(connection: &mut PgConnection) -> sqlx::Result<(u32, u32)> {
    let mut from = None;
    // One more round than there are steps, in which nothing is left to do.
    for _ in 0..=STEPS.len() {
        sqlx::raw_sql(BEGIN).execute(&mut *connection).await?;
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

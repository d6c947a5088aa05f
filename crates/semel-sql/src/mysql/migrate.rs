//! Tables and their versions.

use sqlx::{AssertSqlSafe, Connection, Row as _, mysql::MySqlConnection};

use super::{
    inspect,
    server::{Door, first_row},
};
use crate::{
    ConnectError, Migrated, Options, Schema,
    watch::{Watch, watched, within},
};

/// Every version's file, in order. DDL commits by itself, so a file that stops in the middle leaves what it made so far, and
/// not the row that says that it is applied: each of its statements can be repeated, and is, the next time.
const FILES: [&str; 1] = [include_str!("../../migrations/mysql/0001_record.sql")];

/// The version of the tables that this program uses.
pub(super) const VERSION: u32 = FILES.len() as u32;

/// How long one process waits while another one migrates, in seconds.
const PATIENCE: u32 = 30;

/// Names are the whole server's, at most 64 characters on MySQL (192 on MariaDB), and a session may take one twice.
const LOCK: &str = "CONCAT('semel_migrate_', LEFT(SHA1(DATABASE()), 40))";

/// All of it, to be read or applied by hand.
pub(super) fn sql() -> String {
    FILES.join("\n")
}

/// Brings the tables up to this program's version.
pub(super) async fn migrate(url: &str, options: &Options) -> Result<Migrated, ConnectError> {
    let door = Door::of(url, options.lock_timeout).map_err(|why| ConnectError::Url { why })?;
    let server = door.shown();
    let mut connection = door.open_within(options.connect_timeout).await?;
    let other = door.open_within(options.connect_timeout).await?;
    let patience = options.call_timeout;
    let unreachable = |source| ConnectError::Unreachable { server: server.clone(), source };
    let session = within(patience, session(&mut connection)).await.map_err(unreachable)?;
    let mut watch = Sessions { connection: other, watched: session };
    let applied = watched(apply(&mut connection), &mut watch, patience).await;
    let findings = match applied {
        Ok(_) => within(patience, inspect::tables(&mut connection)).await,
        Err(_) => Ok(Vec::new()),
    };
    // The lock ends with the session, whatever happens.
    for connection in [connection, watch.connection] {
        let _closed = within(patience, connection.close()).await;
    }
    let (from, to) = applied.map_err(unreachable)?;
    let findings = findings.map_err(unreachable)?;
    match Schema::of(Some(to), VERSION) {
        Some(schema) => Err(ConnectError::Schema { server, schema }),
        None => Ok(Migrated { from, to, findings }),
    }
}

async fn session(connection: &mut MySqlConnection) -> Result<u64, sqlx::Error> {
    first_row(connection, "SELECT CONNECTION_ID()").await?.ok_or(sqlx::Error::RowNotFound)?.try_get(0)
}

/// Looks at a session from another one. Those of one's own user everybody may see.
struct Sessions {
    connection: MySqlConnection,
    watched: u64,
}

impl Watch for Sessions {
    async fn is_at_work(&mut self) -> Result<bool, sqlx::Error> {
        let sql = format!(
            "SELECT CAST(COUNT(*) AS SIGNED) FROM information_schema.PROCESSLIST WHERE ID = {} AND COMMAND <> 'Sleep'",
            self.watched
        );
        let row = first_row(&mut self.connection, AssertSqlSafe(sql)).await?.ok_or(sqlx::Error::RowNotFound)?;
        Ok(row.try_get::<i64, _>(0)? > 0)
    }
}

async fn apply(connection: &mut MySqlConnection) -> Result<(u32, u32), sqlx::Error> {
    let lock = format!("SELECT GET_LOCK({LOCK}, {PATIENCE})");
    let row = first_row(connection, AssertSqlSafe(lock)).await?.ok_or(sqlx::Error::RowNotFound)?;
    if row.try_get::<Option<i64>, _>(0)? != Some(1) {
        return Err(sqlx::Error::Protocol("another process has been migrating it for too long".into()));
    }
    let from = version(connection).await?.unwrap_or(0);
    for file in FILES.iter().skip(from as usize) {
        for statement in statements(file) {
            sqlx::raw_sql(statement).execute(&mut *connection).await?;
        }
    }
    Ok((from, from.max(VERSION)))
}

/// The statements of a file: each ends with a semicolon at the end of a line.
fn statements(file: &'static str) -> impl Iterator<Item = &'static str> {
    file.split(";\n").map(str::trim).filter(|s| s.lines().any(|l| !l.trim().is_empty() && !l.starts_with("--")))
}

/// The version of the tables that are there; `None` where there are none.
pub(super) async fn version(connection: &mut MySqlConnection) -> Result<Option<u32>, sqlx::Error> {
    const NO_SUCH_TABLE: &str = "42S02";
    let sql = "SELECT CAST(COALESCE(MAX(version), 0) AS SIGNED) FROM semel_schema";
    match first_row(connection, sql).await {
        Ok(Some(row)) => Ok(Some(u32::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0))),
        Ok(None) => Ok(None),
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(NO_SUCH_TABLE) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_can_be_repeated() {
        for file in FILES {
            assert!(statements(file).count() >= 2);
            for statement in statements(file) {
                let code: String = statement.lines().filter(|l| !l.starts_with("--")).collect::<Vec<_>>().join("\n");
                assert!(code.contains("IF NOT EXISTS") || code.contains("WHERE NOT EXISTS"), "{code}");
            }
        }
    }

    #[test]
    fn each_file_says_last_that_it_was_applied() {
        for (version, file) in (1..).zip(FILES) {
            let last = statements(file).last().unwrap();
            assert!(
                last.contains("INSERT INTO semel_schema") && last.contains(&format!("SELECT {version},")),
                "{last}"
            );
        }
    }
}

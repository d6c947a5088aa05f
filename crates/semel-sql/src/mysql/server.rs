//! How the store comes to a connection, and what it makes of its session.

use std::{fmt, sync::Arc, time::Duration};

use semel_core::store::{Did, StoreError, StoreErrorKind};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Row as _, SqlSafeStr,
    mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow},
};

use super::{
    fault::Verdict,
    mark::{Known, Trouble},
    sql,
};
use crate::{ConnectError, pool::Server, url_options::refuse_unknown};

/// What may stand behind the question mark. Character set, collation and time zone of a session are the store's own.
const OPTIONS: &[&str] = &[
    "ssl-mode",
    "sslmode",
    "ssl-ca",
    "sslca",
    "ssl-cert",
    "sslcert",
    "ssl-key",
    "sslkey",
    "statement-cache-capacity",
    "socket",
];

/// A server that was looked at once and is whose it should be.
#[derive(Debug)]
pub(super) struct MySql {
    pub(super) door: Door,
    pub(super) known: Arc<Known>,
}

/// Where a server is, and what a session begins with.
#[derive(Clone)]
pub(super) struct Door {
    options: MySqlConnectOptions,
    lock_wait: u64,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Door {
    /// A door from a URL; what is wrong with it, without its password.
    pub(super) fn of(url: &str, lock_timeout: Duration) -> Result<Self, String> {
        if !(url.starts_with("mysql://") || url.starts_with("mariadb://")) {
            return Err("it begins with `mysql://`".into());
        }
        refuse_unknown(url, OPTIONS)?;
        let options: MySqlConnectOptions = url.parse().map_err(|e: sqlx::Error| e.to_string())?;
        if options.get_database().is_none_or(str::is_empty) {
            return Err("it names the database after the host: `mysql://user@host/semel`".into());
        }
        // The session is set up here, in one statement.
        let options = options.set_names(false).timezone(None).pipes_as_concat(false).no_engine_substitution(false);
        // The server counts in seconds.
        let lock_wait = lock_timeout.as_millis().div_ceil(1000).clamp(1, 3600);
        Ok(Self { options: options.disable_statement_logging(), lock_wait: u64::try_from(lock_wait).unwrap_or(1) })
    }

    /// Host, port and database.
    pub(super) fn shown(&self) -> String {
        let o = &self.options;
        format!("{}:{}/{}", o.get_host(), o.get_port(), o.get_database().unwrap_or_default())
    }

    /// A connection whose session is the store's: statements one by one, READ COMMITTED (no gap is locked, and a look sees what
    /// is committed), strict, in UTC, with short waits for locks of rows and of tables.
    pub(super) async fn open(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        let session = format!(
            "SET autocommit = 1, time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', \
             innodb_lock_wait_timeout = {0}, lock_wait_timeout = {0}, NAMES utf8mb4",
            self.lock_wait
        );
        sqlx::raw_sql(AssertSqlSafe(session)).execute(&mut connection).await?;
        sqlx::raw_sql("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").execute(&mut connection).await?;
        Ok(connection)
    }

    /// The same, for the first look.
    pub(super) async fn open_within(&self, time: Duration) -> Result<MySqlConnection, ConnectError> {
        let opened = tokio::time::timeout(time, self.open()).await;
        let opened = opened.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())));
        opened.map_err(|source| ConnectError::Unreachable { server: self.shown(), source })
    }
}

/// The first row of an answer that is read to its end. The driver's own `fetch_one` leaves the rest for later.
pub(super) async fn first_row(
    connection: &mut MySqlConnection,
    sql: impl SqlSafeStr,
) -> Result<Option<MySqlRow>, sqlx::Error> {
    Ok(sqlx::raw_sql(sql).fetch_all(connection).await?.into_iter().next())
}

/// Whether the server refuses writes, from the first two columns behind the clock.
pub(super) fn is_read_only(row: &MySqlRow) -> Result<bool, sqlx::Error> {
    let on = |value: String| !matches!(value.to_ascii_uppercase().as_str(), "0" | "OFF");
    Ok(on(row.try_get(1)?) || on(row.try_get(2)?))
}

impl Server for MySql {
    type Connection = MySqlConnection;

    async fn connect(&self) -> Result<MySqlConnection, StoreError> {
        let failed = |error| Verdict::of(error).into_error().of_nothing();
        let mut connection = self.door.open().await.map_err(failed)?;
        // As text: a statement prepared for one use ends with a packet without an answer, and the driver's socket (without
        // TCP_NODELAY) then keeps the next one back for 40 ms.
        let row = first_row(&mut connection, sql::HEALTH).await.map_err(failed)?;
        let row = row.ok_or(sqlx::Error::RowNotFound).map_err(failed)?;
        if is_read_only(&row).map_err(failed)? {
            let why = "the server is read only: a replica, or a primary that was demoted";
            let _closed = connection.close().await;
            return Err(StoreError::new(Did::Nothing, StoreErrorKind::ReadOnly, why));
        }
        match row.try_get::<Option<Vec<u8>>, _>(3).map_err(failed)? {
            Some(mark) => self.known.same(&mark).map_err(Trouble::Mark),
            None => self.known.put_back(&mut connection).await,
        }
        .map_err(Trouble::into_error)?;
        Ok(connection)
    }
    /// The protocol has no marks by which a reader that was dropped within a packet finds its way again, and a ping's answer is
    /// short. A number that nobody can have sent before comes back only where all else was read.
    async fn is_drained(&self, connection: &mut MySqlConnection) -> bool {
        if connection.ping().await.is_err() {
            return false;
        }
        let number = self.known.random();
        let sql = format!("SELECT '{number:032x}'");
        match sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await {
            Ok(rows) => {
                rows.len() == 1 && rows[0].try_get::<String, _>(0).is_ok_and(|said| said == format!("{number:032x}"))
            }
            Err(_) => false,
        }
    }
}

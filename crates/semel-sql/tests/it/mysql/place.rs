//! A database of a test's own, on a server that it shares or has for itself.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use semel_core::env::Env;
use semel_sql::{MySqlStore, Options};
use semel_testkit::servers::MariaDb;
use sqlx::{AssertSqlSafe, Connection, Row, mysql::MySqlConnection};

thread_local! {
    /// Keeps the server while one test makes place after place; it ends with the test's thread.
    static KEPT: RefCell<Option<Arc<MariaDb>>> = const { RefCell::new(None) };
}

/// Databases that nobody uses any more, by the server's port.
static FREE: Mutex<Vec<(u16, String)>> = Mutex::new(Vec::new());

/// A database with Semel's tables, empty.
pub(crate) struct Place {
    pub(crate) server: Arc<MariaDb>,
    pub(crate) database: String,
}

/// Few connections, so that many clients fit on one server, and time enough on a machine that has much to do.
pub(crate) fn options() -> Options {
    Options { connections: 8, call_timeout: Duration::from_secs(20), ..Options::default() }
}

impl Place {
    /// On the server that tests share.
    pub(crate) async fn shared() -> Self {
        let server = MariaDb::shared().await;
        KEPT.set(Some(Arc::clone(&server)));
        let port = server.port();
        let free = {
            let mut free = FREE.lock();
            free.iter().position(|(p, _)| *p == port).map(|i| free.swap_remove(i).1)
        };
        match free {
            Some(database) => {
                let place = Self { server, database };
                place.run("DELETE FROM semel_record; DELETE FROM semel_mark; DELETE FROM semel_audit").await;
                place
            }
            None => Self::on(server).await,
        }
    }

    /// On a server of the test's own.
    pub(crate) async fn alone(options: &[&str]) -> Self {
        Self::on(Arc::new(MariaDb::start_with(options).await)).await
    }

    async fn on(server: Arc<MariaDb>) -> Self {
        let place = Self::blank(server).await;
        let migrated = MySqlStore::migrate(&place.url(), &Options::default()).await.unwrap();
        assert_eq!((migrated.from, migrated.to), (0, 1));
        place
    }

    /// Without tables.
    pub(crate) async fn blank(server: Arc<MariaDb>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let database = format!("place_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut connection = MySqlConnection::connect(&server.url("")).await.unwrap();
        let sql = AssertSqlSafe(format!("CREATE DATABASE {database}"));
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        Self { server, database }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url(&self.database)
    }

    pub(crate) async fn store(&self) -> MySqlStore {
        self.store_with(options()).await
    }

    pub(crate) async fn store_with(&self, options: Options) -> MySqlStore {
        MySqlStore::connect(&self.url(), &Env::system(), options).await.unwrap()
    }

    /// A connection beside the store's.
    pub(crate) async fn connection(&self) -> MySqlConnection {
        MySqlConnection::connect(&self.url()).await.unwrap()
    }

    /// Runs statements beside the store.
    pub(crate) async fn run(&self, sql: &str) {
        let mut connection = self.connection().await;
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    }

    /// Ends every session of the stores: the next call of each is made on a new connection.
    pub(crate) async fn end_sessions(&self) {
        let sessions = "SELECT GROUP_CONCAT(CONCAT('KILL ', id) SEPARATOR ';') FROM information_schema.PROCESSLIST \
                        WHERE db = DATABASE() AND id <> CONNECTION_ID()";
        let kills = self.text(sessions).await;
        self.run(&kills).await;
    }

    /// What `sql` says beside the store, as a number: its first row's last column.
    pub(crate) async fn number(&self, sql: &str) -> u64 {
        self.text(sql).await.parse().unwrap_or(0)
    }

    /// The same as a text; empty where there is none.
    pub(crate) async fn text(&self, sql: &str) -> String {
        let mut connection = self.connection().await;
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_optional(&mut connection).await.unwrap();
        row.and_then(|row| row.try_get::<Option<String>, _>(row.len() - 1).unwrap()).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        FREE.lock().push((self.server.port(), std::mem::take(&mut self.database)));
    }
}

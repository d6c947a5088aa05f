//! One server for all tests of a process, a database for each bed; the database's clock is one that a test moves.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::{env::Env, identity::Identity, store::StoreAdmin};
use semel_sql::{Options, PostgresStore};
use semel_testkit::servers::{PgBouncer, Postgres};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

/// What is copied for a new database; and the first one, which is there from the start.
const BLANK: &str = "template1";
const FIRST: &str = "postgres";

/// In this schema lies a function that hides the server's own, and the time by which it is ahead.
const CLOCK: &str = "
    CREATE SCHEMA fake;
    CREATE TABLE fake.clock (ahead interval NOT NULL);
    INSERT INTO fake.clock VALUES ('0');
    CREATE FUNCTION fake.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
        AS 'SELECT pg_catalog.statement_timestamp() + (SELECT ahead FROM fake.clock)';
    CREATE EXTENSION pg_walinspect;
    CREATE EXTENSION pg_stat_statements";

/// A server, its pooler, and the databases on it that nobody uses any more.
pub(crate) struct Place {
    pub(crate) server: Postgres,
    pooler: tokio::sync::OnceCell<PgBouncer>,
    free: Mutex<Vec<String>>,
    made: Mutex<u32>,
}

thread_local! {
    /// Keeps the server while one test makes bed after bed; it ends with the test's thread.
    static KEPT: RefCell<Option<Arc<Place>>> = const { RefCell::new(None) };
}

static SHARED: tokio::sync::Mutex<Weak<Place>> = tokio::sync::Mutex::const_new(Weak::new());

async fn place() -> Arc<Place> {
    let mut shared = SHARED.lock().await;
    let place = match shared.upgrade() {
        Some(place) => place,
        None => {
            let place = Arc::new(Place::start().await);
            *shared = Arc::downgrade(&place);
            place
        }
    };
    KEPT.set(Some(Arc::clone(&place)));
    place
}

impl Place {
    async fn start() -> Self {
        let settings = ["max_connections=300", "autovacuum=off", "shared_preload_libraries=pg_stat_statements"];
        let sql = PostgresStore::migration_sql();
        let name = format!("semel-{:08x}", name_of(&[&sql, CLOCK]));
        let server = Postgres::prepared(&name, &settings, async |server| {
            for database in [BLANK, FIRST] {
                PostgresStore::migrate(&server.url_of(database), &Options::default()).await.unwrap();
                run(&server.url_of(database), CLOCK).await;
                let path = format!("ALTER DATABASE {database} SET search_path = public, fake, pg_catalog");
                run(&server.url_of(database), &path).await;
            }
        })
        .await;
        let free = Mutex::new(vec![FIRST.to_owned()]);
        Self { server, pooler: tokio::sync::OnceCell::new(), free, made: Mutex::default() }
    }

    /// Where a database is through the pooler.
    pub(crate) async fn pooled_url_of(&self, database: &str) -> String {
        self.pooler.get_or_init(async || PgBouncer::start(&self.server, 20).await).await.url_of(database)
    }

    async fn database(&self) -> String {
        let free = self.free.lock().pop();
        if let Some(name) = free {
            let again = "TRUNCATE semel_record, semel_mark, semel_audit; UPDATE fake.clock SET ahead = '0'";
            run(&self.server.url_of(&name), again).await;
            return name;
        }
        let n = {
            let mut made = self.made.lock();
            *made += 1;
            *made
        };
        let name = format!("semel_{n}");
        let mut admin = PgConnection::connect(&self.server.url()).await.unwrap();
        for sql in [
            format!("CREATE DATABASE {name} TEMPLATE {BLANK}"),
            format!("ALTER DATABASE {name} SET search_path = public, fake, pg_catalog"),
        ] {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();
        }
        name
    }
}

/// A number that says whether any of the texts changed.
fn name_of(texts: &[&str]) -> u32 {
    let bytes = texts.iter().flat_map(|text| text.bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

async fn run(url: &str, sql: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// A database of its own; reached straight, or through a pooler in transaction mode.
pub(crate) struct Bed<const POOLED: bool> {
    pub(crate) place: Arc<Place>,
    pub(crate) database: String,
    url: String,
    admin: tokio::sync::Mutex<PgConnection>,
    began: String,
}

impl<const POOLED: bool> Bed<POOLED> {
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// A store on the bed.
    pub(crate) async fn store(&self) -> PostgresStore {
        self.store_with(Options { connections: 8, ..Options::default() }).await
    }

    pub(crate) async fn store_with(&self, options: Options) -> PostgresStore {
        PostgresStore::connect(&self.url(), &Env::system(), options).await.unwrap()
    }

    /// What `sql` says, as text, straight from the server: its first row's first column.
    pub(crate) async fn ask(&self, sql: &str) -> String {
        let mut admin = self.admin.lock().await;
        let rows = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(&mut *admin).await.unwrap();
        rows.first().map(|row| row.try_get(0).unwrap()).unwrap_or_default()
    }
}

impl<const POOLED: bool> semel_testkit::conformance::Bed for Bed<POOLED> {
    const SEQUENCES: u32 = 110;

    async fn start() -> Self {
        let place = place().await;
        let database = place.database().await;
        let url = if POOLED { place.pooled_url_of(&database).await } else { place.server.url_of(&database) };
        let mut admin = PgConnection::connect(&place.server.url_of(&database)).await.unwrap();
        let rows = sqlx::raw_sql("SELECT pg_current_wal_insert_lsn()::text").fetch_all(&mut admin).await.unwrap();
        let began = rows[0].try_get(0).unwrap();
        Self { place, database, url, admin: tokio::sync::Mutex::new(admin), began }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(self.store().await)
    }

    async fn advance(&self, by: Duration) {
        self.ask(&format!("UPDATE fake.clock SET ahead = ahead + '{} microseconds'", by.as_micros())).await;
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        self.store().await.plant(id, bytes).await.unwrap();
    }

    async fn reopen(&self) -> bool {
        // The stores' sessions end; the server itself is restarted by a test of its own.
        self.ask(
            "SELECT count(pg_terminate_backend(pid, 5000))::text FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
        // A pooler hands out sessions that have ended until it has seen that of each.
        for _ in 0..100 {
            if PostgresStore::connect(&self.url(), &Env::system(), Options::default()).await.is_ok() {
                return true;
            }
        }
        panic!("nobody can connect any more")
    }

    /// Records of the write-ahead log about the table of records and its indexes.
    async fn written(&self) -> Option<u64> {
        let count = format!(
            "SELECT count(*)::text FROM pg_get_wal_records_info_till_end_of_wal('{}') \
             WHERE EXISTS (SELECT FROM pg_class WHERE relname LIKE 'semel_record%' AND block_ref LIKE \
             '%/' || (SELECT oid FROM pg_database WHERE datname = current_database()) || '/' || relfilenode || ' %')",
            self.began
        );
        Some(self.ask(&count).await.parse().unwrap())
    }
}

impl<const POOLED: bool> Drop for Bed<POOLED> {
    fn drop(&mut self) {
        self.place.free.lock().push(std::mem::take(&mut self.database));
    }
}

//! The stores that gateways share, on servers of a test's own, with their tables where they have some.

use std::process::Command;

use semel_testkit::servers::redis::{Cluster, Redis, Sentinels, Setup};
use semel_testkit::servers::{MariaDb, Postgres};

use crate::semel::run;

/// A server with an empty store. It ends with the value.
pub(crate) enum Shared {
    Redis(Redis),
    Sentinel(Sentinels),
    Cluster(Cluster),
    Postgres(Postgres),
    MariaDb(MariaDb),
}

impl Shared {
    pub(crate) async fn redis() -> Self {
        Self::Redis(Redis::start(&Setup::new()).await)
    }

    pub(crate) async fn sentinel() -> Self {
        Self::Sentinel(Sentinels::start(&Setup::new()).await)
    }

    pub(crate) async fn cluster() -> Self {
        Self::Cluster(Cluster::start(&Setup::new()).await)
    }

    pub(crate) async fn postgres_without_tables() -> Self {
        Self::Postgres(Postgres::start().await)
    }

    pub(crate) async fn postgres() -> Self {
        Self::postgres_without_tables().await.migrated().await
    }

    pub(crate) async fn mariadb_without_tables() -> Self {
        let server = Self::MariaDb(MariaDb::start().await);
        server.tell("", "CREATE DATABASE semel");
        server
    }

    pub(crate) async fn mariadb() -> Self {
        Self::mariadb_without_tables().await.migrated().await
    }

    async fn migrated(self) -> Self {
        let ended = run(&["migrate", &self.url()]).await;
        assert_eq!(ended.code, 0, "{ended:?}");
        self
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Sentinel(servers) => servers.url(),
            Self::Cluster(servers) => servers.url(),
            Self::Postgres(server) => server.url(),
            Self::MariaDb(server) => server.url("semel"),
        }
    }

    /// What the store's database says to statements: rows by line.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.tell("semel", sql)
    }

    fn tell(&self, database: &str, sql: &str) -> String {
        match self {
            Self::Postgres(server) => server.sql(sql),
            Self::MariaDb(server) => {
                let mut client = Command::new("mariadb");
                client.args(["--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-u", "root", "-N", "-P"]);
                let done = client.arg(server.port().to_string()).args(["-e", sql, database]).output();
                let done = done.expect("the client is installed with the server");
                assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
                String::from_utf8_lossy(&done.stdout).trim().to_owned()
            }
            Self::Redis(_) | Self::Sentinel(_) | Self::Cluster(_) => panic!("Redis speaks no SQL"),
        }
    }
}

/// A test of each case on each store, under the store's name.
macro_rules! on_every_store {
    ($($case:ident)*) => {$(
        mod $case {
            use crate::shared::Shared;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_redis() {
                super::$case(&Shared::redis().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn under_sentinel() {
                super::$case(&Shared::sentinel().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_a_cluster() {
                super::$case(&Shared::cluster().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_postgres() {
                super::$case(&Shared::postgres().await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_mariadb() {
                super::$case(&Shared::mariadb().await).await;
            }
        }
    )*};
}

pub(crate) use on_every_store;

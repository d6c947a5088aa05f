#![doc = include_str!("../../postgres.md")]

mod calls;
mod client;
mod codes;
mod connect;
mod error;
mod inspect;
mod listen;
mod migrate;
mod people;
mod primary;
mod rows;
mod sql;
mod statement;
#[cfg(feature = "testing")]
mod testing;
mod url;
mod waking;

use std::{fmt, sync::Arc};

use semel_core::{
    env::Env,
    identity::Secret,
    store::{Durability, FenceStrength, Finding, StoreError, StoreFacts},
};

use self::{client::Client, listen::Listener};
use crate::{ConnectError, Migrated, Options};

/// Records on PostgreSQL, shared by all processes that connect to the same database. See the [module](self).
pub struct PostgresStore {
    client: Arc<Client>,
    listener: Option<Arc<Listener>>,
    env: Env,
    server: String,
    durability: Durability,
    max_rest: u64,
}

impl PostgresStore {
    /// Connects to the database that `url` names (`postgres://user:password@host:port/database?sslmode=…`), looks at the
    /// server, and takes the mark of its records or leaves one.
    ///
    /// # Errors
    /// [`ConnectError`]: the server does not answer, the tables are missing or of another version, the server is set up so
    /// that the promise would not hold, or its records were made with another secret.
    pub async fn connect(url: &str, env: &Env, options: Options) -> Result<Self, ConnectError> {
        connect::connect(url, env, options).await
    }

    /// Brings the tables of the database up to this program's version, in the first schema of the search path. Processes
    /// that do so at the same time wait for each other.
    ///
    /// It takes as long as the server is at work on it; a second connection looks after that every second. What is bounded are
    /// connections (`connect_timeout`), waits for whoever holds a lock (30 s), and how long the server says nothing
    /// (`call_timeout`). Not cancel-safe: a dropped future leaves the server at its work, whose end the next call waits for.
    ///
    /// # Errors
    /// [`ConnectError`]: the server does not answer or refuses, or the tables are of a later version.
    pub async fn migrate(url: &str, options: &Options) -> Result<Migrated, ConnectError> {
        migrate::run(url, options).await
    }

    /// The statements that [`migrate`](Self::migrate) runs on an empty database, for people who run them by hand.
    #[must_use]
    pub fn migration_sql() -> String {
        migrate::text()
    }

    /// The secret that the records are made with: the configured one, or the store's own.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.client.pool.server().keeper.secret
    }

    /// Host, port and database, for people.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Looks at how the server is set up: what would break the promise, and what people should know.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn inspect(&self) -> Result<Vec<Finding>, StoreError> {
        connect::inspect(self).await
    }

    /// Gives the connections back to the server and refuses further calls.
    pub fn close(&self) {
        self.client.pool.close();
    }

    pub(crate) fn facts_of(&self) -> StoreFacts {
        StoreFacts {
            name: "postgres",
            durability: self.durability,
            fence: FenceStrength::Strong,
            max_rest: self.max_rest,
            shared: true,
            tells_changes: self.listener.is_some(),
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStore({})", self.server)
    }
}

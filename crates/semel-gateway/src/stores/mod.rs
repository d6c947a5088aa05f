//! Opening the store that a configuration names: for the gateway, and for the commands that look into one.

mod local;
mod shared;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel_core::env::Env;
use semel_core::identity::Secret;
use semel_core::store::{Finding, StoreAdmin};

pub use self::shared::{migrate, migration_sql};
use crate::config::{Bytes, Setting, Store, StoreUrl};

/// An open store, and the secret that its identities are made with.
#[derive(Clone)]
pub struct Opened {
    /// The store.
    pub store: Arc<dyn StoreAdmin>,
    /// The configured secret, or the one that the store keeps.
    pub secret: Secret,
    /// What a person should know about the store's server; never a fatal finding.
    pub findings: Vec<Finding>,
    close: Arc<dyn Fn() + Send + Sync>,
}

impl Opened {
    /// Writes what waits and gives the store free. Blocks for at most one batch.
    pub fn close(&self) {
        (self.close)();
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("store", &self.store.facts().name).finish_non_exhaustive()
    }
}

/// Why a store could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The file with the secret cannot be used.
    SecretFile(PathBuf, String),
    /// The file with the password cannot be used.
    PasswordFile(PathBuf, String),
    /// The embedded store cannot be opened.
    Embedded(semel_embedded::OpenError),
    /// The Redis cannot be used.
    Redis(semel_redis::ConnectError),
    /// The database cannot be used.
    Sql(semel_sql::ConnectError),
    /// The store keeps no secret of its own, and none is configured.
    NoSecret,
    /// The store has no tables to make.
    NoTables(String),
}

impl OpenError {
    /// Whether another process has the store, which belongs to one.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::Embedded(semel_embedded::OpenError::InUse { .. }))
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SecretFile(file, why) => write!(
                f,
                "the secret in {} cannot be used: {why}; write at least 16 random bytes into it, readable by the gateway alone",
                file.display()
            ),
            Self::PasswordFile(file, why) => {
                write!(
                    f,
                    "the password in {} cannot be used: {why}; write it into that file, on one line",
                    file.display()
                )
            }
            Self::Embedded(error) => error.fmt(f),
            Self::Redis(error) => error.fmt(f),
            Self::Sql(error) => error.fmt(f),
            Self::NoSecret => f.write_str("the store keeps no secret of its own; name one with secret_file"),
            Self::NoTables(store) => {
                write!(f, "{store} has no tables to make: only PostgreSQL and MySQL have; start the gateway")
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Embedded(error) => Some(error),
            Self::Redis(error) => Some(error),
            Self::Sql(error) => Some(error),
            Self::SecretFile(..) | Self::PasswordFile(..) | Self::NoSecret | Self::NoTables(_) => None,
        }
    }
}

/// Room beside an answer's body in a record: its head, the key as people see it, trailers.
const BESIDE_BODY: u64 = 256 << 10;

/// Opens the store of a configuration. `largest_body`: of an answer that is to be recorded. Blocks where the store is embedded: it
/// reads its journals. Must be called inside a tokio runtime, which carries the connections of a shared store.
///
/// # Errors
/// [`OpenError`]: what, where and what to do. Nothing in the store was changed.
pub async fn open(
    store: &Store,
    secret_file: Option<&Setting<PathBuf>>,
    largest_body: Bytes,
    env: &Env,
) -> Result<Opened, OpenError> {
    let secret = secret_file.map(|file| read_secret(&file.value)).transpose()?;
    let largest_rest = largest_body.0.saturating_add(BESIDE_BODY);
    match &*store.url {
        StoreUrl::Memory => Ok(local::memory(store, secret, env)),
        StoreUrl::Embedded(dir) => local::embedded(dir, store, secret, largest_rest, env),
        StoreUrl::Shared(url) => shared::open(url, store, secret, largest_rest, env).await,
    }
}

fn read_secret(file: &Path) -> Result<Secret, OpenError> {
    let material = std::fs::read(file).map_err(|error| OpenError::SecretFile(file.to_owned(), error.to_string()))?;
    Secret::from_material(&material).map_err(|error| OpenError::SecretFile(file.to_owned(), error.to_string()))
}

//! Opening the store that a configuration names: for the gateway, and for the commands that look into one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel_core::env::Env;
use semel_core::identity::Secret;
use semel_core::store::{Capacity, Finding, MemoryStore, StoreAdmin};
use semel_embedded::{EmbeddedStore, Power};

use crate::config::{Bytes, Durability, Setting, Store, StoreUrl};

/// An open store, and the secret that its identities are made with.
#[derive(Clone)]
pub struct Opened {
    /// The store.
    pub store: Arc<dyn StoreAdmin>,
    /// The configured secret, or the one that the store keeps.
    pub secret: Secret,
    /// What a person should know about the store's server; never a fatal finding.
    pub findings: Vec<Finding>,
    closing: Closing,
}

/// What has to be done before the process ends.
#[derive(Clone)]
enum Closing {
    Nothing,
    /// The directory is given free for the next process.
    Embedded(Arc<EmbeddedStore>),
}

impl Opened {
    /// Writes what waits and gives the store free. Blocks for at most one batch.
    pub fn close(&self) {
        match &self.closing {
            Closing::Nothing => {}
            Closing::Embedded(store) => store.close(),
        }
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
    /// The embedded store cannot be opened.
    Embedded(semel_embedded::OpenError),
    /// The store keeps no secret of its own, and none is configured.
    NoSecret,
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
            Self::Embedded(error) => error.fmt(f),
            Self::NoSecret => f.write_str("the store keeps no secret of its own; name one with secret_file"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Embedded(error) => Some(error),
            Self::SecretFile(..) | Self::NoSecret => None,
        }
    }
}

/// Room beside an answer's body in a record: its head, the key as people see it, trailers.
const BESIDE_BODY: u64 = 256 << 10;

/// Opens the store of a configuration. `largest_body`: of an answer that is to be recorded. Blocks where the store is embedded: it
/// reads its journals.
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
    match &*store.url {
        StoreUrl::Memory => {
            let records = usize::try_from(*store.max_records).unwrap_or(usize::MAX);
            let capacity = Capacity { records, bytes: store.max_bytes.in_memory() };
            Ok(Opened {
                store: Arc::new(MemoryStore::new(env, capacity)),
                secret: secret.unwrap_or_else(|| Secret::random(&*env.rng)),
                findings: Vec::new(),
                closing: Closing::Nothing,
            })
        }
        StoreUrl::Shared(_) => Err(OpenError::NoSecret), // TEMPORARY
        StoreUrl::Embedded(dir) => {
            let built_in = semel_embedded::Options::default();
            let options = semel_embedded::Options {
                durability: match *store.durability {
                    Durability::Power => Power::Power,
                    Durability::Process => Power::Process,
                },
                secret: secret.clone(),
                cache: store.cache.in_memory(),
                max_rest: built_in.max_rest.max(largest_body.0.saturating_add(BESIDE_BODY)),
                ..built_in
            };
            let store = Arc::new(EmbeddedStore::open(dir, env, &options).map_err(OpenError::Embedded)?);
            let own = store.secret().cloned();
            Ok(Opened {
                store: Arc::clone(&store) as Arc<dyn StoreAdmin>,
                secret: secret.or(own).ok_or(OpenError::NoSecret)?,
                findings: Vec::new(),
                closing: Closing::Embedded(store),
            })
        }
    }
}

fn read_secret(file: &Path) -> Result<Secret, OpenError> {
    let material = std::fs::read(file).map_err(|error| OpenError::SecretFile(file.to_owned(), error.to_string()))?;
    Secret::from_material(&material).map_err(|error| OpenError::SecretFile(file.to_owned(), error.to_string()))
}

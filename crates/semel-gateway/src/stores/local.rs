//! Stores of this process alone.

use std::path::Path;
use std::sync::Arc;

use semel_core::env::Env;
use semel_core::identity::Secret;
use semel_core::store::{Capacity, MemoryStore, StoreAdmin};
use semel_embedded::{EmbeddedStore, Options, Power};

use super::{OpenError, Opened};
use crate::config::{Durability, Store};

pub(super) fn memory(store: &Store, secret: Option<Secret>, env: &Env) -> Opened {
    let records = usize::try_from(*store.max_records).unwrap_or(usize::MAX);
    let capacity = Capacity { records, bytes: store.max_bytes.in_memory() };
    Opened {
        store: Arc::new(MemoryStore::new(env, capacity)),
        secret: secret.unwrap_or_else(|| Secret::random(&*env.rng)),
        findings: Vec::new(),
        close: Arc::new(|| {}),
    }
}

pub(super) fn embedded(
    dir: &Path,
    store: &Store,
    secret: Option<Secret>,
    largest_rest: u64,
    env: &Env,
) -> Result<Opened, OpenError> {
    let built_in = options(store);
    let options = Options { secret: secret.clone(), max_rest: built_in.max_rest.max(largest_rest), ..built_in };
    let store = Arc::new(EmbeddedStore::open(dir, env, &options).map_err(OpenError::Embedded)?);
    let own = store.secret().cloned();
    Ok(Opened {
        store: Arc::clone(&store) as Arc<dyn StoreAdmin>,
        secret: secret.or(own).ok_or(OpenError::NoSecret)?,
        findings: semel_embedded::inspect(dir, &options),
        close: Arc::new(move || store.close()),
    })
}

/// What is configured about it, but for what only its opening needs.
pub(super) fn options(store: &Store) -> Options {
    Options {
        durability: match *store.durability {
            Durability::Power => Power::Power,
            Durability::Process => Power::Process,
        },
        cache: store.cache.in_memory(),
        ..Options::default()
    }
}

//! From `[store]` to a store, its secret, and an engine on it.

use std::path::Path;
use std::sync::Arc;

use semel_admin::{Measured, Metrics};
use semel_core::engine::{Engine, Limits, Times};
use semel_core::env::Env;
use semel_core::identity::Secret;
use semel_core::store::{Capacity, MemoryStore, Store, StoreAdmin};
use semel_embedded::{EmbeddedStore, Options, Power};

use super::StartError;
use super::events::EventLog;
use super::transport::{bytes, size};
use crate::config::{Config, Durability, StoreUrl};

/// A store and the secret of its identities.
pub(super) struct Opened {
    pub(super) store: Arc<dyn StoreAdmin>,
    pub(super) secret: Secret,
    /// The embedded store again: it is closed when the gateway stops, so that the directory is free for the next one.
    pub(super) embedded: Option<Arc<EmbeddedStore>>,
}

/// Room beside an answer's body in a record: its head, the key as people see it, trailers.
const BESIDE_BODY: u64 = 256 << 10;

/// Opens the store of the file. Blocks: the embedded one reads its journal.
pub(super) fn open(config: &Config, env: &Env) -> Result<Opened, StartError> {
    let secret = config.secret_file.as_ref().map(|file| read_secret(&file.value)).transpose()?;
    match &*config.store.url {
        StoreUrl::Memory => {
            let capacity =
                Capacity { records: size(*config.store.max_records), bytes: bytes(config.store.max_bytes.0) };
            let secret = secret.unwrap_or_else(|| Secret::random(&*env.rng));
            Ok(Opened { store: Arc::new(MemoryStore::new(env, capacity)), secret, embedded: None })
        }
        StoreUrl::Embedded(dir) => {
            let largest = config.rules.iter().map(|rule| rule.policy.response_body.0).max().unwrap_or_default();
            let options = Options {
                durability: match *config.store.durability {
                    Durability::Power => Power::Power,
                    Durability::Process => Power::Process,
                },
                secret: secret.clone(),
                cache: bytes(config.store.cache.0),
                max_rest: Options::default().max_rest.max(largest.saturating_add(BESIDE_BODY)),
                ..Options::default()
            };
            let store = Arc::new(EmbeddedStore::open(dir, env, &options).map_err(StartError::Store)?);
            let own = store.secret().cloned();
            let secret = secret.or(own).ok_or(StartError::NoSecret)?;
            Ok(Opened { store: Arc::clone(&store) as Arc<dyn StoreAdmin>, secret, embedded: Some(store) })
        }
    }
}

fn read_secret(file: &Path) -> Result<Secret, StartError> {
    let material = std::fs::read(file).map_err(|error| StartError::SecretFile(file.to_owned(), error.to_string()))?;
    Secret::from_material(&material).map_err(|error| StartError::SecretFile(file.to_owned(), error.to_string()))
}

/// The engine on the opened store. Must be called inside a runtime: expired records are removed by a task of it.
pub(super) fn engine(config: &Config, opened: Opened, env: Env, metrics: &Metrics) -> Engine {
    let Opened { store, secret, .. } = opened;
    let admin = Arc::clone(&store);
    let measured = Measured::new(store as Arc<dyn Store>, metrics.clone(), Arc::clone(&env.clock));
    let (limits, log) = (&config.limits, EventLog::new(Arc::clone(&env.clock)));
    let engine = Engine::builder(Arc::new(measured), secret)
        .env(env)
        .observe(Arc::new(metrics.clone()))
        .observe(Arc::new(log))
        .limits(Limits {
            waiters_per_key: size(*limits.waiters.key),
            waiters_per_scope: size(*limits.waiters.scope),
            waiters: size(*limits.waiters.process),
            running_per_scope: size(*limits.max_running.scope),
            running: size(*limits.max_running.process),
        })
        .times(Times {
            store_timeout: *config.store.timeout,
            commit_wait: *config.store.commit_wait,
            settle_for: *config.store.settle_for,
            ..Times::default()
        })
        .build();
    engine.sweep(admin, SWEEP);
    let of = engine.clone();
    metrics.watch(move || of.load());
    let of = engine.clone();
    metrics.watch_store(move || of.store_state());
    engine
}

/// How often expired records are removed.
const SWEEP: std::time::Duration = std::time::Duration::from_secs(30);

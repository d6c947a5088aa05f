//! The engine on a store, told of, measured and swept.

use std::sync::Arc;

use semel_admin::{Measured, Metrics};
use semel_core::engine::{Engine, Limits, TierConfig, Times};
use semel_core::env::Env;
use semel_core::store::Store;

use super::events::EventLog;
use super::transport::size;
use crate::config::{Config, StoreUrl};
use crate::stores::Opened;

/// The engine on the opened store. Must be called inside a runtime: expired records are removed by a task of it.
pub(super) fn engine(config: &Config, opened: &Opened, env: Env, metrics: &Metrics) -> Engine {
    let admin = Arc::clone(&opened.store);
    let store = Arc::clone(&opened.store) as Arc<dyn Store>;
    // A call of the memory store is a lock and no more: looking at the clock twice would take longer than the call.
    let store = match *config.store.url {
        StoreUrl::Memory => store,
        _ => Arc::new(Measured::new(store, metrics.clone(), Arc::clone(&env.clock))),
    };
    let (limits, log) = (&config.limits, EventLog::new(Arc::clone(&env.clock)));
    let engine = Engine::builder(store, opened.secret.clone())
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
        .tier(TierConfig { ttl: *config.store.local_ttl, bytes: config.store.local.value.0 })
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

//! Removing what has ended, and telling of unknowns that nobody resolved.

use std::{sync::Arc, time::Duration};

use super::{Engine, Inner};
use crate::{
    identity::Identity,
    observe::{Event, StoreCall, What},
    store::StoreAdmin,
};

/// How much one call removes: short enough to be in nobody's way.
const BATCH: usize = 1_000;

/// For how many times as long as a call took that found little nothing is asked: a store that looks through all it has, to find
/// the few that ended, is kept busy with that for a fiftieth of the time, or by one call in each pause.
const REST: u32 = 49;

/// How long one call may take. Nobody waits for it, and an answer given up is the end of unknowns that nobody is told of.
const PATIENCE: Duration = Duration::from_secs(30);

impl Engine {
    /// Starts a task that removes expired records from `store` at once and then every `pause`, in batches and until none is
    /// left, and emits [`What::UnknownExpired`] for outcomes that nobody told. Where a batch finds little in a large store
    /// it rests before the next, for at most `pause`. It ends with the engine.
    pub fn sweep(&self, store: Arc<dyn StoreAdmin>, pause: Duration) {
        let (weak, env) = (self.0.downgrade(), self.0.env.clone());
        let nobody = Identity::nobody();
        let task = async move {
            loop {
                loop {
                    let Some(inner) = Inner::upgrade(&weak) else { return };
                    let began = env.clock.now();
                    let purging = inner.within_time(PATIENCE, StoreCall::Purge, &nobody, store.purge(BATCH));
                    let Ok(purged) = purging.await else { break };
                    for id in &purged.unresolved {
                        inner.emit(&Event::new(id, "", What::UnknownExpired));
                    }
                    if !purged.more {
                        break;
                    }
                    drop(inner);
                    let ended = env.clock.now();
                    let rest = (ended.since(began) * REST).min(pause);
                    if purged.removed < BATCH && !rest.is_zero() {
                        env.clock.sleep_until(ended + rest).await;
                    } else {
                        tokio::task::yield_now().await;
                    }
                }
                env.clock.sleep_until(env.clock.now() + pause).await;
            }
        };
        self.0.env.tasks.spawn("semel sweeper", Box::pin(task));
    }
}

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

/// How long one call may take. Nobody waits for it, and an answer given up is the end of unknowns that nobody is told of.
const PATIENCE: Duration = Duration::from_secs(30);

impl Engine {
    /// Starts a task that removes expired records from `store` at once and then every `pause`, in batches, and emits
    /// [`What::UnknownExpired`] for outcomes that nobody told. It ends with the engine.
    pub fn sweep(&self, store: Arc<dyn StoreAdmin>, pause: Duration) {
        let (weak, env) = (self.0.downgrade(), self.0.env.clone());
        let nobody = Identity::nobody();
        let task = async move {
            loop {
                loop {
                    let Some(inner) = Inner::upgrade(&weak) else { return };
                    let purging = inner.within_time(PATIENCE, StoreCall::Purge, &nobody, store.purge(BATCH));
                    let Ok(purged) = purging.await else { break };
                    for id in &purged.unresolved {
                        inner.emit(&Event::new(id, "", What::UnknownExpired));
                    }
                    if purged.removed < BATCH {
                        break;
                    }
                    drop(inner);
                    tokio::task::yield_now().await;
                }
                env.clock.sleep_until(env.clock.now() + pause).await;
            }
        };
        self.0.env.tasks.spawn("semel sweeper", Box::pin(task));
    }
}

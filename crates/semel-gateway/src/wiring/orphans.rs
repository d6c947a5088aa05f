//! Records whose outcome nobody can tell, counted once at the start: a process that was killed said nothing itself.

use std::sync::Arc;

use semel_core::env::Env;
use semel_core::record::StateCode;
use semel_core::store::{Filter, StoreAdmin, StoreError};

/// Records asked for at a time.
const PAGE: usize = 1_000;

/// More are not counted.
const MOST: usize = 10_000;

/// So many are named one by one.
const NAMED: usize = 20;

/// Says how many unknown outcomes the store holds. Walks it once, in a task of its own; call it where the store outlives
/// processes.
pub(super) fn tell(store: Arc<dyn StoreAdmin>, env: &Env) {
    let task = async move {
        if let Err(error) = walk(&*store).await {
            tracing::warn!("the store's unknown outcomes could not be counted: {error}");
        }
    };
    env.tasks.spawn("semel unknowns", Box::pin(task));
}

async fn walk(store: &dyn StoreAdmin) -> Result<(), StoreError> {
    let filter = Filter { state: Some(StateCode::Unknown), ..Filter::default() };
    let (mut count, mut after) = (0, None);
    loop {
        let page = store.list(&filter, after.as_ref(), PAGE).await?;
        for entry in page.entries.iter().take(NAMED.saturating_sub(count)) {
            let identity = tracing::field::display(entry.identity.prefix());
            tracing::warn!(identity, attempt = entry.record.attempt, "outcome unknown since an earlier time");
        }
        count += page.entries.len();
        match page.next {
            Some(next) if count < MOST => after = Some(next),
            _ => break,
        }
    }
    if count > 0 {
        let count = count.min(MOST);
        tracing::warn!(count, "the store holds outcomes that nobody can tell; copies of these requests get 409");
    }
    Ok(())
}

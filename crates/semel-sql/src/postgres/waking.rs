//! Waiting for a change, and telling those who wait.

use std::sync::Arc;

use semel_core::{
    Fence,
    identity::Identity,
    record::{Flags, StateCode},
    store::StoreFuture,
};

use super::{
    PostgresStore,
    listen::{self, Listener},
    rows::Answer,
    sql,
    statement::Arg,
};

impl PostgresStore {
    /// Resolves when the record may have changed since it showed `fence`.
    pub(super) fn woken<'a>(&'a self, id: &'a Identity, seen: Option<Fence>) -> StoreFuture<'a, ()> {
        match (&self.listener, seen) {
            (Some(listener), Some(fence)) => StoreFuture::new(self.watch(listener, id, fence)),
            // Nothing to hear: the engine looks again by itself.
            _ => StoreFuture::never(),
        }
    }

    async fn watch(&self, listener: &Arc<Listener>, id: &Identity, fence: Fence) {
        let (told, marked) = listener.watch(id, fence);
        let mut told = std::pin::pin!(told.notified());
        // From here on nothing is missed, whoever changes the record while it is being marked.
        told.as_mut().enable();
        if !marked {
            let args = [Arg::Bytes(id.digest()), Arg::Int(i64::try_from(fence.get()).unwrap_or(i64::MAX))];
            let answer = self.ask(&sql::WATCH, &args).await;
            match answer {
                Ok(answer) if still_runs(&answer, fence) => listener.marked(id, fence),
                Ok(_) => return,
                // Without the mark nobody says anything.
                Err(_) => return std::future::pending().await,
            }
        }
        told.await;
    }

    /// Tells those who wait, in a statement of its own, off the caller's path: a notification in the statement that settles
    /// would make all settlements queue up behind one lock of the server.
    pub(super) fn changed(&self, id: &Identity, answer: &Answer) {
        let watched = answer.found.as_ref().is_some_and(|r| r.flags & i16::from(Flags::WATCHED.byte()) != 0);
        if !watched {
            return;
        }
        let (client, word) = (Arc::clone(&self.client), listen::word(id));
        let tell = async move {
            if let Err(error) = client.run(&sql::NOTIFY, &[Arg::Text(&word)]).await {
                tracing::debug!(?error, "waiting copies were not told; they look by themselves");
            }
        };
        self.env.tasks.spawn("semel notify", Box::pin(tell));
    }
}

/// Whether the attempt runs on and its record says that somebody watches.
fn still_runs(answer: &Answer, fence: Fence) -> bool {
    answer.got.is_some()
        || answer.record().is_some_and(|r| {
            r.is_here(answer.now)
                && r.state == StateCode::InFlight
                && r.fence == Some(fence)
                && r.flags.has(Flags::WATCHED)
        })
}

//! One task per engine looks after a shared store: whether it answers, what time it has, and whether it still has its
//! records.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Inner, breaker::BETWEEN_PROBES};
use crate::{
    env::Tick,
    identity::{Birth, Identity},
    observe::{Event, StoreCall, What},
    store::Health,
};

#[derive(Default)]
pub(super) struct StoreHealth {
    is_running: AtomicBool,
    wake: Notify,
    /// Since when the store had its records when it was looked at last.
    birth: Mutex<Option<Birth>>,
    lost: AtomicU64,
    lost_at: AtomicU64,
    /// When a claim was refused last because there was no room, in nanoseconds since boot; 0 since the last grant.
    full_at: AtomicU64,
}

/// How long a refusal says that there is no room. Who is sent no more requests for that finds out by the next one.
const FULL_FOR: Duration = Duration::from_secs(15);

impl StoreHealth {
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// How often the store was found without its records, and when last.
    pub(super) fn losses(&self) -> (u64, Tick) {
        (self.lost.load(Ordering::Relaxed), Tick::from_nanos(self.lost_at.load(Ordering::Relaxed)))
    }

    /// A claim was refused because there was no room.
    #[cold]
    pub(super) fn saw_full(&self, now: Tick) {
        self.full_at.store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    /// A claim was granted. Written only where that is news: all threads read it.
    #[inline]
    pub(super) fn saw_room(&self) {
        if self.full_at.load(Ordering::Relaxed) != 0 {
            self.full_at.store(0, Ordering::Relaxed);
        }
    }

    /// Whether claims are refused because there is no room.
    pub(super) fn is_full(&self, now: Tick) -> bool {
        match self.full_at.load(Ordering::Relaxed) {
            0 => false,
            at => now.since(Tick::from_nanos(at)) < FULL_FOR,
        }
    }

    /// Whether the store has lost its records since the last look. A mark that was put back after that is another's
    /// beginning, not a second loss.
    fn is_lost(&self, now: Option<Birth>) -> bool {
        let before = std::mem::replace(&mut *self.birth.lock(), now);
        before.is_some() && before != now
    }
}

impl Inner {
    /// Starts the task where none runs: it dies with the runtime it began in.
    pub(super) fn look_after_store(self: &Arc<Self>) {
        if self.store_health.is_running.load(Ordering::Relaxed)
            || self.store_health.is_running.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let (weak, env) = (self.downgrade(), self.env.clone());
        let alive = Alive(Arc::clone(&self.store_health));
        let (health, period) = (Arc::clone(&self.store_health), self.times.watch);
        let task = async move {
            let _alive = alive;
            let mut pause = period;
            loop {
                tokio::select! {
                    biased;
                    () = health.wake.notified() => {}
                    () = env.clock.sleep_until(env.clock.now() + pause) => {}
                }
                let Some(inner) = Inner::upgrade(&weak) else { return };
                pause = inner.look(period).await;
            }
        };
        self.env.tasks.spawn("semel store health", Box::pin(task));
    }

    /// One look; returns when the next one is due.
    async fn look(&self, period: Duration) -> Duration {
        if let Ok(pass) = self.admit() {
            let (sent, nobody) = (self.now(), Identity::nobody());
            let seen = self.within(StoreCall::Health, &nobody, self.store.health()).await;
            self.ended(pass, &seen);
            if let Ok(health) = seen {
                self.store_clock.saw(sent, health.now);
                self.saw_health(&health);
            }
        }
        if self.breaker.is_open() { BETWEEN_PROBES.min(period) } else { period }
    }

    /// What the store says of itself, from whatever call.
    pub(super) fn saw_health(&self, health: &Health) {
        if !self.store_health.is_lost(health.birth) {
            return;
        }
        self.store_health.lost.fetch_add(1, Ordering::Relaxed);
        self.store_health.lost_at.store(self.now().as_nanos(), Ordering::Relaxed);
        self.emit(&Event::new(&Identity::nobody(), "", What::StoreLostRecords));
    }
}

struct Alive(Arc<StoreHealth>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
    }
}

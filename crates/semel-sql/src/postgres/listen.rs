//! Waking those who wait: LISTEN on a connection of its own, NOTIFY for records that somebody watches.
//!
//! All of it is a hint. A notification that is lost, or a server that cannot be listened to, costs the waiter the time until
//! its next look.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use semel_core::{
    Fence,
    env::{Env, Tick},
    identity::Identity,
};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;

/// The channel; what is said on it is the beginning of an identity.
const CHANNEL: &str = "semel";
/// How long a watch is kept that nobody came back to.
const KEPT: Duration = Duration::from_secs(60);
/// How long a server that refuses is left alone.
const PAUSE: Duration = Duration::from_secs(1);

type Key = [u8; 8];

/// The watches of this process.
pub(super) struct Listener {
    options: PgConnectOptions,
    env: Env,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: bool,
    watches: HashMap<Key, Watch>,
}

struct Watch {
    told: Arc<Notify>,
    /// The attempt whose record was marked as watched.
    marked: Option<Fence>,
    looked: Tick,
}

impl Listener {
    pub(super) fn new(options: PgConnectOptions, env: &Env) -> Arc<Self> {
        Arc::new(Self { options, env: env.clone(), state: Mutex::default() })
    }

    /// A place to wait at, and whether the record was marked for this attempt already. The first one starts the task that
    /// listens.
    pub(super) fn watch(self: &Arc<Self>, id: &Identity, fence: Fence) -> (Arc<Notify>, bool) {
        let now = self.env.clock.now();
        let mut state = self.state.lock();
        let new = || Watch { told: Arc::default(), marked: None, looked: now };
        let watch = state.watches.entry(key(id)).or_insert_with(new);
        watch.looked = now;
        let found = (Arc::clone(&watch.told), watch.marked == Some(fence));
        if !state.running {
            state.running = true;
            let running = Running(Arc::downgrade(self));
            drop(state);
            self.env.tasks.spawn("semel listen", Box::pin(listen(running, self.options.clone(), self.env.clone())));
        }
        found
    }

    /// The record says by now that somebody watches.
    pub(super) fn marked(&self, id: &Identity, fence: Fence) {
        if let Some(watch) = self.state.lock().watches.get_mut(&key(id)) {
            watch.marked = Some(fence);
        }
    }

    fn tell(&self, said: &str) {
        let Some(key) = heard(said) else { return };
        if let Some(watch) = self.state.lock().watches.get_mut(&key) {
            watch.tell();
        }
    }

    /// Nobody listened for a while: anything may have changed.
    fn tell_all(&self) {
        self.state.lock().watches.values_mut().for_each(Watch::tell);
    }

    fn clear(&self) {
        let now = self.env.clock.now();
        self.state.lock().watches.retain(|_, watch| now.since(watch.looked) < KEPT);
    }
}

impl Watch {
    fn tell(&mut self) {
        // Whatever comes next has to be marked anew.
        self.marked = None;
        self.told.notify_waiters();
        // Whoever is between two waits is told at the next one.
        self.told.notify_one();
    }
}

/// The task that listens ends with its runtime; then the next watch starts another.
struct Running(Weak<Listener>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(listener) = self.0.upgrade() {
            listener.state.lock().running = false;
        }
    }
}

async fn listen(running: Running, options: PgConnectOptions, env: Env) {
    while running.0.strong_count() > 0 {
        // A pool of one: the driver's listener takes no other way to come back after its connection broke.
        let pool = PgPoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
        let pool = pool.connect_lazy_with(options.clone());
        if let Err(error) = hear(&running, PgListener::connect_with(&pool).await, &env).await {
            tracing::debug!(%error, "nobody listens to PostgreSQL for now: waiting copies poll");
            env.clock.sleep_until(env.clock.now() + PAUSE).await;
        }
    }
}

async fn hear(running: &Running, connected: sqlx::Result<PgListener>, env: &Env) -> sqlx::Result<()> {
    let mut listener = connected?;
    listener.ignore_pool_close_event(true);
    listener.listen(CHANNEL).await?;
    let tell = |how: &dyn Fn(&Listener)| running.0.upgrade().map(|listener| how(&listener)).is_some();
    tell(&Listener::tell_all);
    let mut look = env.clock.now() + KEPT;
    loop {
        let goes_on = tokio::select! {
            heard = listener.try_recv() => match heard? {
                Some(said) => tell(&|listener| listener.tell(said.payload())),
                None => tell(&Listener::tell_all),
            },
            () = env.clock.sleep_until(look) => {
                look = env.clock.now() + KEPT;
                tell(&Listener::clear)
            }
        };
        if !goes_on {
            return Ok(());
        }
    }
}

fn key(id: &Identity) -> Key {
    let mut key = Key::default();
    key.copy_from_slice(&id.digest()[..8]);
    key
}

/// What is said about a record.
pub(super) fn word(id: &Identity) -> String {
    id.prefix().to_string()
}

fn heard(said: &str) -> Option<Key> {
    u64::from_str_radix(said, 16).ok().filter(|_| said.len() == 16).map(u64::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use semel_core::identity::{Kind, Namespace};

    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let mut digest = [0xff; 32];
        digest[..8].copy_from_slice(&[0, 1, 2, 3, 0xfc, 0xfd, 0xfe, 0xff]);
        let id = Identity::stored(digest, Namespace::http("orders").unwrap(), Kind::Key);
        assert_eq!(heard(&word(&id)), Some(key(&id)));
        assert!(heard("").is_none() && heard("00").is_none() && heard("zz01020304050607").is_none());
    }
}

//! Hearing of changes: LISTEN on a connection of its own. NOTIFY comes for records that somebody watches, and for what
//! people settle, delete and withdraw.
//!
//! All of it is a hint. A notification that is lost, or a server that cannot be listened to, costs the waiter the time until
//! its next look; and what an engine remembers is old after some seconds anyway.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use semel_core::{
    Fence,
    env::{Env, Tick},
    identity::Identity,
    store::Changes,
};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;

/// The channel for those who wait; what is said on it is the beginning of an identity.
const CHANNEL: &str = "semel";
/// The channel of what people changed; what is said on it is a whole identity.
const CHANGED: &str = "semel_changed";
/// How long a watch is kept that nobody came back to.
const KEPT: Duration = Duration::from_secs(60);
/// How long a server that refuses is left alone.
const PAUSE: Duration = Duration::from_secs(1);
/// A quiet connection is not looked at more often than this, whatever the options say.
const QUIET: Duration = Duration::from_secs(1);

type Key = [u8; 8];

/// Where to listen.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) options: PgConnectOptions,
    /// After how much quiet the connection is looked at: a network that swallows everything looks like a quiet server.
    pub(super) quiet: Duration,
    /// How long its answer may take.
    pub(super) patience: Duration,
}

/// The watches of this process.
pub(super) struct Listener {
    place: Place,
    env: Env,
    state: Mutex<State>,
    /// Somebody is to be told of changes, and nobody listens.
    is_deaf: AtomicBool,
}

#[derive(Default)]
struct State {
    running: bool,
    watches: HashMap<Key, Watch>,
    engines: Vec<Weak<dyn Changes>>,
}

struct Watch {
    told: Arc<Notify>,
    /// The attempt whose record was marked as watched.
    marked: Option<Fence>,
    looked: Tick,
}

impl Listener {
    pub(super) fn new(place: Place, env: &Env) -> Arc<Self> {
        Arc::new(Self { place, env: env.clone(), state: Mutex::default(), is_deaf: AtomicBool::new(false) })
    }

    /// From now on `engine` is told of what people change.
    pub(super) fn tell_changes(self: &Arc<Self>, engine: Weak<dyn Changes>) {
        let mut state = self.state.lock();
        state.engines.push(engine);
        let running = self.run(&mut state);
        drop(state);
        self.start(running);
    }

    /// Listens again where the runtime in which it did has ended, or where there was none at first.
    pub(super) fn keep_listening(self: &Arc<Self>) {
        if self.is_deaf.load(Ordering::Relaxed) {
            let running = self.run(&mut self.state.lock());
            self.start(running);
        }
    }

    /// The right to be the task that listens, if there is none.
    fn run(self: &Arc<Self>, state: &mut State) -> Option<Running> {
        if std::mem::replace(&mut state.running, true) {
            return None;
        }
        self.is_deaf.store(false, Ordering::Relaxed);
        Some(Running(Arc::downgrade(self)))
    }

    /// Not under the lock: where there is no runtime the task ends here.
    fn start(&self, running: Option<Running>) {
        if let Some(running) = running {
            let task = listen(running, self.place.clone(), self.env.clone());
            self.env.tasks.spawn("semel listen", Box::pin(task));
        }
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
        let running = self.run(&mut state);
        drop(state);
        self.start(running);
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

    /// A person changed a record.
    fn changed(&self, said: &str) {
        if let Some(digest) = digest(said) {
            self.each_engine(|engine| engine.changed(&digest));
        }
    }

    /// Nobody listened for a while: anything may have changed.
    fn tell_all(&self) {
        self.state.lock().watches.values_mut().for_each(Watch::tell);
        self.each_engine(Changes::missed);
    }

    fn each_engine(&self, tell: impl Fn(&dyn Changes)) {
        let mut engines = Vec::new();
        self.state.lock().engines.retain(|engine| {
            let here = engine.upgrade();
            let is_here = here.is_some();
            engines.extend(here);
            is_here
        });
        engines.iter().for_each(|engine| tell(&**engine));
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

/// The task that listens ends with its runtime; then the next watch or claim starts another.
struct Running(Weak<Listener>);

impl Running {
    /// `false` when the store is gone.
    fn tell(&self, how: impl FnOnce(&Listener)) -> bool {
        self.0.upgrade().map(|listener| how(&listener)).is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(listener) = self.0.upgrade() {
            let mut state = listener.state.lock();
            state.running = false;
            listener.is_deaf.store(!state.engines.is_empty(), Ordering::Relaxed);
        }
    }
}

async fn listen(running: Running, place: Place, env: Env) {
    while running.0.strong_count() > 0 {
        let began = env.clock.now();
        if let Err(error) = hear(&running, &place, &env).await {
            tracing::debug!(%error, "nobody listens to PostgreSQL for now: waiting copies poll");
            running.tell(Listener::tell_all);
            // At once after a connection that broke, and slowly where none can be made.
            env.clock.sleep_until(began + PAUSE).await;
        }
    }
}

/// Listens until the connection breaks, or until the store is gone.
async fn hear(running: &Running, place: &Place, env: &Env) -> sqlx::Result<()> {
    // A pool of one: the driver's listener takes no connection otherwise.
    let pool = PgPoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
    let mut listener = PgListener::connect_with(&pool.connect_lazy_with(place.options.clone())).await?;
    listener.ignore_pool_close_event(true);
    // Whoever is told that the connection broke has to be told as well that there is another one.
    listener.eager_reconnect(false);
    listener.listen_all([CHANNEL, CHANGED]).await?;
    running.tell(Listener::tell_all);
    let quiet = place.quiet.max(QUIET);
    let mut look = env.clock.now() + quiet;
    loop {
        let goes_on = tokio::select! {
            heard = listener.try_recv() => match heard? {
                Some(said) if said.channel() == CHANGED => running.tell(|listener| listener.changed(said.payload())),
                Some(said) => running.tell(|listener| listener.tell(said.payload())),
                None => return Err(sqlx::Error::Io(std::io::ErrorKind::UnexpectedEof.into())),
            },
            () = env.clock.sleep_until(look) => {
                still_there(&mut listener, place.patience, env).await?;
                look = env.clock.now() + quiet;
                running.tell(Listener::clear)
            }
        };
        if !goes_on {
            return Ok(());
        }
    }
}

/// Whether the connection still leads to the server. What is said meanwhile is kept.
async fn still_there(listener: &mut PgListener, patience: Duration, env: &Env) -> sqlx::Result<()> {
    let late = env.clock.now() + patience;
    tokio::select! {
        answer = sqlx::raw_sql("SELECT 1").fetch_all(&mut *listener) => answer.map(drop),
        () = env.clock.sleep_until(late) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
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
    bytes(said)
}

fn digest(said: &str) -> Option<[u8; 32]> {
    bytes(said)
}

/// So many bytes as hexadecimal digits, and nothing besides: the library reads those behind an `0x`, too.
fn bytes<const N: usize>(said: &str) -> Option<[u8; N]> {
    (said.len() == 2 * N).then(|| const_hex::decode_to_array(said).ok())?
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
        assert!(heard("+102030405060708").is_none() && heard("0x0102030405060708").is_none());
    }

    #[test]
    fn a_change_names_a_whole_identity() {
        assert_eq!(digest(&"0f".repeat(32)), Some([0x0f; 32]));
        for said in [
            "".into(),
            "0f".repeat(31),
            "0f".repeat(33),
            "zz".repeat(32),
            "é".repeat(32),
            "+f".repeat(32),
            format!("0x{}", "0f".repeat(32)),
        ] {
            assert!(digest(&said).is_none(), "{said}");
        }
    }
}

//! Hearing of changes: settlements of watched records, and what people settle, delete and withdraw, are published on one
//! channel, and one connection listens.
//!
//! Hints, no more: whoever waits polls behind them, and what an engine remembers is old after some seconds anyway. Where
//! the connection broke, everybody is woken and engines forget: at once, and again when there is another.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use parking_lot::Mutex;
use semel_core::{identity::Identity, store::Changes};
use tokio::sync::Notify;

use crate::{link::Dialer, topology::Topology};

/// How long to wait until the next try to listen.
const REST: Duration = Duration::from_millis(200);

/// Who waits for which record.
#[derive(Default)]
pub(crate) struct Wakes {
    waiting: Mutex<HashMap<[u8; 32], Bench>>,
    is_listening: AtomicBool,
    /// Who is told of what people change.
    engines: Mutex<Vec<Weak<dyn Changes>>>,
    /// Somebody is to be told, and nobody listens.
    is_deaf: AtomicBool,
}

/// How many wait for one record, and their bell.
type Bench = (usize, Arc<Notify>);

/// A place among those who wait.
pub(crate) struct Place<'a> {
    wakes: &'a Wakes,
    digest: [u8; 32],
    pub(crate) notify: Arc<Notify>,
}

impl Wakes {
    pub(crate) fn join(&self, id: &Identity) -> Place<'_> {
        let digest = *id.digest();
        let mut waiting = self.waiting.lock();
        let (count, notify) = waiting.entry(digest).or_default();
        *count += 1;
        Place { wakes: self, digest, notify: Arc::clone(notify) }
    }

    fn wake(&self, digest: &[u8; 32]) {
        if let Some((_, notify)) = self.waiting.lock().get(digest) {
            notify.notify_waiters();
        }
    }

    /// Nobody listened for a while: anything may have changed.
    fn wake_all(&self) {
        self.waiting.lock().values().for_each(|(_, notify)| notify.notify_waiters());
        self.each_engine(Changes::missed);
    }

    /// From now on `engine` is told of what people change.
    pub(crate) fn tell(&self, engine: Weak<dyn Changes>) {
        self.engines.lock().push(engine);
        self.is_deaf.store(!self.is_listening.load(Ordering::Acquire), Ordering::Release);
    }

    /// Whether to [`listen`](Self::listen) again: the runtime in which somebody did is gone, or there was none at first.
    pub(crate) fn is_deaf(&self) -> bool {
        self.is_deaf.load(Ordering::Relaxed)
    }

    /// A person changed a record.
    pub(crate) fn changed(&self, digest: &[u8; 32]) {
        self.each_engine(|engine| engine.changed(digest));
    }

    fn each_engine(&self, tell: impl Fn(&dyn Changes)) {
        let mut engines = Vec::new();
        self.engines.lock().retain(|engine| {
            let here = engine.upgrade();
            let is_here = here.is_some();
            engines.extend(here);
            is_here
        });
        engines.iter().for_each(|engine| tell(&**engine));
    }

    /// Starts to listen, where nobody does yet.
    pub(crate) fn listen(self: &Arc<Self>, dialer: &Arc<Dialer>, topology: &Arc<Topology>, channel: &str) {
        if self.is_listening.swap(true, Ordering::AcqRel) {
            return;
        }
        self.is_deaf.store(false, Ordering::Release);
        let ears = Ears {
            wakes: Arc::downgrade(self),
            dialer: Arc::clone(dialer),
            topology: Arc::downgrade(topology),
            channel: channel.to_owned(),
        };
        let deaf = Deaf(Arc::downgrade(self));
        let task = async move {
            let _deaf = deaf;
            ears.listen().await;
        };
        dialer.env().tasks.spawn("semel redis wake-up", Box::pin(task));
    }
}

/// Says that nobody listens any more: the task ends with the runtime it began in.
struct Deaf(Weak<Wakes>);

impl Drop for Deaf {
    fn drop(&mut self) {
        if let Some(wakes) = self.0.upgrade() {
            wakes.is_listening.store(false, Ordering::Release);
            wakes.is_deaf.store(!wakes.engines.lock().is_empty(), Ordering::Release);
        }
    }
}

struct Ears {
    wakes: Weak<Wakes>,
    dialer: Arc<Dialer>,
    topology: Weak<Topology>,
    channel: String,
}

impl Ears {
    /// Ends with the store.
    async fn listen(self) {
        loop {
            let heard = self.hear().await;
            let Some(wakes) = self.wakes.upgrade() else { return };
            wakes.wake_all();
            drop(wakes);
            if heard.is_none() {
                let clock = &self.dialer.env().clock;
                clock.sleep_until(clock.now() + REST).await;
            }
        }
    }

    /// Listens on one connection until it breaks; `None` where there was none.
    async fn hear(&self) -> Option<()> {
        let topology = self.topology.upgrade()?;
        let masters = topology.masters().await.ok()?;
        let link = Arc::clone(masters.first()?);
        drop((topology, masters));
        let host = self.dialer.host(link.target()).await.ok()?;
        if !link.is_at(&host) {
            // Nobody has called since another server became primary.
            link.hang_up();
            link.reach().await.ok().filter(|()| link.is_at(&host))?;
        }
        let client = self.dialer.client(&host, &self.dialer.login, 0).ok()?;
        let subscribing = async {
            let mut listener = client.get_async_pubsub().await?;
            listener.subscribe(&self.channel).await?;
            redis::RedisResult::Ok(listener)
        };
        let listener = tokio::time::timeout(self.dialer.connect_timeout, subscribing).await.ok()?.ok()?;
        // Whoever settled meanwhile told nobody.
        self.wakes.upgrade()?.wake_all();
        let (mut sink, mut messages) = listener.split();
        loop {
            let clock = &self.dialer.env().clock;
            tokio::select! {
                message = messages.next() => self.heard(message?.get_payload_bytes())?,
                // What is published is published by the primary.
                () = link.moved_from(&host) => return Some(()),
                () = clock.sleep_until(clock.now() + PULSE) => {
                    self.wakes.upgrade()?;
                    if !self.topology.upgrade()?.has(&host, &link) {
                        return Some(());
                    }
                    // A connection that is cut without a word is found out by asking.
                    let pulse = sink.ping::<redis::Value>();
                    tokio::time::timeout(self.dialer.response_timeout, pulse).await.ok()?.ok()?;
                }
            }
        }
    }

    /// What people changed begins with a mark of its own: what an engine has just recorded it may go on remembering.
    fn heard(&self, said: &[u8]) -> Option<()> {
        let wakes = self.wakes.upgrade()?;
        let (by_people, hex) = said.strip_prefix(b"!").map_or((false, said), |hex| (true, hex));
        if let Some(digest) = digest_of(hex) {
            if by_people {
                wakes.changed(&digest);
            }
            wakes.wake(&digest);
        }
        Some(())
    }
}

/// How often a connection that says nothing is asked whether it is still there, and whether it still leads to one of the
/// servers that hold records.
const PULSE: Duration = Duration::from_secs(2);

fn digest_of(hex: &[u8]) -> Option<[u8; 32]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let mut digest = [0; 32];
    if hex.len() != 64 {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(digest)
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.wakes.waiting.lock();
        if let Some((count, _)) = waiting.get_mut(&self.digest) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.digest);
            }
        }
    }
}

impl fmt::Debug for Wakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wakes({} waiting)", self.waiting.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_a_record() {
        assert_eq!(digest_of("0f".repeat(32).as_bytes()), Some([15; 32]));
        assert_eq!(digest_of(b"0f"), None);
        assert_eq!(digest_of("zz".repeat(32).as_bytes()), None);
    }
}

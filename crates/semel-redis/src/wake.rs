//! Waking those who wait: settlements of watched records are published on one channel, and one connection listens.
//!
//! Hints, no more: whoever waits polls behind them. A connection that broke wakes everybody once it is back.

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
use semel_core::identity::Identity;
use tokio::sync::Notify;

use crate::{link::Dialer, topology::Topology};

/// How long to wait until the next try to listen.
const REST: Duration = Duration::from_millis(200);

/// Who waits for which record.
#[derive(Default)]
pub(crate) struct Wakes {
    waiting: Mutex<HashMap<[u8; 32], Bench>>,
    is_listening: AtomicBool,
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

    fn wake_all(&self) {
        self.waiting.lock().values().for_each(|(_, notify)| notify.notify_waiters());
    }

    /// Starts to listen, where nobody does yet.
    pub(crate) fn listen(self: &Arc<Self>, dialer: &Arc<Dialer>, topology: &Arc<Topology>, channel: &str) {
        if self.is_listening.swap(true, Ordering::AcqRel) {
            return;
        }
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
        let target = masters.first()?.target().clone();
        drop((topology, masters));
        let host = self.dialer.host(&target).await.ok()?;
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
                message = messages.next() => {
                    let digest = digest_of(message?.get_payload_bytes());
                    if let Some(digest) = digest {
                        self.wakes.upgrade()?.wake(&digest);
                    }
                }
                () = clock.sleep_until(clock.now() + PULSE) => {
                    self.wakes.upgrade()?;
                    // A connection that is cut without a word is found out by asking.
                    let pulse = sink.ping::<redis::Value>();
                    tokio::time::timeout(self.dialer.response_timeout, pulse).await.ok()?.ok()?;
                }
            }
        }
    }
}

/// How often a connection that says nothing is asked whether it is still there.
const PULSE: Duration = Duration::from_secs(5);

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

//! Connections to one upstream, kept between requests.
//!
//! One pool belongs to one runtime (a core of its own, or the shared one): a connection is used where its socket is
//! registered, and the lock below is held for a push or a pop. Idle connections form a stack: the last one used is the next
//! one taken, so that a quiet time lets the others age out together.
//!
//! A connection is no task of its own. Whoever uses it drives it (`pool::Link`), which saves two trips through the
//! scheduler per request and lets a small answer leave in one write. An idle connection is driven by nobody; its
//! bell (`signal::Bell`) remembers whether the socket stirred meanwhile.

mod connect;
mod link;
mod socket;

pub use connect::{Address, AddressError, ConnectError};
pub(crate) use link::{Link, Look, Outgoing, Sent};

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use http_body::Body;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How connections to an upstream are made and kept.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolConfig {
    /// Longest time for one connection to be made, name look-up included. Default 1 s.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept. Default 4 s: the commonest servers close theirs after 5 s (Node,
    /// Apache, uvicorn), and a connection closed by us first is never found dead by a request.
    pub idle_timeout: Duration,
    /// How many unused connections are kept per runtime. Default 256; more are closed after their request.
    pub max_idle: usize,
    /// A guarded request takes a kept connection only if it was used within this time. Default 1 s: a request lost on
    /// a dying connection is an unknown outcome, and a fresh connection cannot have died of old age.
    pub reuse_idle: Duration,
    /// Largest head of an answer, and largest piece of a body held at once, in bytes. Default 64 KiB, at least 8 KiB.
    pub max_buffer: usize,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(4),
            max_idle: 256,
            reuse_idle: Duration::from_secs(1),
            max_buffer: 64 * 1024,
        }
    }
}

/// A request's body that can be sent: any [`Body`] of [`Bytes`] that may move between threads.
pub trait Payload: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static {}

impl<B> Payload for B
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
}

/// The connections of one runtime to one upstream. Clones share them.
pub struct Pool<B: Payload> {
    inner: Arc<Inner<B>>,
}

impl<B: Payload> Clone for Pool<B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

struct Inner<B: Payload> {
    address: Address,
    config: PoolConfig,
    http: hyper::client::conn::http1::Builder,
    /// Oldest first.
    idle: Mutex<Vec<Kept<B>>>,
}

struct Kept<B: Payload> {
    link: Box<Link<B>>,
    since: Instant,
}

/// Whether a connection has carried a request before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Age {
    Fresh,
    Reused,
}

/// Which connections a request accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    /// Any that lives.
    Any,
    /// One used within `reuse_idle`, or a fresh one.
    Recent,
    /// A fresh one.
    Fresh,
}

impl<B> Pool<B>
where
    B: Payload,
{
    /// An empty pool for the upstream at `address`.
    pub fn new(address: Address, config: PoolConfig) -> Self {
        let mut http = hyper::client::conn::http1::Builder::new();
        http.max_buf_size(config.max_buffer.max(8 * 1024));
        Self { inner: Arc::new(Inner { address, config, http, idle: Mutex::new(Vec::new()) }) }
    }

    /// The upstream.
    pub fn address(&self) -> &Address {
        &self.inner.address
    }

    /// How many connections are unused right now.
    pub fn idle(&self) -> usize {
        self.inner.idle.lock().len()
    }

    /// Closes connections that were unused for too long, once a second, until the pool is gone. Spawn it on the
    /// pool's runtime. Without it they are closed when the next request looks.
    pub fn sweep(&self) -> impl Future<Output = ()> + Send + 'static {
        sweep(Arc::downgrade(&self.inner), self.inner.config.idle_timeout)
    }

    /// A connection ready to send, and `now` as it was when one was looked for.
    pub(crate) async fn take(&self, want: Want) -> Result<(Box<Link<B>>, Age, Instant), ConnectError> {
        let now = Instant::now();
        while let Some(link) = self.pop(now, want) {
            if link.quiet() {
                return Ok((link, Age::Reused, now));
            }
            if let Some(link) = Box::pin(link.still_alive()).await {
                return Ok((link, Age::Reused, now));
            }
        }
        let link = Box::pin(self.inner.connect()).await?;
        Ok((link, Age::Fresh, Instant::now()))
    }

    fn pop(&self, now: Instant, want: Want) -> Option<Box<Link<B>>> {
        if want == Want::Fresh {
            return None;
        }
        let mut idle = self.inner.idle.lock();
        let unused = now.saturating_duration_since(idle.last()?.since);
        if unused >= self.inner.config.idle_timeout {
            // The youngest is too old: so are all.
            let old = std::mem::take(&mut *idle);
            drop(idle);
            drop(old);
            return None;
        }
        if want == Want::Recent && unused >= self.inner.config.reuse_idle {
            return None;
        }
        Some(idle.pop()?.link)
    }

    /// Keeps a connection whose exchange is complete; closes it where it cannot carry another.
    pub(crate) fn give_back(&self, mut link: Box<Link<B>>) {
        if !link.rest() {
            return;
        }
        let since = Instant::now();
        let mut idle = self.inner.idle.lock();
        if idle.len() < self.inner.config.max_idle {
            idle.push(Kept { link, since });
        }
    }
}

async fn sweep<B: Payload>(pool: Weak<Inner<B>>, idle_timeout: Duration) {
    let mut tick = interval(Duration::from_secs(1).min(idle_timeout.max(Duration::from_millis(10))));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let Some(pool) = pool.upgrade() else { return };
        let now = Instant::now();
        let old: Vec<_> = {
            let mut idle = pool.idle.lock();
            let young = idle.partition_point(|kept| now.saturating_duration_since(kept.since) >= idle_timeout);
            idle.drain(..young).collect()
        };
        drop(old);
    }
}

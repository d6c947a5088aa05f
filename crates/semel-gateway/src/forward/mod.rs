//! Sending a request on to its upstream and bringing back the answer.
//!
//! [`Forward`] is a tower service whose error is `Infallible`: what goes wrong becomes an answer (`problem+json`) with
//! a [`Mark`](semel_http::Mark) in its extensions, so that whoever keeps outcomes knows whether the request can have
//! had an effect:
//!
//! | what happened | status | mark |
//! |---|---|---|
//! | no connection, or it ended before a byte was written | 502 `upstream-unreachable` | `NothingSent` |
//! | the connection or the answer broke after that | 502 `upstream-broken` | `Unknown` |
//! | no answer in time | 504 `upstream-timeout` | `Unknown` |
//! | the client's body broke off or stalled | 400 `request-incomplete`, 408 `request-timeout` | `Unknown` |
//! | an answer cut short | its status, then an error of the body | – |
//!
//! A request is never sent a second time once a byte of it was written. Where a kept connection ends before that, it
//! is sent once more, on a fresh connection.
//!
//! Informational answers (100, 102, 103) of the upstream are not passed on: hyper's server cannot send them. 100 is
//! answered by the gateway itself, as soon as the body is wanted.

mod body;
mod counters;
mod exchange;
pub(crate) mod hop;
pub(crate) mod problem;
pub(crate) mod target;
mod upgrade;

pub use body::{BodyError, ResponseBody};
pub use counters::{Count, Counters};

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Request, Response};
use semel_core::{engine::Run, observe::Seldom, pinned};
use tower_service::Service;

use crate::{
    pool::{Address, Payload, Pool, PoolConfig},
    serve::Core,
};

/// How requests go to one upstream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ForwardConfig {
    /// The upstream.
    pub address: Address,
    /// Its connections, and the time-out for making one.
    pub pool: PoolConfig,
    /// Longest silence between the last byte of a request that could be written and the head of its answer. Time in
    /// which the client owes the rest of its body does not count. Default 15 s.
    pub first_byte: Duration,
    /// Longest time from sending a *guarded* request to the end of its answer, less the time in which whoever reads it
    /// did not ask for more. Default 60 s. Other requests have no such end: a long download or event stream goes on
    /// while it moves.
    pub whole: Duration,
    /// Longest silence within the body of an answer. Default 60 s.
    pub idle: Duration,
    /// The `Host` the upstream sees. Default [`Host::Keep`].
    pub host: Host,
    /// Where failures are counted; one for all runtimes, if the same configuration is cloned to each.
    pub counters: Arc<Counters>,
}

impl ForwardConfig {
    /// The defaults for the upstream at `address`.
    pub fn new(address: Address) -> Self {
        Self {
            address,
            pool: PoolConfig::default(),
            first_byte: Duration::from_secs(15),
            whole: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            host: Host::Keep,
            counters: Arc::default(),
        }
    }
}

/// The `Host` field that goes to the upstream.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Host {
    /// What the client sent; the upstream's own address where it sent none (HTTP/1.0).
    #[default]
    Keep,
    /// Always this.
    Set(HeaderValue),
}

/// A request extension: somebody keeps the outcome of this request. The [`Run`] that a guard
/// leaves says the same.
///
/// Such a request takes only a connection that is fresh or was used within
/// [`reuse_idle`](PoolConfig::reuse_idle), and all of its answer has to arrive within [`ForwardConfig::whole`].
#[derive(Clone, Copy, Debug)]
pub struct Guarded;

/// The service that sends requests to one upstream. Clones share its connections.
///
/// Always ready. Dropping the future of a call closes the upstream's connection; what the upstream makes of the
/// request then is unknown.
pub struct Forward<B: Payload> {
    shared: Arc<Shared<B>>,
}

impl<B: Payload> Clone for Forward<B> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

struct Shared<B: Payload> {
    pool: Pool<B>,
    config: ForwardConfig,
    core: Core,
    unreached: Seldom,
}

impl<B> Forward<B>
where
    B: Payload,
{
    /// A service for one runtime, with a pool of its own. Must be called on that runtime: it spawns the pool's sweep.
    pub fn new(config: ForwardConfig, core: Core) -> Self {
        let pool = Pool::new(config.address.clone(), config.pool.clone());
        core.spawn_until_killed(pool.sweep());
        Self { shared: Arc::new(Shared { pool, config, core, unreached: Seldom::every(Duration::from_secs(1)) }) }
    }

    /// Sends a request that belongs to `run`: not a byte of it goes out once the run's lease is over.
    pub fn send(&self, request: Request<B>, run: Option<Run>) -> <Self as Service<Request<B>>>::Future {
        pinned(|| exchange::run(self.shared.clone(), request, run))
    }

    /// The connections.
    pub fn pool(&self) -> &Pool<B> {
        &self.shared.pool
    }
}

impl<B> Service<Request<B>> for Forward<B>
where
    B: Payload,
{
    type Response = Response<ResponseBody<B>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<B>>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let run = request.extensions().get::<Run>().cloned();
        self.send(request, run)
    }
}

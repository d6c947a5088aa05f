//! The store's own connections: few, handed out last in first out, given back only when their answer was read to its end.
//!
//! A call that is dropped in the middle leaves its connection with an answer on its way. A task of its own reads that
//! answer, for a bounded time, and gives the connection back: nobody inherits another one's transaction or waits for it.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use semel_core::{
    env::{Env, Tick},
    store::{Did, StoreError, StoreErrorKind},
};
use sqlx::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::Options;

/// How to come to a connection.
pub(crate) trait Server: Send + Sync + 'static {
    /// The driver's connection.
    type Connection: Connection + 'static;

    /// A connection that is ready for use: its session set up, the server looked at. Errors are of calls that did nothing.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, StoreError>> + Send;

    /// Whether a connection whose call was dropped can be used again: reads what is on its way to the end.
    fn is_drained(&self, connection: &mut Self::Connection) -> impl Future<Output = bool> + Send {
        async { connection.ping().await.is_ok() }
    }
}

/// Connections to one server. Cheap to clone.
pub(crate) struct Pool<S: Server>(Arc<Inner<S>>);

struct Inner<S: Server> {
    server: S,
    env: Env,
    idle: Mutex<Vec<Idle<S::Connection>>>,
    room: Arc<Semaphore>,
    /// Rises when a connection breaks: those that are older have probably lost the same server.
    generation: AtomicU64,
    connect_timeout: Duration,
    call_timeout: Duration,
    idle_check: Duration,
    max_lifetime: Duration,
}

struct Idle<C> {
    connection: C,
    since: Tick,
    born: Tick,
    generation: u64,
}

/// A connection that is in use. Give it [`back`](Self::back) after the answer was read, or say that it [`broke`](Self::broke).
pub(crate) struct Lease<S: Server> {
    connection: Option<S::Connection>,
    born: Tick,
    generation: u64,
    pool: Arc<Inner<S>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl<S: Server> Clone for Pool<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Server> fmt::Debug for Pool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} idle)", self.0.idle.lock().len())
    }
}

impl<S: Server> Pool<S> {
    pub(crate) fn new(server: S, env: &Env, options: &Options) -> Self {
        Self(Arc::new(Inner {
            server,
            env: env.clone(),
            idle: Mutex::new(Vec::new()),
            room: Arc::new(Semaphore::new(options.connections.clamp(1, 10_000))),
            generation: AtomicU64::new(0),
            connect_timeout: options.connect_timeout,
            call_timeout: options.call_timeout,
            idle_check: options.idle_check,
            max_lifetime: options.max_lifetime,
        }))
    }

    pub(crate) fn server(&self) -> &S {
        &self.0.server
    }

    /// When a call that begins now has to be over.
    pub(crate) fn deadline(&self) -> Tick {
        self.0.env.clock.now() + self.0.call_timeout
    }

    /// What `future` says, unless it takes longer than until `deadline`; then `None`.
    pub(crate) async fn within<T>(&self, deadline: Tick, future: impl Future<Output = T> + Send) -> Option<T> {
        self.0.within(deadline, future).await
    }

    /// A connection, idle or new. Errors mean that nothing was done. Cancel-safe: a connection that is being made goes to
    /// the next one who asks.
    pub(crate) async fn take(&self, deadline: Tick) -> Result<Lease<S>, StoreError> {
        let permit = self.within(deadline, Arc::clone(&self.0.room).acquire_owned()).await;
        let permit = match permit {
            Some(Ok(permit)) => permit,
            Some(Err(_)) => return Err(StoreError::new(Did::Nothing, StoreErrorKind::Closed, "the store was closed")),
            None => return Err(nothing("all connections were busy for the whole time that a call may take")),
        };
        let mut permit = Some(permit);
        while let Some(mut lease) = self.0.idle(&mut permit) {
            if lease.fresh {
                return Ok(lease.lease);
            }
            // Reads to the end of the protocol's smallest exchange; the other end may have gone long ago.
            match self.within(deadline, lease.lease.ping()).await {
                Some(Ok(())) => return Ok(lease.lease),
                Some(Err(_)) => permit = lease.lease.broke(),
                None => return Err(nothing("the server did not answer")),
            }
        }
        let (tell, told) = oneshot::channel();
        let pool = Arc::clone(&self.0);
        let make = async move {
            // Nobody waits any more: the connection is for the next one.
            if let Err(Ok(lease)) = tell.send(pool.make(permit).await) {
                let lease: Lease<S> = lease;
                lease.back();
            }
        };
        self.0.env.tasks.spawn("semel connect", Box::pin(make));
        match self.within(deadline, told).await {
            Some(Ok(made)) => made,
            Some(Err(_)) => Err(nothing("there is no runtime to connect in")),
            None => Err(nothing("the server did not answer")),
        }
    }

    /// A connection that was made elsewhere, for whoever comes first.
    pub(crate) fn add(&self, connection: S::Connection) {
        let now = self.0.env.clock.now();
        self.0.put(connection, now, self.0.generation.load(Ordering::Relaxed));
    }

    /// Ends what is idle and refuses further calls.
    pub(crate) fn close(&self) {
        self.0.room.close();
        self.0.idle.lock().clear();
    }
}

struct Found<S: Server> {
    lease: Lease<S>,
    fresh: bool,
}

impl<S: Server> Inner<S> {
    async fn within<T>(&self, deadline: Tick, future: impl Future<Output = T> + Send) -> Option<T> {
        tokio::select! {
            biased;
            result = future => Some(result),
            () = self.env.clock.sleep_until(deadline) => None,
        }
    }

    /// The connection that was used last, if it can still be good.
    fn idle(self: &Arc<Self>, permit: &mut Option<OwnedSemaphorePermit>) -> Option<Found<S>> {
        let now = self.env.clock.now();
        let generation = self.generation.load(Ordering::Relaxed);
        loop {
            let idle = self.idle.lock().pop()?;
            if idle.generation < generation || now.since(idle.born) > self.max_lifetime {
                self.end(idle.connection);
                continue;
            }
            return Some(Found {
                fresh: now.since(idle.since) < self.idle_check,
                lease: Lease {
                    connection: Some(idle.connection),
                    born: idle.born,
                    generation: idle.generation,
                    pool: Arc::clone(self),
                    permit: permit.take(),
                },
            });
        }
    }

    async fn make(self: &Arc<Self>, permit: Option<OwnedSemaphorePermit>) -> Result<Lease<S>, StoreError> {
        let born = self.env.clock.now();
        let generation = self.generation.load(Ordering::Relaxed);
        let connection = match self.within(born + self.connect_timeout, self.server.connect()).await {
            Some(connection) => connection.map_err(StoreError::of_nothing)?,
            None => return Err(nothing("no connection could be made in time")),
        };
        Ok(Lease { connection: Some(connection), born, generation, pool: Arc::clone(self), permit })
    }

    /// Says good-bye, off the caller's path.
    fn end(&self, connection: S::Connection) {
        let clock = Arc::clone(&self.env.clock);
        let until = clock.now() + self.connect_timeout;
        let end = async move {
            tokio::select! {
                _ = connection.close() => {}
                () = clock.sleep_until(until) => {}
            }
        };
        self.env.tasks.spawn("semel disconnect", Box::pin(end));
    }

    fn put(&self, connection: S::Connection, born: Tick, generation: u64) {
        let mut idle = self.idle.lock();
        if !self.room.is_closed() {
            idle.push(Idle { connection, since: self.env.clock.now(), born, generation });
        }
    }
}

impl<S: Server> Lease<S> {
    /// The answer was read to its end.
    pub(crate) fn back(mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.put(connection, self.born, self.generation);
        }
    }

    /// It is of no more use, and others of its age may be the same. Returns the place it had.
    pub(crate) fn broke(mut self) -> Option<OwnedSemaphorePermit> {
        self.connection = None;
        self.pool.generation.fetch_max(self.generation + 1, Ordering::Relaxed);
        self.permit.take()
    }
}

impl<S: Server> Deref for Lease<S> {
    type Target = S::Connection;

    fn deref(&self) -> &S::Connection {
        self.connection.as_ref().expect("a lease has its connection until it is given back")
    }
}

impl<S: Server> DerefMut for Lease<S> {
    fn deref_mut(&mut self) -> &mut S::Connection {
        self.connection.as_mut().expect("a lease has its connection until it is given back")
    }
}

impl<S: Server> Drop for Lease<S> {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        let (pool, permit) = (Arc::clone(&self.pool), self.permit.take());
        let (born, generation) = (self.born, self.generation);
        let drain = async move {
            let until = pool.env.clock.now() + pool.call_timeout;
            if pool.within(until, pool.server.is_drained(&mut connection)).await == Some(true) {
                pool.put(connection, born, generation);
            }
            drop(permit);
        };
        self.pool.env.tasks.spawn("semel drain", Box::pin(drain));
    }
}

fn nothing(why: &'static str) -> StoreError {
    StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, why)
}

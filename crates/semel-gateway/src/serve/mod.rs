//! Listening, serving, draining.
//!
//! One single-threaded runtime per core, each with its own listener on the same address and its own upstream
//! connections: a request stays on the core that accepted it. Or one multi-threaded runtime, where work is uneven and
//! cores should help each other out. Futures are `Send` in both.

mod accept;
mod admit;
mod bind;
mod body;
mod connection;
mod core;
mod edge;
mod known;
mod lasting;
mod line;
mod refusal;
mod run;
mod service;
mod shutdown;
mod socket;
mod via;

pub use self::core::Core;
pub use bind::BindError;
pub(crate) use bind::probe;
pub use body::{RequestBody, RequestBodyError};
pub use edge::{Edge, EdgeConfig, Forwarded, RequestIds};
pub use known::Known;
pub use lasting::Lasting;
pub use run::{Drained, Running, Server};
pub use shutdown::Shutdown;
pub use via::Via;

use std::{net::SocketAddr, num::NonZeroUsize, sync::Arc, time::Duration};

use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, COOKIE};
use semel_http::names::{IDEMPOTENCY_KEY, X_REQUEST_ID};

/// Where and how clients are served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeConfig {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Which threads serve. Default: [`Runtime::PerCore`] on all cores.
    pub runtime: Runtime,
    /// Open connections over all runtimes; more are answered 503 and closed. Default 16 384.
    pub max_connections: usize,
    /// Largest request head in bytes, target included; larger ones are answered 431. Default 64 KiB.
    pub max_head: usize,
    /// Most fields in a request head; more are answered 431. Default 100, which costs nothing extra.
    pub max_headers: usize,
    /// Largest piece of a body held at once, in bytes. Default 64 KiB, at least 8 KiB.
    pub max_buffer: usize,
    /// Longest time for a request head, from its first byte (on a new connection: from accept) to its last. Default
    /// 10 s. Then 408, and the connection is closed.
    pub head_timeout: Duration,
    /// How long a connection may rest between requests. Default 75 s, longer than the commonest balancers reuse one.
    pub keep_alive: Duration,
    /// Longest silence within a request's body while somebody wants to read it. Default 30 s.
    pub body_idle: Duration,
    /// Longest time in which a client takes nothing of its answer. Default 30 s. Then the connection is cut.
    pub write_idle: Duration,
    /// How long a drain lets running requests and upgraded connections go on. Default 30 s.
    pub drain: Duration,
    /// What requests are looked at for, before all else.
    pub door: Door,
}

/// What every request is looked at for, before all else.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Door {
    /// Fields that somebody behind the door reads. A request that names one in `Connection` wants it taken away before
    /// that, and is refused; a field whose name differs from one of these in underscores alone is removed. Default: the key,
    /// the request id, `Authorization`, `Cookie`, what says what the body is.
    pub read_behind: Known,
    /// The name by which requests are known that come by again; the one of [`EdgeConfig::via`].
    pub via: Option<Arc<Via>>,
}

impl Default for Door {
    fn default() -> Self {
        let read_behind =
            [IDEMPOTENCY_KEY.clone(), X_REQUEST_ID.clone(), AUTHORIZATION, COOKIE, CONTENT_TYPE, CONTENT_ENCODING];
        Self { read_behind: Known::new(read_behind), via: None }
    }
}

/// The threads that serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Runtime {
    /// One single-threaded runtime per core, on so many cores.
    PerCore(NonZeroUsize),
    /// One runtime with so many threads.
    Shared(NonZeroUsize),
}

impl Runtime {
    /// [`Runtime::PerCore`] on all cores this process may use.
    pub fn all_cores() -> Self {
        Self::PerCore(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN))
    }
}

impl ServeConfig {
    /// The defaults, on `listen`.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            runtime: Runtime::all_cores(),
            max_connections: 16_384,
            max_head: 64 * 1024,
            max_headers: 100,
            max_buffer: 64 * 1024,
            head_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            body_idle: Duration::from_secs(30),
            write_idle: Duration::from_secs(30),
            drain: Duration::from_secs(30),
            door: Door::default(),
        }
    }

    fn http(&self) -> hyper::server::conn::http1::Builder {
        let mut http = hyper::server::conn::http1::Builder::new();
        // The limits on silence are ours: hyper would arm a timer anew for each request.
        http.header_read_timeout(None);
        // A client that ends its side has left, as for nginx: what runs for it unguarded is given up. From what is guarded
        // the socket keeps that end back (`lasting`).
        http.half_close(false);
        http.max_header_size(self.max_head);
        http.max_buf_size(self.max_buffer.max(self.max_head).max(8 * 1024));
        if self.max_headers != 100 {
            // hyper's own 100 live on the stack.
            http.max_headers(self.max_headers);
        }
        http.writev(false);
        http
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// The address it connected to.
    pub local: SocketAddr,
}

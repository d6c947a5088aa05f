//! Taking connections from the listener.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::server::conn::http1::Builder;
use parking_lot::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep},
};
use tower_service::Service;

use super::{Core, Door, Lasting, Peer, RequestBody, ServeConfig, connection};
use crate::forward::problem::Problem;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How many connections are open, over all runtimes.
#[derive(Clone, Default)]
pub(super) struct Open(Arc<AtomicUsize>);

/// One open connection. Its socket holds it, so that an upgraded connection counts until its end.
pub(super) struct Seat(Arc<AtomicUsize>);

impl Open {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn take(&self, max: usize) -> Option<Seat> {
        let seat = Seat(self.0.clone());
        (self.0.fetch_add(1, Ordering::Relaxed) < max).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Connections refused for want of room, told at most once a second: whoever opens too many must not fill the log.
#[derive(Default)]
struct Refusals(Mutex<(Option<Instant>, u64)>);

impl Refusals {
    fn count(&self, now: Instant) {
        if let Some(refused) = self.due(now) {
            tracing::warn!(refused, "too many connections: some were refused");
        }
    }

    /// How many were refused since it was told last, if it is time to tell.
    fn due(&self, now: Instant) -> Option<u64> {
        let (told, count) = &mut *self.0.lock();
        *count += 1;
        if told.is_some_and(|told| now < told + Duration::from_secs(1)) {
            return None;
        }
        *told = Some(now);
        Some(std::mem::take(count))
    }
}

pub(super) struct Acceptor<M> {
    core: Core,
    make: M,
    http: Builder,
    limits: connection::Limits,
    door: Door,
    max_connections: usize,
    open: Open,
    refusals: Refusals,
}

impl<M> Acceptor<M> {
    pub(super) fn new(core: Core, make: M, config: &ServeConfig, open: Open) -> Self {
        let limits = connection::Limits {
            head: config.head_timeout,
            keep_alive: config.keep_alive,
            body_idle: config.body_idle,
            write_idle: config.write_idle,
        };
        Self {
            core,
            make,
            http: config.http(),
            limits,
            door: config.door.clone(),
            max_connections: config.max_connections,
            open,
            refusals: Refusals::default(),
        }
    }

    /// Accepts until the drain begins, then what the kernel had accepted by then: those clients believe they are
    /// connected.
    pub(super) async fn run<S, R>(self, listener: TcpListener)
    where
        M: Fn(&Peer) -> S,
        S: Service<Request<RequestBody>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Lasting + Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let draining = self.core.shutdown().wait();
        tokio::pin!(draining);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut draining => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, from)) => self.begin(stream, from),
                Err(e) if of_one_connection(&e) => {}
                Err(e) => {
                    // Out of descriptors or memory: others have to end first.
                    tracing::error!("no connection can be accepted: {e}");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
        // Asked of the kernel itself: the reactor may not have noticed the last ones yet.
        let Ok(listener) = listener.into_std() else { return };
        while let Ok((stream, from)) = listener.accept() {
            if stream.set_nonblocking(true).is_ok()
                && let Ok(stream) = TcpStream::from_std(stream)
            {
                self.begin(stream, from);
            }
        }
    }

    fn begin<S, R>(&self, stream: TcpStream, from: SocketAddr)
    where
        M: Fn(&Peer) -> S,
        S: Service<Request<RequestBody>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Lasting + Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let Some(seat) = self.open.take(self.max_connections) else {
            self.refusals.count(Instant::now());
            return refuse(&stream);
        };
        let (Ok(()), Ok(local)) = (set_options(&stream), stream.local_addr()) else { return };
        let stack = (self.make)(&Peer { address: from, local });
        let shutdown = self.core.shutdown().clone();
        let served =
            connection::serve(stream, seat, stack, self.http.clone(), self.limits, self.door.clone(), shutdown);
        self.core.spawn_connection(served);
    }
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    // The last piece of an answer must not wait for an acknowledgement.
    stream.set_nodelay(true)?;
    // The only way to learn that the other end of a silent upgraded connection is no more.
    socket2::SockRef::from(stream).set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(Duration::from_secs(60)))
}

/// Says that there is no room, and closes.
///
/// Waiting instead would leave the client in the kernel's queue, with a connection that looks healthy, until its own
/// time-out; a plain 503 tells it, and any balancer, to go elsewhere, and nothing has been sent on. The answer is
/// written before the request is read: its reset may overtake it where the client is still sending.
fn refuse(stream: &TcpStream) {
    let _ = stream.try_write(Problem::Overloaded.raw().as_bytes());
    let _ = socket2::SockRef::from(stream).shutdown(std::net::Shutdown::Write);
    let mut bin = [0; 4096];
    let _ = stream.try_read(&mut bin);
}

/// An error that concerns the connection that was about to be accepted, not the listener.
fn of_one_connection(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refused_connections_is_told_once_a_second() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let at = |ms| refusals.due(start + Duration::from_millis(ms));
        assert_eq!(
            [at(0), at(1), at(999), at(1000), at(1001), at(5000)],
            [Some(1), None, None, Some(3), None, Some(2)]
        );
    }
}

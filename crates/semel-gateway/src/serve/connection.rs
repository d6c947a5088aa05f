//! One client's connection, from accept to close.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::server::conn::http1::{Builder, UpgradeableConnection};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};
use tower_service::Service;

use super::{
    Door, Lasting, RequestBody, Shutdown,
    accept::Seat,
    line::{Line, Waiting},
    refusal,
    service::PerConnection,
    socket::Socket,
};
use crate::signal::Deadline;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long a closing connection reads on, and how much.
const LINGER: (Duration, usize) = (Duration::from_secs(1), 256 * 1024);

const HEAD_TIMEOUT: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) head: Duration,
    pub(super) keep_alive: Duration,
    pub(super) body_idle: Duration,
    pub(super) write_idle: Duration,
}

impl Limits {
    fn of(&self, waiting: Waiting) -> Option<Duration> {
        match waiting {
            Waiting::Head => Some(self.head),
            Waiting::Next => Some(self.keep_alive),
            Waiting::Body => Some(self.body_idle),
            Waiting::Reader => Some(self.write_idle),
            Waiting::Nothing => None,
        }
    }
}

/// How a connection came to its end.
#[derive(Debug)]
enum End {
    /// By the protocol, or by the client.
    Served,
    /// With an error, of the client's mostly.
    Failed(hyper::Error),
    /// A head that did not come to its end in time.
    SlowHead,
    /// A client that kept us waiting otherwise, or the drain's time is over: no more words.
    Cut,
}

pub(super) async fn serve<S, R>(
    stream: TcpStream,
    seat: Seat,
    stack: S,
    http: Builder,
    limits: Limits,
    door: Door,
    shutdown: Shutdown,
) where
    S: Service<Request<RequestBody>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Lasting + Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let line = Arc::new(Line::default());
    let service = PerConnection::new(stack, line.clone(), limits.body_idle, door);
    let io = TokioIo::new(Socket::new(stream, line.clone(), seat));
    let mut conn = http.serve_connection(io, service).with_upgrades();
    let end = drive(&mut conn, &line, &limits, &shutdown).await;
    if matches!(end, End::Cut) {
        return;
    }
    let Some(parts) = conn.into_parts() else { return };
    let (mut stream, has_ended, held) = parts.io.into_inner().into_parts();
    match end {
        // Best effort: somebody who sends nothing seldom reads.
        End::SlowHead if line.is_in_head() && !has_ended => {
            let _ = stream.try_write(HEAD_TIMEOUT);
        }
        End::Failed(error) => {
            if let Some(problem) = refusal::of(&error, held, &parts.read_buf) {
                let _ = timeout(LINGER.0, stream.write_all(problem.raw().as_bytes())).await;
            }
        }
        _ => {}
    }
    if !has_ended && !shutdown.is_triggered() {
        linger(&mut stream).await;
    }
}

/// Polls the connection; enforces the limits on the client's silence; passes on the order to stop.
async fn drive<S, R>(
    conn: &mut UpgradeableConnection<TokioIo<Socket>, PerConnection<S>>,
    line: &Line,
    limits: &Limits,
    shutdown: &Shutdown,
) -> End
where
    S: Service<Request<RequestBody>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Lasting,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    // Polled once, at the start: they stay registered with this task's waker, which never changes. After that a look
    // at the handle's flags is enough.
    let (mut drain, mut kill) = (pin!(shutdown.wait()), pin!(shutdown.wait_killed()));
    let mut deadline: Option<Deadline> = None;
    let mut seen = (Waiting::Nothing, 0);
    let mut since = Instant::now();
    let mut told = false;
    poll_fn(|cx| {
        if deadline.is_none() {
            deadline = Some(Deadline::new(cx.waker().clone()));
            let _ = (drain.as_mut().poll(cx), kill.as_mut().poll(cx));
        }
        if shutdown.is_triggered() && !told {
            told = true;
            Pin::new(&mut *conn).graceful_shutdown();
        }
        if shutdown.is_killed() {
            return Poll::Ready(End::Cut);
        }
        let mut polled = Pin::new(&mut *conn).poll(cx);
        if polled.is_pending() && line.tells_end() {
            polled = Pin::new(&mut *conn).poll(cx);
        }
        if let Poll::Ready(ended) = polled {
            return Poll::Ready(match ended {
                Ok(()) => End::Served,
                Err(e) => {
                    tracing::debug!("client connection ended: {e}");
                    End::Failed(e)
                }
            });
        }
        let now = line.waiting();
        let Some(limit) = limits.of(now.0) else {
            seen = now;
            return Poll::Pending;
        };
        if seen != now {
            seen = now;
            since = Instant::now();
        }
        let late = deadline.as_mut().is_some_and(|d| d.passed(since + limit));
        if late { give_up(now.0, line, cx) } else { Poll::Pending }
    })
    .await
}

fn give_up(waiting: Waiting, line: &Line, cx: &Context<'_>) -> Poll<End> {
    match waiting {
        Waiting::Head => Poll::Ready(End::SlowHead),
        Waiting::Next => Poll::Ready(End::Served),
        Waiting::Reader => Poll::Ready(End::Cut),
        // Whoever reads the body learns of it and answers.
        Waiting::Body => {
            line.stall();
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        Waiting::Nothing => Poll::Pending,
    }
}

/// Closes our side and reads a little of what the client is still sending. A socket closed with unread bytes resets
/// the connection, and a reset overtakes an answer that is on its way.
async fn linger(stream: &mut TcpStream) {
    let (time, mut room) = LINGER;
    let rest = async {
        if stream.shutdown().await.is_err() {
            return;
        }
        let mut bin = [0; 4096];
        while room > 0 {
            match stream.read(&mut bin).await {
                Ok(n) if n > 0 => room = room.saturating_sub(n),
                _ => return,
            }
        }
    };
    let _ = timeout(time, rest).await;
}

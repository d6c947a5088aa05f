//! One connection to an upstream, driven by whoever uses it.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use http::Request;
use http_body::{Body, Frame, SizeHint};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use pin_project_lite::pin_project;
use tokio::{net::TcpStream, time::Instant};

use super::{Payload, socket::Socket};
use crate::signal::{Bell, Deadline};

/// What the pieces of a connection tell each other.
#[derive(Default)]
pub(super) struct Line {
    bell: Bell,
    pub(super) written: AtomicU64,
    sent: AtomicU8,
}

impl Wake for Line {
    fn wake(self: Arc<Self>) {
        self.bell.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.bell.ring();
    }
}

/// How far the request's body has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Sent {
    /// Whole, or handed on so far: the upstream is next.
    Flowing = 0,
    /// The client is next.
    Waiting = 1,
    /// The client's part broke off.
    Failed = 2,
}

pub(crate) struct Link<B: Payload> {
    send: SendRequest<Outgoing<B>>,
    /// Gone once it has ended with a request still queued: dropping it hands that request back.
    conn: Option<Connection<Socket, Outgoing<B>>>,
    line: Arc<Line>,
    waker: Waker,
    deadline: Deadline,
    /// The connection has ended; polling it again is an error.
    ended: bool,
}

/// When a driven connection is looked at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    First,
    After,
}

/// What one look at a driven connection may use.
pub(crate) struct Exchange<'a> {
    line: &'a Line,
    deadline: &'a mut Deadline,
    /// The connection has ended.
    pub(crate) ended: bool,
    /// The connection has not been driven yet: no reason to wait.
    pub(crate) early: bool,
}

impl Exchange<'_> {
    /// Bytes written since the connection was made.
    pub(crate) fn written(&self) -> u64 {
        self.line.written.load(Ordering::Relaxed)
    }

    pub(crate) fn sent(&self) -> Sent {
        self.line.sent()
    }

    /// Whether `at` has passed; otherwise the task is woken when it does.
    pub(crate) fn passed(&mut self, at: Instant) -> bool {
        self.deadline.passed(at)
    }
}

impl Line {
    fn sent(&self) -> Sent {
        match self.sent.load(Ordering::Relaxed) {
            1 => Sent::Waiting,
            2 => Sent::Failed,
            _ => Sent::Flowing,
        }
    }

    fn set_sent(&self, sent: Sent) {
        self.sent.store(sent as u8, Ordering::Relaxed);
    }
}

impl<B> Link<B>
where
    B: Payload,
{
    pub(super) async fn open(stream: TcpStream, http: &Builder) -> hyper::Result<Box<Self>> {
        let line = Arc::new(Line::default());
        let (send, conn) = http.handshake(Socket::new(stream, line.clone())).await?;
        let waker = Waker::from(line.clone());
        let deadline = Deadline::new(waker.clone());
        Ok(Box::new(Self { send, conn: Some(conn), line, waker, deadline, ended: false }))
    }

    /// Puts a request on the connection. It moves only while the link is driven.
    pub(crate) fn send(
        &mut self,
        mut request: Request<Outgoing<B>>,
    ) -> impl Future<
        Output = Result<http::Response<hyper::body::Incoming>, hyper::client::conn::TrySendError<Request<Outgoing<B>>>>,
    > + use<B> {
        self.line.set_sent(Sent::Flowing);
        request.body_mut().line = Some(self.line.clone());
        let promise = self.send.try_send_request(request);
        // A connection that was never driven has no waker yet.
        self.line.bell.ring();
        promise
    }

    /// Bytes written since the connection was made.
    pub(crate) fn written(&self) -> u64 {
        self.line.written.load(Ordering::Relaxed)
    }

    pub(crate) fn sent(&self) -> Sent {
        self.line.sent()
    }

    /// Drives the connection where its bell rang, and looks after each pass, until `look` is ready. With `Look::First`
    /// there is a look before the first pass, too: a reader has to ask before the connection reads for it.
    pub(crate) fn drive<T>(
        &mut self,
        cx: &Context<'_>,
        begin: Look,
        mut look: impl FnMut(&mut Exchange<'_>, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Self { conn, line, waker, deadline, ended, .. } = self;
        // The reader's side needs no waker: whatever the connection hands over is looked at right after the pass.
        let quiet = &mut Context::from_waker(Waker::noop());
        let asked = begin == Look::First;
        let mut first = asked;
        line.bell.watch(waker, cx, asked, |cx, mut rang| {
            if std::mem::take(&mut first) {
                let ready = look(&mut Exchange { line, deadline, ended: *ended, early: true }, quiet);
                if ready.is_ready() {
                    return ready;
                }
                rang |= line.bell.answer();
            }
            if rang && let Some(conn) = conn.as_mut().filter(|_| !*ended) {
                *ended = Pin::new(conn).poll(cx).is_ready();
            }
            let ready = look(&mut Exchange { line, deadline, ended: *ended, early: false }, quiet);
            if ready.is_pending() && *ended && conn.take().is_some() {
                return look(&mut Exchange { line, deadline, ended: true, early: false }, quiet);
            }
            ready
        })
    }

    /// Nothing stirred since the connection went to rest.
    pub(super) fn quiet(&self) -> bool {
        !self.line.bell.rang()
    }

    /// Looks at a connection that stirred at rest: the link, unless that was its end.
    pub(super) async fn still_alive(mut self: Box<Self>) -> Option<Box<Self>> {
        poll_fn(|cx| self.drive(cx, Look::After, |_, _| Poll::Ready(()))).await;
        (!self.ended && self.send.is_ready()).then_some(self)
    }

    /// Ends an exchange. False where the connection cannot carry another.
    pub(super) fn rest(&mut self) -> bool {
        self.line.bell.forget_task();
        !self.ended && self.send.is_ready()
    }

    /// After an answer 101: the bare connection and what was read beyond the head.
    pub(crate) async fn into_upgraded(mut self: Box<Self>) -> Option<UpgradedUpstream> {
        poll_fn(|cx| self.drive(cx, Look::First, |link, _| if link.ended { Poll::Ready(()) } else { Poll::Pending }))
            .await;
        let parts = self.conn.take()?.into_parts();
        Some(UpgradedUpstream { stream: parts.io.into_inner(), read: parts.read_buf })
    }
}

/// A connection that no longer speaks HTTP.
pub(crate) struct UpgradedUpstream {
    pub(crate) stream: TcpStream,
    pub(crate) read: Bytes,
}

pin_project! {
    /// A request's body on its way out, telling its connection who is next.
    pub(crate) struct Outgoing<B> {
        #[pin]
        body: B,
        // Of the connection it goes out on.
        line: Option<Arc<Line>>,
    }
}

impl<B> Outgoing<B> {
    pub(crate) const fn new(body: B) -> Self {
        Self { body, line: None }
    }
}

impl<B: Body<Data = Bytes>> Body for Outgoing<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let polled = this.body.poll_frame(cx);
        if let Some(line) = this.line {
            line.set_sent(match &polled {
                Poll::Pending => Sent::Waiting,
                Poll::Ready(Some(Err(_))) => Sent::Failed,
                Poll::Ready(_) => Sent::Flowing,
            });
        }
        polled
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

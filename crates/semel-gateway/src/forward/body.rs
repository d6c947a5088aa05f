//! The body of an answer, read from the upstream as it is wanted.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;

use super::hop;
use crate::pool::{Link, Look, Payload, Pool};

/// The body of an answer: the upstream's as it arrives, or a short one of the gateway.
///
/// Nothing is read ahead. Its error means that the answer is incomplete; whoever serves it must not end it cleanly.
/// Dropping it before its end closes the upstream's connection.
pub struct ResponseBody<B: Payload> {
    kind: Kind<B>,
}

enum Kind<B: Payload> {
    Empty,
    Own(Bytes),
    Passing(Passing<B>),
}

struct Passing<B: Payload> {
    incoming: Incoming,
    link: Box<Link<B>>,
    pool: Pool<B>,
    idle: Duration,
    whole: Option<Instant>,
    /// Since when the reader has been waiting for the next frame.
    waiting: Option<Instant>,
    /// Since when the reader has had a frame and not asked for more: its time, not the upstream's.
    handed: Option<Instant>,
}

/// Why an answer is incomplete.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// The upstream's connection ended or its framing is malformed.
    Broken(hyper::Error),
    /// Nothing arrived for this long.
    Idle(Duration),
    /// The time for the whole exchange is over.
    Whole,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(_) => f.write_str("the upstream's answer broke off"),
            Self::Idle(t) => write!(f, "nothing of the upstream's answer arrived for {t:?}"),
            Self::Whole => f.write_str("the upstream's answer did not end in time"),
        }
    }
}

impl std::error::Error for BodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Broken(e) => Some(e),
            Self::Idle(_) | Self::Whole => None,
        }
    }
}

impl<B: Payload> From<Bytes> for ResponseBody<B> {
    fn from(own: Bytes) -> Self {
        Self { kind: if own.is_empty() { Kind::Empty } else { Kind::Own(own) } }
    }
}

impl<B> ResponseBody<B>
where
    B: Payload,
{
    pub(super) fn passing(
        incoming: Incoming,
        link: Box<Link<B>>,
        pool: &Pool<B>,
        idle: Duration,
        whole: Option<Instant>,
    ) -> Self {
        if incoming.is_end_stream() {
            pool.give_back(link);
            return Self { kind: Kind::Empty };
        }
        let pool = pool.clone();
        Self { kind: Kind::Passing(Passing { incoming, link, pool, idle, whole, waiting: None, handed: None }) }
    }

    fn finish(&mut self) {
        if let Kind::Passing(passed) = std::mem::replace(&mut self.kind, Kind::Empty) {
            passed.pool.give_back(passed.link);
        }
    }
}

impl<B> Passing<B>
where
    B: Payload,
{
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { incoming, link, idle, whole, waiting, handed, .. } = self;
        if let (Some(since), Some(whole)) = (handed.take(), whole.as_mut()) {
            *whole += since.elapsed();
        }
        let polled = link.drive(cx, Look::First, |link, cx| {
            if let Poll::Ready(frame) = Pin::new(&mut *incoming).poll_frame(cx) {
                *waiting = None;
                return Poll::Ready(frame.map(|frame| frame.map(passed).map_err(BodyError::Broken)));
            }
            if link.early {
                return Poll::Pending;
            }
            let silent = *waiting.get_or_insert_with(Instant::now) + *idle;
            let (at, error) = match *whole {
                Some(whole) if whole < silent => (whole, BodyError::Whole),
                _ => (silent, BodyError::Idle(*idle)),
            };
            if link.passed(at) { Poll::Ready(Some(Err(error))) } else { Poll::Pending }
        });
        if polled.is_ready() && whole.is_some() && !incoming.is_end_stream() {
            *handed = Some(Instant::now());
        }
        polled
    }
}

/// A service says behind its body no more than before it.
fn passed(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        hop::strip_trailers(trailers);
    }
    frame
}

impl<B> Body for ResponseBody<B>
where
    B: Payload,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match &mut this.kind {
            Kind::Empty => Poll::Ready(None),
            Kind::Own(bytes) => {
                let bytes = std::mem::take(bytes);
                this.kind = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Kind::Passing(passing) => {
                let polled = passing.poll(cx);
                match &polled {
                    Poll::Pending => {}
                    Poll::Ready(Some(Ok(_))) if !passing.incoming.is_end_stream() => {}
                    Poll::Ready(Some(Ok(_)) | None) => this.finish(),
                    Poll::Ready(Some(Err(_))) => this.kind = Kind::Empty,
                }
                polled
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty => true,
            Kind::Own(_) => false,
            Kind::Passing(passing) => passing.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Passing(passing) => passing.incoming.size_hint(),
        }
    }
}

//! The two bodies as the server hands them over.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use semel_http::Overdue;

use super::line::{InService, Line};

/// A request's body as it arrives. Nothing is read ahead. What follows it (trailers) is left out: rules and checks are about
/// the head, and many a service merges both.
///
/// Fails where the client's part breaks off, is malformed, or stalls for longer than
/// [`body_idle`](super::ServeConfig::body_idle) while somebody wants to read it.
pub struct RequestBody {
    incoming: Incoming,
    line: Arc<Line>,
    idle: Duration,
}

/// Why a request's body is incomplete.
#[derive(Debug)]
#[non_exhaustive]
pub enum RequestBodyError {
    /// Nothing of it arrived for this long.
    Stalled(Duration),
    /// The client ended its side of the connection.
    Ended,
    /// The connection ended or the framing is malformed.
    Broken(hyper::Error),
}

impl fmt::Display for RequestBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stalled(t) => write!(f, "nothing of the request's body arrived for {t:?}"),
            Self::Ended => f.write_str("the client ended its side within the request's body"),
            Self::Broken(_) => f.write_str("the request's body broke off"),
        }
    }
}

impl std::error::Error for RequestBodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stalled(_) => Some(&Overdue),
            Self::Ended => None,
            Self::Broken(e) => Some(e),
        }
    }
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, line: Arc<Line>, idle: Duration) -> Self {
        Self { incoming, line, idle }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let polled = Pin::new(&mut self.incoming).poll_frame(cx);
        let Self { line, idle, .. } = &*self;
        match polled {
            Poll::Ready(frame) => {
                line.body_came();
                let frame = frame.filter(|frame| !frame.as_ref().is_ok_and(Frame::is_trailers));
                Poll::Ready(frame.map(|frame| frame.map_err(RequestBodyError::Broken)))
            }
            Poll::Pending => {
                line.body.register(cx.waker());
                // The end of a side is read after all that came before it, so nothing of the body is still under way.
                if line.is_end_kept() {
                    return Poll::Ready(Some(Err(RequestBodyError::Ended)));
                }
                // After registering: a stall in between is seen here.
                if line.is_stalled() {
                    return Poll::Ready(Some(Err(RequestBodyError::Stalled(*idle))));
                }
                line.body_wanted();
                Poll::Pending
            }
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.line.body_dropped();
    }
}

pin_project! {
    /// An answer's body, and with it the request in service.
    #[project = ServedProj]
    pub(super) enum Served<R> {
        Theirs { #[pin] body: R, in_service: InService },
        Ours { body: Option<Bytes>, in_service: InService },
    }
}

impl<R: Body<Data = Bytes>> Body for Served<R> {
    type Data = Bytes;
    type Error = R::Error;

    #[inline]
    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        match self.project() {
            ServedProj::Theirs { body, .. } => body.poll_frame(cx),
            ServedProj::Ours { body, .. } => Poll::Ready(body.take().map(|b| Ok(Frame::data(b)))),
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Theirs { body, .. } => body.is_end_stream(),
            Self::Ours { body, .. } => body.is_none(),
        }
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Theirs { body, .. } => body.size_hint(),
            Self::Ours { body, .. } => SizeHint::with_exact(body.as_ref().map_or(0, |b| b.len() as u64)),
        }
    }
}

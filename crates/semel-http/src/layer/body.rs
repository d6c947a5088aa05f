//! Bodies on both sides of the guard.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use semel_core::engine::Run;
use tokio::sync::mpsc;

use super::{BoxError, gather::Whole};

pin_project! {
    /// A request's body as the inner service sees it: passed on as it comes, or whole where the request is guarded.
    pub struct RequestBody<B> {
        #[pin]
        kind: RequestKind<B>,
    }
}

pin_project! {
    #[project = RequestKindProj]
    enum RequestKind<B> {
        Passed { #[pin] body: B },
        Whole { whole: Whole, run: Run },
    }
}

impl<B> RequestBody<B> {
    pub(super) const fn passed(body: B) -> Self {
        Self { kind: RequestKind::Passed { body } }
    }

    pub(super) const fn whole(whole: Whole, run: Run) -> Self {
        Self { kind: RequestKind::Whole { whole, run } }
    }

    /// The run that the request belongs to; `None` where it is not guarded.
    pub const fn run(&self) -> Option<&Run> {
        match &self.kind {
            RequestKind::Passed { .. } => None,
            RequestKind::Whole { run, .. } => Some(run),
        }
    }
}

impl<B: Body<Data = Bytes>> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().kind.project() {
            RequestKindProj::Passed { body } => body.poll_frame(cx),
            RequestKindProj::Whole { whole, .. } => Poll::Ready(whole.next_frame().map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            RequestKind::Passed { body } => body.is_end_stream(),
            RequestKind::Whole { whole, .. } => whole.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            RequestKind::Passed { body } => body.size_hint(),
            RequestKind::Whole { whole, .. } => whole.size(),
        }
    }
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            RequestKind::Passed { .. } => "RequestBody(passed)",
            RequestKind::Whole { .. } => "RequestBody(whole)",
        })
    }
}

pin_project! {
    /// An answer's body as the server sees it: passed on as it comes, whole, or live where it is too long to be recorded.
    ///
    /// A live body does not end before the record says so: the end of the message, or the frame that reaches its length,
    /// is held back until then.
    pub struct ResponseBody<R> {
        #[pin]
        kind: ResponseKind<R>,
    }
}

pin_project! {
    #[project = ResponseKindProj]
    enum ResponseKind<R> {
        Passed { #[pin] body: R },
        Whole { whole: Whole },
        Live { live: Box<Live> },
    }
}

impl<R> ResponseBody<R> {
    pub(super) const fn passed(body: R) -> Self {
        Self { kind: ResponseKind::Passed { body } }
    }

    pub(super) const fn whole(whole: Whole) -> Self {
        Self { kind: ResponseKind::Whole { whole } }
    }

    /// Boxed: it is rare, and every other answer would be moved around with room for it.
    pub(super) fn live(live: Live) -> Self {
        Self { kind: ResponseKind::Live { live: Box::new(live) } }
    }
}

/// Of an answer that did not come through the guard.
impl<R> From<Bytes> for ResponseBody<R> {
    fn from(data: Bytes) -> Self {
        Self::whole(Whole { data, trailers: None })
    }
}

impl<R> Body for ResponseBody<R>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            ResponseKindProj::Passed { body } => body.poll_frame(cx).map_err(Into::into),
            ResponseKindProj::Whole { whole } => Poll::Ready(whole.next_frame().map(Ok)),
            ResponseKindProj::Live { live } => live.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            ResponseKind::Passed { body } => body.is_end_stream(),
            ResponseKind::Whole { whole } => whole.is_end(),
            ResponseKind::Live { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            ResponseKind::Passed { body } => body.size_hint(),
            ResponseKind::Whole { whole } => whole.size(),
            ResponseKind::Live { live } => live.size(),
        }
    }
}

impl<R> fmt::Debug for ResponseBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            ResponseKind::Passed { .. } => "ResponseBody(passed)",
            ResponseKind::Whole { .. } => "ResponseBody(whole)",
            ResponseKind::Live { .. } => "ResponseBody(live)",
        })
    }
}

/// How a live body may end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// All of it was handed over, and what became of the claim is settled: the message may be completed.
    Clean,
    /// It was cut short, or the record says something else: never completed.
    Cut,
}

pub(super) type Ending = Pin<Box<dyn Future<Output = End> + Send>>;

/// An answer that is passed on while it comes.
pub(super) struct Live {
    frames: mpsc::Receiver<Frame<Bytes>>,
    /// What is left of a known length.
    remaining: Option<u64>,
    held: Option<Bytes>,
    trailers: Option<HeaderMap>,
    /// Gone once it has spoken.
    ending: Option<Ending>,
}

impl Live {
    pub(super) const fn new(frames: mpsc::Receiver<Frame<Bytes>>, length: Option<u64>, ending: Ending) -> Self {
        Self { frames, remaining: length, held: None, trailers: None, ending: Some(ending) }
    }

    fn size(&self) -> SizeHint {
        let held = self.held.as_ref().map_or(0, |h| h.len() as u64);
        self.remaining.map_or_else(SizeHint::default, |rest| SizeHint::with_exact(rest + held))
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(ending) = &mut self.ending {
            while let Some(frame) = ready!(self.frames.poll_recv(cx)) {
                match frame.into_data() {
                    Ok(data) => {
                        let Some(remaining) = &mut self.remaining else {
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        };
                        *remaining = remaining.saturating_sub(data.len() as u64);
                        if *remaining > 0 {
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                        // With this frame the message would be complete. If more comes after all, the length was
                        // wrong, and the server cuts the answer.
                        if let Some(earlier) = self.held.replace(data) {
                            return Poll::Ready(Some(Ok(Frame::data(earlier))));
                        }
                    }
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                }
            }
            let end = ready!(ending.as_mut().poll(cx));
            self.ending = None;
            if end == End::Cut {
                self.held = None;
                self.trailers = None;
                return Poll::Ready(Some(Err("the answer was cut short, or was not recorded".into())));
            }
        }
        let frame = self.held.take().map(Frame::data).or_else(|| self.trailers.take().map(Frame::trailers));
        Poll::Ready(frame.map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::BodyExt;
    use tokio::sync::oneshot;

    use super::*;

    type Parts = (mpsc::Sender<Frame<Bytes>>, oneshot::Sender<End>, ResponseBody<http_body_util::Empty<Bytes>>);

    fn live(length: Option<u64>) -> Parts {
        let (frames, reader) = mpsc::channel(4);
        let (end, ended) = oneshot::channel();
        let ending = Box::pin(async { ended.await.unwrap_or(End::Cut) });
        (frames, end, ResponseBody::live(Live::new(reader, length, ending)))
    }

    fn data(text: &'static str) -> Frame<Bytes> {
        Frame::data(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn the_frame_that_reaches_the_length_waits_for_the_end() {
        let (frames, end, mut body) = live(Some(4));
        frames.try_send(data("ab")).unwrap();
        frames.try_send(data("cd")).unwrap();
        assert_eq!(body.size_hint().exact(), Some(4));
        assert_eq!(body.frame().now_or_never().unwrap().unwrap().unwrap().into_data().unwrap(), "ab");
        assert_eq!(body.size_hint().exact(), Some(2));
        assert!(body.frame().now_or_never().is_none());
        drop(frames);
        assert!(body.frame().now_or_never().is_none());
        assert_eq!(body.size_hint().exact(), Some(2));
        end.send(End::Clean).unwrap();
        assert_eq!(body.frame().now_or_never().unwrap().unwrap().unwrap().into_data().unwrap(), "cd");
        assert!(body.frame().now_or_never().unwrap().is_none());
    }

    #[test]
    fn without_a_length_the_end_itself_waits() {
        let (frames, end, mut body) = live(None);
        frames.try_send(data("ab")).unwrap();
        assert!(body.frame().now_or_never().unwrap().is_some());
        let mut trailers = HeaderMap::new();
        trailers.insert("a", "b".parse().unwrap());
        frames.try_send(Frame::trailers(trailers)).unwrap();
        drop(frames);
        assert!(body.frame().now_or_never().is_none() && !body.is_end_stream());
        end.send(End::Clean).unwrap();
        assert!(body.frame().now_or_never().unwrap().unwrap().unwrap().is_trailers());
        assert!(body.frame().now_or_never().unwrap().is_none());
    }

    #[test]
    fn an_answer_that_was_cut_never_ends_cleanly() {
        let (frames, end, mut body) = live(Some(2));
        frames.try_send(data("ab")).unwrap();
        drop(frames);
        end.send(End::Cut).unwrap();
        assert!(body.frame().now_or_never().unwrap().unwrap().is_err());
    }
}

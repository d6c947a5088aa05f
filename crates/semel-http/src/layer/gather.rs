//! Bodies that are read whole, up to a cap.

use std::{
    future::{Future, poll_fn},
    mem::take,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::{
    BoxError,
    bodies::{Budget, FREE, Held},
};

/// The most that goes out at once. A server copies what it is given into a buffer of the connection: whole, a recorded
/// body was in memory once more for each client that asked for it and did not read.
const PIECE: usize = 64 << 10;

/// Where room is short, it is made in such steps: whole, an announced or doubled length would be refused that fits. Not
/// piece by piece: all is copied with each step.
const STEP: usize = 256 << 10;

/// A body in memory.
#[derive(Debug, Default)]
pub(super) struct Whole {
    pub(super) data: Bytes,
    /// Boxed: hardly any body has them, and each request and answer is moved around with room for them.
    pub(super) trailers: Option<Box<HeaderMap>>,
}

impl Whole {
    pub(super) fn next_frame(&mut self) -> Option<Frame<Bytes>> {
        if !self.data.is_empty() {
            return Some(Frame::data(self.data.split_to(self.data.len().min(PIECE))));
        }
        self.trailers.take().map(|trailers| Frame::trailers(*trailers))
    }

    pub(super) fn is_end(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }

    /// Not exact where trailers follow: with a length announced, a server has no place for them.
    pub(super) fn size(&self) -> SizeHint {
        let len = self.data.len() as u64;
        if self.trailers.is_none() {
            return SizeHint::with_exact(len);
        }
        let mut size = SizeHint::new();
        size.set_lower(len);
        size
    }
}

/// How reading a body ended.
pub(super) enum Gathered {
    /// Cleanly.
    Whole(Whole),
    /// It has more than the cap allows; this is what came so far.
    Longer(Bytes),
    /// All bodies together have more than they may; this is what came so far.
    NoRoom(Bytes),
    /// In the middle.
    Broken(BoxError),
}

pin_project! {
    /// Reads a body to its end, or until it is longer than its cap. One piece is kept as it came; more are copied into one,
    /// so that a body in many small pieces takes no more than its length.
    ///
    /// No async function: that would hold the body twice, and is a part of every guarded request.
    #[project = GatherProj]
    pub(super) struct Gather<'a, B> {
        #[pin]
        body: B,
        cap: usize,
        budget: &'a Arc<Budget>,
        held: Option<Box<Held>>,
        first: Bytes,
        all: Vec<u8>,
        trailers: Option<Box<HeaderMap>>,
    }
}

impl<'a, B: Body> Gather<'a, B> {
    pub(super) const fn new(body: B, cap: usize, budget: &'a Arc<Budget>) -> Self {
        Self { body, cap, budget, held: None, first: Bytes::new(), all: Vec::new(), trailers: None }
    }

    /// The size of what is still to come.
    pub(super) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    /// What is still to come.
    pub(super) fn rest(self: Pin<&mut Self>) -> Pin<&mut B> {
        self.project().body
    }

    /// What has been taken of the budget; nothing for a small body.
    pub(super) fn held(self: Pin<&mut Self>) -> Option<Box<Held>> {
        self.project().held.take()
    }
}

impl<B> Future for Gather<'_, B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Output = Gathered;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Gathered> {
        let GatherProj { mut body, cap, budget, held, first, all, trailers } = self.project();
        while let Some(frame) = ready!(body.as_mut().poll_frame(cx)) {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Poll::Ready(Gathered::Broken(error.into())),
            };
            match frame.into_data() {
                Ok(piece) if first.is_empty() => {
                    *first = piece;
                    if first.len() > FREE && !Held::cover(held, budget, first.len()) {
                        budget.refuse();
                        return Poll::Ready(Gathered::NoRoom(take(first)));
                    }
                }
                Ok(piece) => {
                    let begins = all.is_empty();
                    let has = if begins { first.len() } else { all.len() };
                    let mut fits = true;
                    if begins || all.capacity() - has < piece.len() {
                        let (least, ahead) = (has + piece.len(), ahead(has, body.size_hint().exact(), *cap));
                        let wanted = [least + ahead, least + ahead.min(STEP)]
                            .into_iter()
                            .find(|wanted| Held::cover(held, budget, *wanted));
                        fits = wanted.is_some();
                        all.reserve_exact(wanted.unwrap_or(least) - all.len());
                    }
                    if begins {
                        all.extend_from_slice(first);
                    }
                    all.extend_from_slice(&piece);
                    if !fits {
                        budget.refuse();
                        return Poll::Ready(Gathered::NoRoom(one(first, all)));
                    }
                }
                Err(frame) => *trailers = frame.into_trailers().ok().map(Box::new),
            }
            if first.len().max(all.len()) > *cap {
                return Poll::Ready(Gathered::Longer(one(first, all)));
            }
            if body.is_end_stream() {
                break;
            }
        }
        Poll::Ready(Gathered::Whole(Whole { data: one(first, all), trailers: trailers.take() }))
    }
}

/// How much room to make beyond what has come, so that all is copied a few times at most. Never much more than has come:
/// a length is announced in a few bytes.
fn ahead(held: usize, to_come: Option<u64>, cap: usize) -> usize {
    match to_come {
        Some(n) => held.max(64 << 10).min(cap).min(usize::try_from(n).unwrap_or(usize::MAX)),
        None => held.min(cap),
    }
}

fn one(first: &mut Bytes, all: &mut Vec<u8>) -> Bytes {
    if all.is_empty() { take(first) } else { Bytes::from(take(all)) }
}

/// The next frame. Its error is boxed before anybody awaits again: a body's own need not be `Send`.
pub(super) async fn next<B>(mut body: Pin<&mut B>) -> Option<Result<Frame<Bytes>, BoxError>>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    poll_fn(|cx| body.as_mut().poll_frame(cx).map_err(Into::into)).await
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt, StreamExt, stream};
    use http_body_util::StreamBody;

    use super::*;
    use crate::layer::Bodies;

    fn gathered(pieces: &[&'static str], cap: usize) -> Gathered {
        let frames: Vec<_> =
            pieces.iter().map(|p| Ok::<_, Infallible>(Frame::data(Bytes::from_static(p.as_bytes())))).collect();
        Gather::new(StreamBody::new(stream::iter(frames)), cap, &Bodies::default().requests).now_or_never().unwrap()
    }

    #[test]
    fn a_body_without_room_hands_back_what_came_and_one_that_is_given_up_gives_back_its_room() {
        let bodies = Bodies::default().requests(50_000);
        let frames = |n: usize| (0..n).map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from(vec![7; 10_000]))));
        let mut gather = Box::pin(Gather::new(
            StreamBody::new(stream::iter(frames(3)).chain(stream::pending())),
            100_000,
            &bodies.requests,
        ));
        assert!((&mut gather).now_or_never().is_none());
        let held = bodies.held().requests;
        assert!((30_000..=50_000).contains(&held), "{held}");
        let other = Gather::new(StreamBody::new(stream::iter(frames(10))), 100_000, &bodies.requests);
        let Some(Gathered::NoRoom(begun)) = other.now_or_never() else { panic!("no room was left") };
        assert!(begun.len() >= 20_000 && begun.len().is_multiple_of(10_000), "{}", begun.len());
        assert_eq!(bodies.held().requests, held);
        drop(gather);
        assert_eq!((bodies.held().requests, bodies.held().requests_refused), (0, 1));
    }

    #[test]
    fn pieces_become_one_up_to_the_cap() {
        for (pieces, expected) in [(&["ab"][..], "ab"), (&["a", "b", "", "c"], "abc"), (&[], ""), (&["", "a"], "a")] {
            let Gathered::Whole(whole) = gathered(pieces, 3) else { panic!("{pieces:?}") };
            assert_eq!(whole.data, expected);
        }
        for (pieces, so_far) in [(&["abcd"][..], "abcd"), (&["ab", "cd", "e"], "abcd")] {
            let Gathered::Longer(data) = gathered(pieces, 3) else { panic!("{pieces:?}") };
            assert_eq!(data, so_far);
        }
    }

    #[test]
    fn a_large_body_goes_out_in_pieces_of_the_same_memory() {
        let data = Bytes::from((0..200_000).map(|n| n as u8).collect::<Vec<_>>());
        let mut whole = Whole { data: data.clone(), trailers: None };
        let (mut at, mut left) = (0, Vec::new());
        while let Some(piece) = whole.next_frame().map(|f| f.into_data().unwrap()) {
            assert_eq!(piece.as_ptr(), data[at..].as_ptr());
            at += piece.len();
            left.push(whole.size().exact().unwrap());
        }
        assert_eq!((at, left), (data.len(), vec![134_464, 68_928, 3_392, 0]));
        assert!(whole.is_end());
    }

    /// Four bytes on each connection, with 8 MiB announced, took 8 MiB of room each, and megabytes of memory.
    #[test]
    fn an_announced_length_takes_no_room_before_it_comes() {
        const CAP: usize = 8 << 20;
        assert_eq!(ahead(4, Some(CAP as u64), CAP), 64 << 10);
        assert_eq!(ahead(1 << 20, Some(CAP as u64), CAP), 1 << 20);
        assert_eq!(ahead(1 << 20, Some(u64::MAX), CAP), 1 << 20);
        assert_eq!(ahead(1 << 20, Some(10), CAP), 10);
        assert_eq!(ahead(1 << 20, Some(0), CAP), 0);
        assert_eq!(ahead(1 << 20, None, CAP), 1 << 20);
        assert_eq!(ahead(4, Some(100), 16), 16);
    }

    #[test]
    fn a_body_of_an_announced_length_takes_that_much_and_is_copied_a_few_times() {
        let piece = Bytes::from(vec![7; 1000]);
        let (mut left, mut room, mut moves) = (3_000_000_usize, 0, 0);
        let mut all: Vec<u8> = Vec::new();
        while left > 0 {
            left -= piece.len();
            if all.capacity() - all.len() < piece.len() {
                all.reserve_exact(piece.len() + ahead(all.len(), Some(left as u64), 8 << 20));
            }
            all.extend_from_slice(&piece);
            moves += usize::from(all.capacity() != room);
            room = all.capacity();
        }
        assert_eq!((all.len(), room), (3_000_000, 3_000_000));
        assert!(moves < 10, "{moves}");
    }

    #[test]
    fn a_whole_body_gives_data_then_trailers_then_nothing() {
        let mut trailers = HeaderMap::new();
        trailers.insert("a", "b".parse().unwrap());
        let mut whole = Whole { data: Bytes::from_static(b"x"), trailers: Some(Box::new(trailers)) };
        assert!(!whole.is_end());
        assert_eq!((whole.size().lower(), whole.size().exact()), (1, None));
        assert!(whole.next_frame().unwrap().is_data());
        assert!(!whole.is_end());
        assert!(whole.next_frame().unwrap().is_trailers());
        assert!(whole.is_end() && whole.next_frame().is_none() && whole.size().exact() == Some(0));
    }
}

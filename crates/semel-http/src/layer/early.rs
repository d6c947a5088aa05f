//! How an answer goes ahead of its recording: from the work to whoever polls for the answer.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use parking_lot::Mutex;
use semel_core::engine::Engine;
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument;

use super::{
    ResponseBody,
    admit::Ticket,
    body::{End, Ending, Live},
    future::{Flow, Flowed},
};

/// The head of an answer that goes ahead, and its frames as they come.
pub(super) struct Early {
    pub(super) head: http::response::Parts,
    pub(super) frames: mpsc::Receiver<Frame<Bytes>>,
    pub(super) length: Option<u64>,
    pub(super) engine: Engine,
}

impl Early {
    /// The answer whose end is known already.
    pub(super) fn ended<R>(self, end: End) -> Response<ResponseBody<R>> {
        self.answer(Box::pin(std::future::ready(end)))
    }

    /// The answer whose end comes later. The way to it goes on in a task of its own: its reader polls for frames, and
    /// those come only if the way is polled.
    pub(super) fn goes_ahead<R, E>(self, rest: Flow<R, E>) -> Response<ResponseBody<R>>
    where
        R: Send + 'static,
        E: Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let way = async move {
            let end = match rest.await {
                Flowed::Ended(end) => end,
                Flowed::Answer(_) => End::Cut,
            };
            // Nobody there to hear it: the reader has left.
            _ = tell.send(end);
        };
        self.engine.env().tasks.spawn("semel answer", Box::pin(way.in_current_span()));
        self.answer(Box::pin(async move { told.await.unwrap_or(End::Cut) }))
    }

    fn answer<R>(self, ending: Ending) -> Response<ResponseBody<R>> {
        Response::from_parts(self.head, ResponseBody::live(Live::new(self.frames, self.length, ending)))
    }
}

/// The place for an answer that goes ahead: a part of the ticket, since hardly any does, and a channel would have to be
/// made for each request.
///
/// It wakes nobody. The engine polls the work where its own future is polled, so whoever polls the way of a request finds
/// here what was left during that poll.
#[derive(Default)]
pub(super) struct Ahead(Mutex<Place>);

#[derive(Default)]
enum Place {
    #[default]
    Empty,
    Left(Box<Early>),
    /// Nobody will come for it.
    Deserted,
}

impl Ahead {
    /// Leaves an answer; false where nobody will come for it.
    pub(super) fn leave(&self, early: Early) -> bool {
        let mut place = self.0.lock();
        if matches!(*place, Place::Deserted) {
            return false;
        }
        *place = Place::Left(Box::new(early));
        true
    }

    fn take(&self) -> Option<Box<Early>> {
        let mut place = self.0.lock();
        match std::mem::take(&mut *place) {
            Place::Left(early) => Some(early),
            as_it_was => {
                *place = as_it_was;
                None
            }
        }
    }
}

/// Whoever would take an answer that goes ahead. Dropped, nobody does.
pub(super) struct Listener(pub(super) Arc<Ticket>);

impl Listener {
    pub(super) fn take(&self) -> Option<Box<Early>> {
        self.0.ahead.take()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // What was left is dropped after the lock.
        let _left = std::mem::replace(&mut *self.0.ahead.0.lock(), Place::Deserted);
    }
}

//! Fingerprints, and those that take long beside the thread that serves.

use std::{num::NonZeroUsize, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method};
use semel_core::fingerprint::Fingerprint;
use tokio::sync::{Semaphore, oneshot};

use super::{admit::Ticket, work::Work};
use crate::{fingerprint::Question, view::RequestView};

/// So many at a time: one for each processor. The others wait for their turn.
pub(super) fn turns() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, NonZeroUsize::get)))
}

/// The fingerprint of what was asked, made here and now.
pub(super) fn fingerprint<S>(work: &Work<S>) -> Fingerprint {
    let (ticket, head) = (&work.ticket, &work.head);
    let target = ticket.rule.target.target(&RequestView::of_parts(head));
    of(ticket, &Question { method: &head.method, target: &target, headers: &head.headers, body: &work.body.data })
}

fn of(ticket: &Ticket, question: &Question<'_>) -> Fingerprint {
    ticket.rule.fingerprint.of(ticket.shared.engine.secret(), question)
}

/// A question whose fingerprint takes so long that others on the thread would have to wait for it, for another thread.
pub(super) struct Long {
    ticket: Arc<Ticket>,
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Long {
    pub(super) fn of<S>(work: &Work<S>) -> Option<Box<Self>> {
        let (ticket, head, body) = (&work.ticket, &work.head, &work.body.data);
        // What most bodies are is told by one comparison.
        (body.len() >= ticket.rule.fingerprint.long()).then(|| Self::boxed(ticket, head, body))
    }

    #[cold]
    fn boxed(ticket: &Arc<Ticket>, head: &http::request::Parts, body: &Bytes) -> Box<Self> {
        Box::new(Self {
            ticket: Arc::clone(ticket),
            method: head.method.clone(),
            target: ticket.rule.target.target(&RequestView::of_parts(head)).into_owned(),
            headers: head.headers.clone(),
            body: body.clone(),
        })
    }

    /// The fingerprint, in its turn; `None` where there is no other thread, or it ends before it is done.
    ///
    /// Who leaves before its turn has cost nothing. What has begun goes on to its end: it holds its body and its turn so
    /// long, so that no more of it runs than there are turns, whoever leaves.
    pub(super) async fn fingerprint(self: Box<Self>) -> Option<Fingerprint> {
        let shared = Arc::clone(&self.ticket.shared);
        let turn = Arc::clone(&shared.turns).acquire_owned().await.ok()?;
        let (tell, told) = oneshot::channel();
        let work = move || {
            let Self { ticket, method, target, headers, body } = *self;
            let question = Question { method: &method, target: &target, headers: &headers, body: &body };
            // Nobody listens where the caller has left.
            _ = tell.send(of(&ticket, &question));
            drop(turn);
        };
        shared.engine.env().tasks.compute(Box::new(work)).ok()?;
        told.await.ok()
    }
}

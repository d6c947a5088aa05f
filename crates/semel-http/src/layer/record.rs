//! The recording of an answer, and what it means for the claim.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use http_body::{Body, Frame};
use semel_core::{
    boxed,
    engine::{Engine, Ran, Verdict},
    env::Tick,
    record::{Format, Outcome, Withheld},
};
use tokio::sync::mpsc;

use super::{
    BoxError,
    admit::Ticket,
    answer::blame,
    bodies::Held,
    early::Early,
    gather::{Gather, Gathered, Whole, next},
    watch::Watched,
    work::{Done, Given},
};
use crate::{
    Mark,
    classify::{Answered, told},
    names::{IDEMPOTENCY_STATUS, SEMEL_OUTCOME, Status},
    problem::{ProblemKind, status_words},
    replay::encode_head,
    rule::Rule,
};

/// How many frames of such an answer may lie between recorder and reader.
const AHEAD: usize = 16;

/// What one pass over an answer's fields finds; each look-up saved is a hash saved.
#[derive(Default)]
struct Fields {
    /// The service says itself what its answer means.
    outcome: bool,
    /// It is made to be read as it comes.
    events: bool,
}

impl Fields {
    fn of(headers: &HeaderMap) -> Self {
        let mut fields = Self::default();
        for (name, value) in headers {
            if *name == header::CONTENT_TYPE {
                fields.events |= value.as_bytes().starts_with(b"text/event-stream");
            } else if *name == SEMEL_OUTCOME {
                fields.outcome = true;
            }
        }
        fields
    }
}

/// Records the answer of one run.
pub(super) struct Recorder {
    pub(super) ticket: Arc<Ticket>,
    /// Whether there is a grant behind the run.
    pub(super) is_guarded: bool,
    /// Until the end of the run.
    pub(super) watched: Option<Box<Watched>>,
}

impl Recorder {
    /// What it means that the service has failed.
    pub(super) fn failure<E>(&self, error: E) -> Ran<Done<E>> {
        Ran { value: Done::Failed(error), verdict: self.failed("the service failed") }
    }

    /// Not async itself: the answer would be kept twice, and this is a part of every run.
    pub(super) fn record<R, E>(self, answer: Response<R>) -> impl Future<Output = Ran<Done<E>>>
    where
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        let (mut head, body) = answer.into_parts();
        let fields = Fields::of(&head.headers);
        let mut word = head.extensions.get::<Mark>().copied();
        if fields.outcome {
            let said = told(head.headers.get_all(&SEMEL_OUTCOME));
            head.headers.remove(&SEMEL_OUTCOME);
            word = word.or(said).or_else(|| Some(self.unread(head.status)));
        }
        async move {
            let cap = self.rule().caps.response;
            let answers = &self.ticket.shared.bodies.answers;
            let mut body = pin!(Gather::new(body, cap, answers));
            // It goes ahead from its first byte: it is made to be read as it comes, or is known to be too long.
            let least = body.size_hint().lower();
            if fields.events || least > cap as u64 || answers.is_too_full_for(least) {
                return Box::pin(self.pass_on(head, body.rest(), Bytes::new(), word)).await;
            }
            match body.as_mut().await {
                Gathered::Whole(whole) => self.whole(head, whole, body.held(), word),
                Gathered::Longer(begun) | Gathered::NoRoom(begun) => {
                    Box::pin(self.pass_on(head, body.rest(), begun, word)).await
                }
                Gathered::Broken(error) => Ran { value: Done::Broken, verdict: self.broke_off(&error) },
            }
        }
    }

    fn rule(&self) -> &Rule {
        &self.ticket.rule
    }

    fn whole<E>(
        &self,
        head: http::response::Parts,
        mut body: Whole,
        held: Option<Box<Held>>,
        word: Option<Mark>,
    ) -> Ran<Done<E>> {
        let trailers = body.trailers.as_deref();
        let mark = self.mark(head.status, &head.headers, trailers, word);
        let outcome = || {
            let head = encode_head(head.status, &head.headers, trailers, &self.rule().replay);
            Outcome::new(Format::HTTP, head, body.data.clone())
        };
        let verdict = match mark {
            Mark::Keep => Verdict::Keep(outcome()),
            Mark::Release => self.release(true, Some(outcome())),
            Mark::NothingSent => self.release(false, Some(outcome())),
            Mark::Unknown | Mark::Lost => Verdict::Unknown { last: Some(status_words(head.status)) },
        };
        // What is recorded is the store's to count.
        if let Some(held) = held {
            body.data = held.with(body.data);
        }
        let instead = head.extensions.get::<ProblemKind>().copied();
        let given = boxed(|| Given { head, body, mark, instead });
        Ran { value: Done::Answer(given), verdict }
    }

    fn mark(&self, status: StatusCode, headers: &HeaderMap, trailers: Option<&HeaderMap>, word: Option<Mark>) -> Mark {
        match word.unwrap_or_else(|| self.rule().classify.verdict(&Answered { status, headers, trailers })) {
            // Whoever made this answer has none of the service's: the status is the proxy's own and no row is about it.
            Mark::Lost => self.rule().classify.failed(),
            mark => mark,
        }
    }

    /// The service has said what its answer means, and nobody understands it: the table must not guess. Told once in a
    /// while, since every answer may say so.
    #[cold]
    fn unread(&self, status: StatusCode) -> Mark {
        if let Some(withheld) = self.rule().unread.next(self.ticket.shared.engine.env().clock.now()) {
            tracing::warn!(
                rule = self.rule().name(),
                status = status.as_u16(),
                identity = %self.ticket.identity.prefix(),
                withheld,
                "Semel-Outcome of the service is not one of keep, release and unknown: the outcome counts as unknown"
            );
        }
        Mark::Unknown
    }

    fn broke_off(&self, error: &BoxError) -> Verdict {
        tracing::debug!(%error, rule = self.rule().name(), "an answer broke off");
        self.failed("the answer broke off")
    }

    /// Nothing took effect: the key is free.
    fn release(&self, counts: bool, answer: Option<Outcome>) -> Verdict {
        if let Some(watched) = &self.watched {
            watched.leaves_nothing();
        }
        Verdict::Release { counts, answer }
    }

    /// What it means that there is no whole answer.
    fn failed(&self, why: &str) -> Verdict {
        match self.rule().classify.failed() {
            Mark::Release => self.release(true, None),
            Mark::NothingSent => self.release(false, None),
            Mark::Unknown | Mark::Lost | Mark::Keep => Verdict::Unknown { last: Some(why.into()) },
        }
    }

    /// Passes an answer on while it comes. It is done only if it ends cleanly, and is recorded without its body.
    ///
    /// Rare and large: boxed by its callers, so that other answers do not carry its room along.
    async fn pass_on<R, E>(
        &self,
        mut head: http::response::Parts,
        mut body: Pin<&mut R>,
        begun: Bytes,
        word: Option<Mark>,
    ) -> Ran<Done<E>>
    where
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        let mut len = begun.len() as u64;
        let length = body.size_hint().exact().map(|rest| len + rest);
        // What is recorded is the service's answer, before ours is added.
        let (status, headers) = (head.status, head.headers.clone());
        let foreseen = match self.mark(status, &headers, None, word) {
            Mark::Unknown | Mark::Lost => Status::Unknown,
            Mark::Keep | Mark::Release | Mark::NothingSent if self.is_guarded => Status::Fresh,
            Mark::Keep | Mark::Release | Mark::NothingSent => Status::Bypassed,
        };
        head.headers.insert(&IDEMPOTENCY_STATUS, foreseen.value());
        blame(&mut head);
        let (frames, reader) = mpsc::channel(AHEAD);
        let engine = &self.ticket.shared.engine;
        let is_wanted = self.ticket.ahead.leave(Early { head, frames: reader, length, engine: engine.clone() });
        let mut reader = Reader {
            frames: is_wanted.then_some(frames),
            engine,
            stall: self.ticket.shared.bodies.stall,
            until: engine.env().clock.now() + self.rule().policy.max_hold() / 2,
        };
        if !begun.is_empty() {
            reader.hand(Frame::data(begun)).await;
        }
        let mut trailers = None;
        while let Some(frame) = next(body.as_mut()).await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => {
                    return Ran { value: Done::Streamed { complete: false }, verdict: self.broke_off(&error) };
                }
            };
            if let Some(data) = frame.data_ref() {
                len += data.len() as u64;
            } else if let Some(fields) = frame.trailers_ref() {
                trailers = Some(fields.clone());
            }
            reader.hand(frame).await;
        }
        let verdict = match self.mark(status, &headers, trailers.as_ref(), word) {
            Mark::Keep => {
                let head = encode_head(status, &headers, trailers.as_ref(), &self.rule().replay);
                Verdict::Keep(Outcome::without_body(Format::HTTP, head, Withheld::TooLarge { len }))
            }
            Mark::Release => self.release(true, None),
            Mark::NothingSent => self.release(false, None),
            Mark::Unknown | Mark::Lost => Verdict::Unknown { last: Some(status_words(status)) },
        };
        Ran { value: Done::Streamed { complete: reader.frames.is_some() }, verdict }
    }
}

/// Who reads an answer that goes ahead; nobody any more once it has left or stalled.
struct Reader<'a> {
    frames: Option<mpsc::Sender<Frame<Bytes>>>,
    engine: &'a Engine,
    /// How long it may take nothing: nobody who reads slowly holds a claim.
    stall: Duration,
    /// It is waited for until then: work that runs into `max_hold` is stopped, and its outcome would be unknown for no other
    /// reason than a slow reader.
    until: Tick,
}

impl Reader<'_> {
    async fn hand(&mut self, frame: Frame<Bytes>) {
        let Some(frames) = &self.frames else { return };
        let took = match frames.try_send(frame) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(frame)) => {
                let clock = &self.engine.env().clock;
                let stalled = clock.sleep_until(self.until.min(clock.now() + self.stall));
                tokio::select! {
                    biased;
                    sent = frames.send(frame) => sent.is_ok(),
                    () = stalled => false,
                }
            }
        };
        if !took {
            self.frames = None;
        }
    }
}

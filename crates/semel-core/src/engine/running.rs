//! Work under a grant: owned or inline, its panics, its end at `max_hold`, and callers that leave.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::{
    Answer, Begin, Broken, Call, Grant, Inner, OnCancel, Ran, Run, Verdict,
    claiming::{Entered, Met, enter, late},
    grant::Dropped,
    lease::Lease,
    waiting,
};
use crate::{
    env::BoxFuture,
    judge::Recorded,
    observe::{Event, What},
    refusal::Refusal,
    store::Did,
};

type Entering = Pin<Box<dyn Future<Output = (Call, Entered)> + Send>>;

/// One poll in place: a store that answers at once needs no task.
async fn poll_once(entering: &mut Entering) -> Poll<(Call, Entered)> {
    std::future::poll_fn(|cx| Poll::Ready(entering.as_mut().poll(cx))).await
}

/// The task within the caller's span, where there is one. The box is wrapped and not the task: a task of some
/// kilobytes would be moved twice.
fn in_span(task: BoxFuture) -> BoxFuture {
    let span = tracing::Span::current();
    if span.is_none() { task } else { Box::pin(task.instrument(span)) }
}

/// What stands in for an answer when the runtime shut down under the question. Nothing was run.
const fn shut_down() -> Refusal {
    Refusal::StoreUnavailable { did: Did::Unknown, retry_after: None }
}

/// Claims; goes on in a task of the engine where the store takes its time, so that a caller who leaves strands nothing.
async fn enter_safely(inner: &Arc<Inner>, call: Call) -> Result<(Call, Entered), Refusal> {
    let mut entering: Entering = Box::pin(enter(Arc::clone(inner), call));
    if let Poll::Ready(entered) = poll_once(&mut entering).await {
        return Ok(entered);
    }
    let (tell, told) = oneshot::channel();
    let activity = inner.bounds.activity();
    // Nobody there to take it: the grant comes back with the error, and is given back by being dropped.
    let task = async move {
        drop(tell.send(entering.await));
        drop(activity);
    };
    inner.env.tasks.spawn("semel claim", in_span(Box::pin(task)));
    told.await.map_err(|_| shut_down())
}

pub(super) async fn begin(inner: &Arc<Inner>, call: Call) -> Begin {
    let (call, entered) = match enter_safely(inner, call).await {
        Ok(entered) => entered,
        Err(refusal) => return Begin::Refused(refusal),
    };
    match entered {
        Entered::Granted(mut grant) => {
            grant.when_dropped(Dropped::Unknown);
            Begin::Granted(grant)
        }
        other => match duplicate(inner, &call, other).await {
            Ok((recorded, waited)) => Begin::Replay { recorded, waited },
            Err(refusal) => Begin::Refused(refusal),
        },
    }
}

/// The answer of one who did not get the grant, waited for where the policy says so; told to observers.
async fn duplicate(inner: &Arc<Inner>, call: &Call, entered: Entered) -> Result<(Recorded, bool), Refusal> {
    let answer = match entered {
        Entered::Recorded(recorded) => Ok((recorded, false)),
        Entered::Refused(refusal) => Err(refusal),
        // Boxed, so that the future of one who does not wait is small.
        Entered::Met(met) => Box::pin(wait(inner, call, *met)).await,
        Entered::Granted(_) => unreachable!("a grant is no duplicate"),
    };
    let what = match &answer {
        Ok((_, waited)) => What::Replayed { waited: *waited },
        Err(refusal) => What::Refused(refusal),
    };
    inner.emit(&Event::new(&call.identity, call.policy.name(), what));
    answer
}

async fn wait(inner: &Arc<Inner>, call: &Call, met: Met) -> Result<(Recorded, bool), Refusal> {
    waiting::wait(inner, call, met).await.map(|recorded| (recorded, true))
}

/// The answer of a run that did not get the grant.
async fn answered<T>(inner: &Arc<Inner>, call: &Call, entered: Entered) -> Answer<T> {
    match duplicate(inner, call, entered).await {
        Ok((recorded, waited)) => Answer::Replayed { recorded, waited },
        Err(refusal) => Answer::Refused(refusal),
    }
}

/// How far an owned run got.
enum Progress<T> {
    Duplicate(Box<(Call, Entered)>),
    Ended(Answer<T>),
}

pub(super) async fn owned<T, W, F>(inner: &Arc<Inner>, call: Call, work: W) -> Answer<T>
where
    W: FnOnce(Run) -> F + Send + 'static,
    F: Future<Output = Ran<T>> + Send + 'static,
    T: Send + 'static,
{
    let mut entering: Entering = Box::pin(enter(Arc::clone(inner), call));
    let progress = match poll_once(&mut entering).await {
        Poll::Ready((_, Entered::Granted(grant))) => {
            let (tell, told) = oneshot::channel();
            let task = async move { drop(tell.send(Progress::Ended(execute(grant, work).await))) };
            inner.env.tasks.spawn("semel work", in_span(Box::pin(task)));
            told.await
        }
        Poll::Ready((call, entered)) => {
            drop(work);
            return answered(inner, &call, entered).await;
        }
        Poll::Pending => {
            let (tell, told) = oneshot::channel();
            // A drain waits for what may turn out to be granted.
            let activity = inner.bounds.activity();
            let task = async move {
                let entered = entering.await;
                // What was granted counts by itself.
                drop(activity);
                let progress = match entered {
                    (_, Entered::Granted(grant)) => Progress::Ended(execute(grant, work).await),
                    (call, duplicate) => {
                        drop(work);
                        Progress::Duplicate(Box::new((call, duplicate)))
                    }
                };
                drop(tell.send(progress));
            };
            inner.env.tasks.spawn("semel work", in_span(Box::pin(task)));
            told.await
        }
    };
    match progress {
        Ok(Progress::Ended(answer)) => answer,
        Ok(Progress::Duplicate(met)) => answered(inner, &met.0, met.1).await,
        Err(_) => Answer::Broken(Broken::Aborted),
    }
}

/// Runs owned work to its end and settles.
async fn execute<T, W, F>(mut grant: Grant, work: W) -> Answer<T>
where
    W: FnOnce(Run) -> F,
    F: Future<Output = Ran<T>>,
{
    // Between the grant and this line the task may have waited for its turn: the deadline is looked at again.
    if !grant.still_good() {
        drop(work);
        Box::pin(grant.give_back()).await;
        return Answer::Refused(late());
    }
    let lease = Arc::clone(grant.lease());
    grant.when_dropped(Dropped::Unknown);
    let ended = tokio::select! {
        biased;
        ran = unwinding(grant.run(), work) => ran.map_err(Ended::Panicked),
        () = lease.overheld.notified() => Err(Ended::Overheld),
    };
    let (last, broken) = match ended {
        Ok(Ran { value, verdict }) => return Answer::Executed { value, kept: grant.settle(verdict).await },
        Err(Ended::Overheld) => (overheld(&lease), Broken::Overheld),
        Err(Ended::Panicked(panic)) => {
            let event = Event::new(&lease.identity, lease.policy.name(), What::Panicked(words(&*panic)));
            grant.emit(&event.attempt(lease.attempt));
            // The words of a panic can hold what must not be stored; they are in the event.
            ("panicked".to_owned(), Broken::Panicked)
        }
    };
    let _unknown = grant.settle(Verdict::Unknown { last: Some(last.into()) }).await;
    Answer::Broken(broken)
}

enum Ended {
    Overheld,
    Panicked(Box<dyn Any + Send>),
}

/// The work's end, or its panic. No async function: that would keep the work twice, and a task is moved when it begins.
fn unwinding<F>(run: Run, work: impl FnOnce(Run) -> F) -> Unwinding<F> {
    match catch_unwind(AssertUnwindSafe(|| work(run))) {
        Ok(work) => Unwinding::Begun { work },
        Err(panic) => Unwinding::Panicked { panic: Some(panic) },
    }
}

pin_project! {
    #[project = UnwindingProj]
    enum Unwinding<F> {
        Begun { #[pin] work: F },
        Panicked { panic: Option<Box<dyn Any + Send>> },
    }
}

impl<F: Future> Future for Unwinding<F> {
    type Output = Result<F::Output, Box<dyn Any + Send>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // The work is not touched again after a panic: nothing that it left half done can be seen.
        let polled = match self.project() {
            UnwindingProj::Begun { work } => catch_unwind(AssertUnwindSafe(|| work.poll(cx))),
            UnwindingProj::Panicked { panic } => panic.take().map_or(Ok(Poll::Pending), Err),
        };
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no words)")
}

pub(super) async fn inline<T, F>(
    inner: &Arc<Inner>,
    call: Call,
    on_cancel: OnCancel,
    work: impl FnOnce(Run) -> F,
) -> Answer<T>
where
    F: Future<Output = Ran<T>>,
{
    let mut grant = match enter_safely(inner, call).await {
        Err(refusal) => return Answer::Refused(refusal),
        Ok((_, Entered::Granted(grant))) => grant,
        Ok((call, other)) => {
            drop(work);
            return answered(inner, &call, other).await;
        }
    };
    let lease = Arc::clone(grant.lease());
    if !grant.still_good() {
        Box::pin(grant.give_back()).await;
        return Answer::Refused(late());
    }
    // Dropped from here on, the grant says what became of work that had begun; before, it is given back. A panic
    // unwinds through this future and leaves an unknown, or what `on_cancel` says: also one of the closure that makes
    // the work, which may have done some of it.
    grant.when_dropped(match on_cancel {
        OnCancel::Unknown => Dropped::Unknown,
        OnCancel::Release => Dropped::Released,
    });
    let work = work(grant.run());
    let ran = tokio::select! {
        biased;
        ran = work => Some(ran),
        () = lease.overheld.notified() => None,
    };
    match ran {
        Some(Ran { value, verdict }) => Answer::Executed { value, kept: grant.settle(verdict).await },
        None => {
            let verdict = match on_cancel {
                OnCancel::Unknown => Verdict::Unknown { last: Some(overheld(&lease).into()) },
                OnCancel::Release => Verdict::Release { counts: true, answer: None },
            };
            let _settled = grant.settle(verdict).await;
            Answer::Broken(Broken::Overheld)
        }
    }
}

fn overheld(lease: &Lease) -> String {
    format!("stopped at max_hold ({:?})", lease.policy.max_hold())
}

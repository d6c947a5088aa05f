//! Work under a grant: owned or inline, its panics, its end at `max_hold`.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;

use super::{
    Answer, Begin, Broken, Call, Grant, Inner, Kept, OnCancel, OpenReason, Ran, Run, Verdict,
    claiming::{Turned, Why, enter},
    grant::Dropped,
    lease::Lease,
    leaving::GoesOn,
    waiting,
};
use crate::{
    judge::Recorded,
    observe::{Event, What},
    pinned,
    refusal::Refusal,
};

/// Claims; a caller who leaves strands nothing, since the claim goes on, and a grant that nobody takes is given back.
fn enter_safely(inner: &Arc<Inner>, call: Call) -> GoesOn<&Inner, Result<Grant, Turned>> {
    let entering = enter(Arc::clone(inner), call, std::future::ready);
    GoesOn::once_polled(&**inner, "semel claim", Box::pin(entering))
}

pub(super) async fn begin(inner: &Arc<Inner>, call: Call) -> Begin {
    match enter_safely(inner, call).await {
        Ok(mut grant) => {
            grant.when_dropped(Dropped::Unknown);
            match grant.unguarded() {
                None => Begin::Granted(grant),
                Some(why) => Begin::Unguarded { grant, why },
            }
        }
        Err(turned) => match duplicate(inner, turned).await {
            Ok((recorded, waited)) => Begin::Replay { recorded, waited },
            Err(refusal) => Begin::Refused(refusal),
        },
    }
}

/// The answer of one who did not get the grant, waited for where the policy says so; told to observers.
#[expect(clippy::manual_async_fn, reason = "an async function would keep twice what it is made from")]
fn duplicate(inner: &Arc<Inner>, turned: Turned) -> impl Future<Output = Result<(Recorded, bool), Refusal>> + Send {
    async move {
        let answer = match turned.why {
            Why::Recorded(recorded) => Ok((recorded, false)),
            Why::Refused(refusal) => Err(refusal),
            // Boxed, so that the future of one who does not wait is small.
            Why::Met(met) => Box::pin(waiting::wait(inner, *met)).await.map(|recorded| (recorded, true)),
        };
        let (what, left) = match &answer {
            Ok((recorded, waited)) => (What::Replayed { waited: *waited }, Some(recorded.left)),
            Err(refusal) => (What::Refused(refusal), refusal.left()),
        };
        let mut event = Event::new(&turned.identity, turned.policy.name(), what);
        event.took = left.map(|left| turned.policy.ttl().saturating_sub(left));
        inner.emit(&event);
        answer
    }
}

/// The answer of a run that did not get the grant.
fn answered<T>(duplicate: Result<(Recorded, bool), Refusal>) -> Answer<T> {
    match duplicate {
        Ok((recorded, waited)) => Answer::Replayed { recorded, waited },
        Err(refusal) => Answer::Refused(refusal),
    }
}

/// Claim, work and settlement are one future, which goes on when its caller leaves. Waiting for another's attempt is
/// not in it: that ends with the caller.
///
/// Not async itself: call and work are moved once, to where they stay.
pub(super) fn owned<'a, T, W, F>(
    inner: &'a Arc<Inner>,
    call: Call,
    work: W,
) -> impl Future<Output = Answer<T>> + Send + use<'a, T, W, F>
where
    W: FnOnce(Run) -> F + Send + 'static,
    F: Future<Output = Ran<T>> + Send + 'static,
    T: Send + 'static,
{
    let running = pinned(|| enter(Arc::clone(inner), call, |grant| execute(grant, work)));
    let going = GoesOn::once_polled(&**inner, "semel work", running);
    async move {
        match going.await {
            Ok(answer) => answer,
            Err(turned) => answered(duplicate(inner, turned).await),
        }
    }
}

/// Runs owned work to its end and settles.
async fn execute<T, W, F>(mut grant: Grant, work: W) -> Answer<T>
where
    W: FnOnce(Run) -> F,
    F: Future<Output = Ran<T>>,
{
    grant.when_dropped(Dropped::Unknown);
    let ended = {
        let mut work = pin!(unwinding(grant.run(), work));
        let lease = grant.lease();
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(ran) => Poll::Ready(ran.map_err(Ended::Panicked)),
            Poll::Pending => lease.poll_overheld(cx).map(|()| Err(Ended::Overheld)),
        })
        .await
    };
    let (last, broken) = match ended {
        Ok(Ran { value, verdict }) => return executed(grant.unguarded(), value, grant.settle(verdict).await),
        Err(Ended::Overheld) => (overheld(grant.lease()), Broken::Overheld),
        Err(Ended::Panicked(panic)) => {
            let lease = grant.lease();
            let event = Event::new(lease.identity(), lease.policy.name(), What::Panicked(words(&*panic)));
            grant.emit(&event.attempt(lease.attempt));
            // The words of a panic can hold what must not be stored; they are in the event.
            ("panicked".to_owned(), Broken::Panicked)
        }
    };
    let _unknown = grant.settle(Verdict::Unknown { last: Some(last.into()) }).await;
    Answer::Broken(broken)
}

fn executed<T>(unguarded: Option<OpenReason>, value: T, kept: Kept) -> Answer<T> {
    match unguarded {
        None => Answer::Executed { value, kept },
        Some(why) => Answer::Unguarded { value, why, kept },
    }
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
        Ok(grant) => grant,
        Err(turned) => {
            drop(work);
            return answered(duplicate(inner, turned).await);
        }
    };
    let lease = Arc::clone(grant.lease());
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
        () = poll_fn(|cx| lease.poll_overheld(cx)) => None,
    };
    match ran {
        Some(Ran { value, verdict }) => executed(lease.unguarded, value, grant.settle(verdict).await),
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

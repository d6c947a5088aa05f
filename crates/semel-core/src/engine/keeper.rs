//! One keeper per process: renews what is held, in batches, and tells work whose time is over.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use hashbrown::HashTable;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    Inner,
    breaker::{Needed, Pass},
    claiming::Reclaimed,
    lease::{Borrowed, Lease},
};
use crate::{
    env::Tick,
    ids::{Owner, first_eight},
    lanes::Lanes,
    observe::{Event, StoreCall, What},
    record::{Record, StateCode},
    store::{Claim, Renewal, Renewed},
};

/// How many leases one call renews at most.
const BATCH: usize = 512;

pub(super) struct Keeper {
    held: Lanes<Mutex<Held>>,
    /// When the keeper means to wake, in nanoseconds since boot; `u64::MAX` while it sleeps until it is woken, and while
    /// it makes up its mind.
    next: AtomicU64,
    wake: Notify,
    is_running: AtomicBool,
    is_closed: AtomicBool,
}

/// By owner; owners are random, so their leading bytes are their hash.
type Held = HashTable<Arc<Lease>>;

impl Default for Keeper {
    fn default() -> Self {
        Self {
            held: Lanes::default(),
            next: AtomicU64::new(u64::MAX),
            wake: Notify::new(),
            is_running: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        }
    }
}

impl Keeper {
    /// Keeps `lease` alive from now on.
    pub(super) fn keep(inner: &Arc<Inner>, lease: &Arc<Lease>) {
        let keeper = &inner.keeper;
        let look = lease.next_look();
        keeper.held[lease.lane].lock().insert_unique(hash(lease.owner()), Arc::clone(lease), |l| hash(l.owner()));
        // After that: either a keeper that makes its plan finds the lease, or it is seen here to be making one.
        let is_early = look.as_nanos() < keeper.next.load(Ordering::Acquire);
        if !keeper.is_running.load(Ordering::Acquire) && !keeper.is_running.swap(true, Ordering::AcqRel) {
            start(inner);
        } else if is_early {
            keeper.wake.notify_one();
        }
    }

    /// Keeps `lease` no longer: its claim is about to be settled.
    pub(super) fn drop_lease(&self, lease: &Lease) {
        let mut held = self.held[lease.lane].lock();
        if let Ok(entry) = held.find_entry(hash(lease.owner()), |l| std::ptr::eq(Arc::as_ptr(l), lease)) {
            entry.remove();
        }
    }

    /// Ends the keeper's task.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Decides when to wake next.
    fn plan(&self) -> Option<Tick> {
        // Before any lane is looked at: a lease that comes into one that was looked at already wakes the keeper.
        self.next.store(u64::MAX, Ordering::Release);
        let first = |held: &Mutex<Held>| {
            let mut held = held.lock();
            // Past max_hold the store moves no lease any more; a caller that goes on holds nothing.
            held.retain(|l| !(l.is_overheld.load(Ordering::Acquire) && l.is_lost.load(Ordering::Acquire)));
            held.iter().map(|l| l.next_look()).min()
        };
        let next = self.held.iter().filter_map(first).min()?;
        self.next.store(next.as_nanos(), Ordering::Release);
        Some(next)
    }
}

fn hash(owner: Owner) -> u64 {
    u64::from_be_bytes(first_eight(owner.as_bytes()))
}

fn start(inner: &Arc<Inner>) {
    let (keeper, weak, env) = (Arc::clone(&inner.keeper), inner.downgrade(), inner.env.clone());
    let alive = Alive(Arc::clone(&keeper));
    let task = async move {
        let _alive = alive;
        loop {
            match keeper.plan() {
                None => keeper.wake.notified().await,
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = keeper.wake.notified() => {}
                        () = env.clock.sleep_until(at) => {}
                    }
                }
            }
            if keeper.is_closed.load(Ordering::Acquire) {
                return;
            }
            let Some(inner) = Inner::upgrade(&weak) else { return };
            look(&inner);
        }
    };
    inner.env.tasks.spawn("semel keeper", Box::pin(task));
}

/// Says that the keeper's task is gone, so that the next claim starts another: it dies with the runtime it began in.
struct Alive(Arc<Keeper>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
    }
}

/// One round: tells those whose time is over, renews those that are due. Renewals go on in a task of their own, so that
/// a slow store delays nobody's deadline.
fn look(inner: &Arc<Inner>) {
    let now = inner.now();
    let (mut told, mut due) = (Vec::new(), Vec::new());
    let mut see = |lease: &Arc<Lease>| {
        if lease.deadline() <= now && !lease.is_lost.load(Ordering::Acquire) {
            match lease.unguarded {
                None => told.push((Arc::clone(lease), What::LeaseOverdue)),
                // There was no lease; the end of `max_hold` is told below.
                Some(_) => _ = lease.tell_lost(),
            }
        }
        if lease.hold_until <= now && !lease.is_overheld.swap(true, Ordering::AcqRel) {
            told.push((Arc::clone(lease), What::Overheld));
        }
        let term = lease.policy.lease();
        // What is due soon comes along: few large batches instead of many small ones.
        if lease.renew_at() <= now + term / 16 {
            lease.set_renew_at(now + inner.jittered(term / 3));
            // Whoever settles it has taken the claim out; then there is nothing to renew.
            due.extend(lease.borrow().map(|borrowed| (inner.store.part(lease.identity()), borrowed)));
        }
    };
    for held in inner.keeper.held.iter() {
        held.lock().iter().for_each(&mut see);
    }
    for (lease, what) in told {
        match what {
            What::Overheld => lease.tell_overheld(),
            _ => _ = lease.tell_lost(),
        }
        tell(inner, &lease, what);
    }
    // A part of the store that is away is waited for by its own leases only.
    due.sort_unstable_by_key(|(part, _)| *part);
    while let Some(&(last, _)) = due.last() {
        let first = due.partition_point(|(part, _)| *part < last).max(due.len().saturating_sub(BATCH));
        let batch = due.split_off(first).into_iter().map(|(_, borrowed)| borrowed).collect();
        let inner = Arc::clone(inner);
        let tasks = Arc::clone(&inner.env.tasks);
        tasks.spawn("semel renew", Box::pin(async move { renew(&inner, last, batch).await }));
    }
}

async fn renew(inner: &Arc<Inner>, part: u64, due: Vec<Borrowed>) {
    let sent = inner.now();
    let answers = {
        let renewal = |b| Renewal { claim: Borrowed::claim(b), lease: term(b), keep: b.lease().policy.unknown_ttl() };
        let batch: Vec<Renewal<'_>> = due.iter().map(renewal).collect();
        let pass = inner.pass(Needed::ByWork).unwrap_or(Pass::Usual);
        let answers = inner.within(StoreCall::Renew, due[0].lease().identity(), inner.store.renew(&batch)).await;
        // What one of several parts does not answer says nothing about the others, which claims need.
        if part == 0 || answers.is_ok() {
            inner.ended(pass, &answers);
        }
        answers
    };
    match answers {
        Ok(answers) => {
            for (borrowed, answer) in due.into_iter().zip(answers) {
                match answer {
                    Ok(answer) => renewed(inner, borrowed, sent, answer),
                    Err(_) => again_soon(inner, borrowed.lease()),
                }
            }
        }
        Err(_) => due.iter().for_each(|borrowed| again_soon(inner, borrowed.lease())),
    }
}

fn term(borrowed: &Borrowed) -> Duration {
    borrowed.lease().policy.lease()
}

/// A renewal was not answered: the next try comes before the usual time.
fn again_soon(inner: &Inner, lease: &Lease) {
    lease.set_renew_at(inner.now() + inner.jittered(lease.policy.lease() / 12));
    inner.keeper.wake.notify_one();
}

fn renewed(inner: &Arc<Inner>, borrowed: Borrowed, sent: Tick, answer: Renewed) {
    let lease = Arc::clone(borrowed.lease());
    match answer {
        Renewed::Left(left) => lease.renewed(inner, sent, left),
        Renewed::Missing => {
            tell(inner, &lease, What::RecordMissing);
            reclaim(inner, borrowed);
        }
        Renewed::Lost(record) if is_own_later(&record, borrowed.claim()) => reclaim(inner, borrowed),
        Renewed::Lost(record) => {
            // Our own, but no longer in flight: settled by the service itself, or by a person. Not lost to anybody.
            lose(inner, &lease, is_taken(&record, borrowed.claim()));
        }
    }
}

fn is_taken(record: &Record, claim: &Claim) -> bool {
    record.owner != claim.owner() || record.fence > Some(claim.fence())
}

/// The same owner's claim under a later fence: the store had lost the first, the claim was made again, and the reply to
/// that was lost.
pub(super) fn is_own_later(record: &Record, claim: &Claim) -> bool {
    record.owner == claim.owner() && record.state == StateCode::InFlight && record.fence > Some(claim.fence())
}

fn lose(inner: &Inner, lease: &Lease, is_taken: bool) {
    lease.stop_renewing();
    if is_taken && lease.tell_lost() {
        tell(inner, lease, What::LeaseLost);
    }
}

/// The store lost the claim: claims again as the same owner. The work keeps the fence it was given; the settlement goes
/// by the new one, and waits until it is known.
fn reclaim(inner: &Arc<Inner>, mut borrowed: Borrowed) {
    let (owned, activity) = (Arc::clone(inner), inner.bounds.activity());
    let task = async move {
        let (inner, _activity) = (owned, activity);
        let lease = Arc::clone(borrowed.lease());
        match inner.claim_again(&lease).await {
            Reclaimed::Held { claim, sent, left } => {
                inner.emit(&Event::new(lease.identity(), lease.policy.name(), What::StoreForgot(claim.fence())));
                lease.renewed(&inner, sent, left);
                inner.keeper.wake.notify_one();
                borrowed.replace(claim);
            }
            Reclaimed::Taken => lose(&inner, &lease, true),
            // Lost is only what the store calls another's.
            Reclaimed::NoAnswer => again_soon(&inner, &lease),
        }
    };
    inner.env.tasks.spawn("semel reclaim", Box::pin(task));
}

fn tell(inner: &Inner, lease: &Lease, what: What<'_>) {
    inner.emit(&Event::new(lease.identity(), lease.policy.name(), what).attempt(lease.attempt));
}

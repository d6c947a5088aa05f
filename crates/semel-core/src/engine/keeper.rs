//! One keeper per process: renews what is held, in batches, and tells work whose time is over.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Inner, lease::Lease};
use crate::{
    env::Tick,
    ids::Owner,
    observe::{Event, StoreCall, What},
    record::Record,
    store::{Claim, Renewal, Renewed},
};

#[derive(Default)]
pub(super) struct Keeper {
    held: Mutex<Held>,
    wake: Notify,
    is_running: AtomicBool,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct Held {
    leases: HashMap<Owner, Arc<Lease>>,
    /// When the keeper means to wake; `None` while it sleeps until it is woken.
    next: Option<Tick>,
}

impl Keeper {
    /// Keeps `lease` alive from now on.
    pub(super) fn keep(inner: &Arc<Inner>, lease: &Arc<Lease>) {
        let keeper = &inner.keeper;
        let look = lease.next_look();
        let too_late = {
            let mut held = keeper.held.lock();
            held.leases.insert(lease.owner, Arc::clone(lease));
            held.next.is_none_or(|next| look < next)
        };
        if !keeper.is_running.swap(true, Ordering::AcqRel) {
            start(inner);
        } else if too_late {
            keeper.wake.notify_one();
        }
    }

    /// Keeps `lease` no longer: its claim is about to be settled.
    pub(super) fn drop_lease(&self, lease: &Lease) {
        self.held.lock().leases.remove(&lease.owner);
    }

    /// Ends the keeper's task.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Decides when to wake next, under the lock that newcomers look under.
    fn plan(&self) -> Option<Tick> {
        let mut held = self.held.lock();
        held.next = held.leases.values().map(|l| l.next_look()).min();
        held.next
    }
}

fn start(inner: &Arc<Inner>) {
    let (keeper, weak, env) = (Arc::clone(&inner.keeper), Arc::downgrade(inner), inner.env.clone());
    let alive = Alive(Arc::clone(&keeper));
    let task = async move {
        let _alive = alive;
        loop {
            match keeper.plan() {
                None => keeper.wake.notified().await,
                Some(at) => {
                    tokio::select! {
                        () = keeper.wake.notified() => {}
                        () = env.clock.sleep_until(at) => {}
                    }
                }
            }
            if keeper.is_closed.load(Ordering::Acquire) {
                return;
            }
            let Some(inner) = Weak::upgrade(&weak) else { return };
            look(&inner).await;
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

/// One round: tells those whose time is over, renews those that are due.
async fn look(inner: &Arc<Inner>) {
    let now = inner.now();
    let mut due = Vec::new();
    {
        let held = inner.keeper.held.lock();
        for lease in held.leases.values() {
            if lease.deadline() <= now && lease.tell_lost() {
                tell(inner, lease, What::LeaseOverdue);
            }
            if lease.hold_until <= now && !lease.is_overheld.swap(true, Ordering::AcqRel) {
                tell(inner, lease, What::Overheld);
                lease.overheld.notify_one();
            }
            // Whoever settles it has taken the claim out; then there is nothing to renew.
            if lease.renew_at() <= now
                && let Some(claim) = lease.try_take()
            {
                due.push((Arc::clone(lease), claim));
            }
        }
    }
    if due.is_empty() {
        return;
    }
    let sent = inner.now();
    let answers = {
        let batch: Vec<Renewal<'_>> = due
            .iter()
            .map(|(l, claim)| Renewal { claim, lease: l.policy.lease(), keep: l.policy.unknown_ttl() })
            .collect();
        let first = &due[0].0.identity;
        inner.within(StoreCall::Renew, first, inner.store.renew(&batch)).await
    };
    match answers {
        Ok(answers) => {
            for ((lease, claim), answer) in due.into_iter().zip(answers) {
                renewed(inner, lease, claim, sent, answer);
            }
        }
        Err(_) => {
            for (lease, claim) in due {
                lease.set_renew_at(inner.now() + inner.jittered(lease.policy.lease() / 12));
                lease.put_back(claim);
            }
        }
    }
}

fn renewed(inner: &Arc<Inner>, lease: Arc<Lease>, claim: Claim, sent: Tick, answer: Renewed) {
    match answer {
        Renewed::Left(left) => {
            lease.renewed(inner, sent, left);
            lease.put_back(claim);
        }
        Renewed::Missing => {
            let (owned, activity) = (Arc::clone(inner), inner.bounds.activity());
            let task = async move {
                let _activity = activity;
                reclaim(&owned, &lease, claim).await;
            };
            inner.env.tasks.spawn("semel reclaim", Box::pin(task));
        }
        Renewed::Lost(record) => {
            // Our own, but no longer in flight: settled by the service itself, or by a stray copy. Not lost to anybody.
            if is_taken(&record, &claim) && lease.tell_lost() {
                tell(inner, &lease, What::LeaseLost);
            }
            inner.keeper.drop_lease(&lease);
            lease.put_back(claim);
        }
    }
}

fn is_taken(record: &Record, claim: &Claim) -> bool {
    record.owner != claim.owner() || record.fence > Some(claim.fence())
}

/// The store lost the claim: claims again as the same owner. The work keeps the fence it was given; the settlement goes
/// by the new one.
async fn reclaim(inner: &Arc<Inner>, lease: &Arc<Lease>, old: Claim) {
    match inner.claim_again(lease).await {
        Some((claim, sent, left)) => {
            inner.emit(&Event::new(&lease.identity, lease.policy.name(), What::StoreForgot(claim.fence())));
            lease.renewed(inner, sent, left);
            lease.put_back(claim);
        }
        None => {
            if lease.tell_lost() {
                tell(inner, lease, What::LeaseLost);
            }
            inner.keeper.drop_lease(lease);
            lease.put_back(old);
        }
    }
}

fn tell(inner: &Inner, lease: &Lease, what: What<'_>) {
    inner.emit(&Event::new(&lease.identity, lease.policy.name(), what).attempt(lease.attempt));
}

//! A store that fails on demand.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use semel_core::{
    Fence,
    identity::Identity,
    record::StateCode,
    store::{
        Ask, Changes, Claim, Claimed, Cursor, Did, Extended, Filter, Health, Issued, NewToken, Page, Purged, Releasing,
        Renewal, Renewed, Reply, Resolution, Resolved, Seen, Settled, Settlement, Store, StoreAdmin, StoreError,
        StoreFacts, StoreFuture, Target,
    },
};
use tokio::sync::watch;

/// A store's call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names of the store's own calls")]
pub enum Op {
    Claim,
    Renew,
    Settle,
    Release,
    Issue,
    Extend,
    Withdraw,
    Get,
    /// Counted; meets no fault.
    Wait,
    Health,
    List,
    Resolve,
    Delete,
    Purge,
    Audit,
    Audited,
}

impl Op {
    const COUNT: usize = 16;
}

/// What happens to one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It takes effect and its reply is lost: [`Did::Unknown`].
    LoseReply,
    /// It takes no effect and says so: [`Did::Nothing`].
    Refuse,
    /// It takes no effect, and nobody can tell: [`Did::Unknown`].
    LoseCall,
    /// It takes no effect before [`Faults::let_go`].
    HoldCall,
    /// It takes effect at once and answers after [`Faults::let_go`].
    HoldReply,
}

/// Wraps a store: counts its calls, and does to some of them what a [`Fault`] says. Clones are one store.
///
/// Calls of one kind are numbered from 1. A fault is for one of them; [`outage`](Self::outage) is for all.
pub struct Faults<S> {
    store: S,
    plan: Arc<Plan>,
}

impl<S: Clone> Clone for Faults<S> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), plan: Arc::clone(&self.plan) }
    }
}

struct Plan {
    counts: [AtomicU64; Op::COUNT],
    faults: Mutex<HashMap<(Op, u64), Fault>>,
    outage: Mutex<Option<Did>>,
    /// How often the held calls were let go; a call that is held waits for the next time.
    gate: watch::Sender<u64>,
}

impl<S> Faults<S> {
    /// A store without faults.
    pub fn new(store: S) -> Self {
        let plan = Plan {
            counts: Default::default(),
            faults: Mutex::default(),
            outage: Mutex::default(),
            gate: watch::Sender::new(0),
        };
        Self { store, plan: Arc::new(plan) }
    }

    /// The store inside, which has no faults.
    pub const fn inner(&self) -> &S {
        &self.store
    }

    /// Does `fault` to the `nth` call of its kind from now on; 1 is the next.
    pub fn fail(&self, op: Op, nth: u64, fault: Fault) {
        self.plan.faults.lock().insert((op, self.count(op) + nth), fault);
    }

    /// From now on all calls fail, or work again.
    pub fn outage(&self, did: Option<Did>) {
        *self.plan.outage.lock() = did;
    }

    /// Lets all go on that are held now.
    pub fn let_go(&self) {
        self.plan.gate.send_modify(|n| *n += 1);
    }

    /// How many calls there were in all.
    pub fn counted(&self) -> u64 {
        self.plan.counts.iter().map(|n| n.load(Ordering::SeqCst)).sum()
    }

    /// How many calls of a kind there were.
    pub fn count(&self, op: Op) -> u64 {
        self.plan.counts[op as usize].load(Ordering::SeqCst)
    }

    /// Whether faults that were asked for have not happened yet.
    pub fn pending(&self) -> usize {
        self.plan.faults.lock().len()
    }

    fn next(&self, op: Op) -> Option<Fault> {
        let n = self.plan.counts[op as usize].fetch_add(1, Ordering::SeqCst) + 1;
        let fault = self.plan.faults.lock().remove(&(op, n));
        fault.or_else(|| {
            self.plan.outage.lock().map(|did| match did {
                Did::Nothing => Fault::Refuse,
                Did::Unknown => Fault::LoseCall,
            })
        })
    }

    fn call<'a, T: Send + 'a>(&'a self, op: Op, call: impl FnOnce(&'a S) -> Reply<'a, T> + Send + 'a) -> Reply<'a, T>
    where
        S: Sync,
    {
        let Some(fault) = self.next(op) else { return call(&self.store) };
        let let_go = self.let_go_next();
        StoreFuture::new(async move {
            match fault {
                Fault::Refuse => Err(StoreError::unavailable(Did::Nothing)),
                Fault::LoseCall => Err(StoreError::unavailable(Did::Unknown)),
                Fault::LoseReply => {
                    call(&self.store).await?;
                    Err(StoreError::unavailable(Did::Unknown))
                }
                Fault::HoldCall => {
                    let_go.await;
                    call(&self.store).await
                }
                Fault::HoldReply => {
                    let reply = call(&self.store).await;
                    let_go.await;
                    reply
                }
            }
        })
    }

    fn let_go_next(&self) -> impl Future<Output = ()> + Send + use<S> {
        let mut gate = self.plan.gate.subscribe();
        let now = *gate.borrow_and_update();
        async move {
            // The sender lives as long as the store that this call is one of.
            let _ = gate.wait_for(|n| *n > now).await;
        }
    }
}

impl<S> fmt::Debug for Faults<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faults({} to come)", self.pending())
    }
}

impl<S: Store> Store for Faults<S> {
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed> {
        self.call(Op::Claim, move |s| s.claim(ask))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>> {
        self.call(Op::Renew, move |s| s.renew(batch))
    }

    fn part(&self, id: &Identity) -> u64 {
        self.store.part(id)
    }

    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled> {
        self.call(Op::Settle, move |s| s.settle(claim, to))
    }

    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled> {
        self.call(Op::Release, move |s| s.release(what))
    }

    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued> {
        self.call(Op::Issue, move |s| s.issue(token))
    }

    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended> {
        self.call(Op::Extend, move |s| s.extend(id, ttl))
    }

    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool> {
        self.call(Op::Withdraw, move |s| s.withdraw(id))
    }

    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen> {
        self.call(Op::Get, move |s| s.get(id))
    }

    fn wait<'a>(&'a self, id: &'a Identity, seen: Option<Fence>) -> StoreFuture<'a, ()> {
        self.plan.counts[Op::Wait as usize].fetch_add(1, Ordering::SeqCst);
        self.store.wait(id, seen)
    }

    fn health(&self) -> Reply<'_, Health> {
        self.call(Op::Health, Store::health)
    }

    fn facts(&self) -> StoreFacts {
        self.store.facts()
    }

    fn tell_changes(&self, to: Weak<dyn Changes>) {
        self.store.tell_changes(to);
    }
}

impl<S: StoreAdmin> StoreAdmin for Faults<S> {
    fn list<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, max: usize) -> Reply<'a, Page> {
        self.call(Op::List, move |s| s.list(filter, after, max))
    }

    fn resolve<'a>(&'a self, target: Target<'a>, to: &'a Resolution) -> Reply<'a, Resolved> {
        self.call(Op::Resolve, move |s| s.resolve(target, to))
    }

    fn delete<'a>(&'a self, id: &'a Identity, expected: StateCode) -> Reply<'a, bool> {
        self.call(Op::Delete, move |s| s.delete(id, expected))
    }

    fn purge(&self, max: usize) -> Reply<'_, Purged> {
        self.call(Op::Purge, move |s| s.purge(max))
    }

    fn audit<'a>(&'a self, line: &'a str) -> Reply<'a, ()> {
        self.call(Op::Audit, move |s| s.audit(line))
    }

    fn audited(&self, max: usize) -> Reply<'_, Vec<String>> {
        self.call(Op::Audited, move |s| s.audited(max))
    }
}

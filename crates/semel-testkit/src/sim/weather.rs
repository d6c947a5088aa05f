//! A network between an engine and its store: replies are lost, calls come late or twice, or the store is away.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::{
    Fence, Owner, StoreTime,
    env::{BoxFuture, Clock, Tasks},
    fingerprint::Fingerprint,
    identity::Identity,
    store::{
        Ask, AskFor, Changes, Claim, Claimed, Did, Extended, Health, Issued, NewToken, Releasing, Renewal, Renewed,
        Reply, Seen, Settled, Settlement, Store, StoreError, StoreFacts, StoreFuture,
    },
};

use super::{Seeded, give_way};

/// How bad it is: each once in so many calls, zero for never.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Climate {
    /// The call takes effect and the reply is lost.
    pub lose_reply: u64,
    /// The call gets lost.
    pub lose_call: u64,
    /// The store says no and does nothing.
    pub refuse: u64,
    /// The caller hears that the connection broke; the call arrives later.
    pub stray: u64,
    /// The call takes effect, is answered, and is delivered once more later. Not a claim: a copy of one that was answered
    /// with *found* and comes within its `not_after` can strand a record that has become free meanwhile, until its lease
    /// is over; nothing runs twice for it. Networks do not do that, and clients of stores must not.
    pub repeat: u64,
    /// Neither a reply nor an error ever comes; whether the call took effect is open.
    pub hang: u64,
    /// How long a call takes, at most, each way.
    pub delay: Duration,
    /// How late a stray or repeated call arrives, at most.
    pub late: Duration,
}

/// What a call can meet, for counting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the names of the climate's own fields")]
pub enum Happened {
    LoseReply,
    LoseCall,
    Refuse,
    Stray,
    Repeat,
    Hang,
    Outage,
}

impl Happened {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::LoseReply, Self::LoseCall, Self::Refuse, Self::Stray, Self::Repeat, Self::Hang, Self::Outage];
}

/// A store behind a network. Clones are one network.
pub struct Weather<S> {
    store: Arc<S>,
    sky: Arc<Sky>,
}

impl<S> Clone for Weather<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), sky: Arc::clone(&self.sky) }
    }
}

struct Sky {
    clock: Arc<dyn Clock>,
    random: Seeded,
    /// Where calls travel that nobody waits for.
    tasks: Arc<dyn Tasks>,
    now: Mutex<(Climate, Option<Did>)>,
    happened: Mutex<BTreeMap<Happened, u64>>,
    is_far: AtomicBool,
}

impl<S: Store> Weather<S> {
    /// A network without trouble before `store`; its late calls travel as `tasks`.
    pub fn new(store: Arc<S>, clock: Arc<dyn Clock>, tasks: Arc<dyn Tasks>, random: Seeded) -> Self {
        let sky = Sky {
            clock,
            random,
            tasks,
            now: Mutex::default(),
            happened: Mutex::default(),
            is_far: AtomicBool::default(),
        };
        Self { store, sky: Arc::new(sky) }
    }

    /// The store itself.
    #[must_use]
    pub fn inner(&self) -> &Arc<S> {
        &self.store
    }

    /// From now on it says of itself that it is shared, so that engines built on it remember what it says.
    pub fn be_shared(&self) {
        self.sky.is_far.store(true, Ordering::SeqCst);
    }

    /// From now on it is like this.
    pub fn set(&self, climate: Climate) {
        self.sky.now.lock().0 = climate;
    }

    /// From now on no call gets through, or all do again.
    pub fn outage(&self, did: Option<Did>) {
        self.sky.now.lock().1 = did;
    }

    /// How often each thing happened.
    #[must_use]
    pub fn happened(&self) -> BTreeMap<Happened, u64> {
        self.sky.happened.lock().clone()
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        may_repeat: bool,
        later: impl FnOnce() -> Option<BoxFuture> + Send + 'a,
        call: impl FnOnce(&'a S) -> Reply<'a, T> + Send + 'a,
    ) -> Reply<'a, T> {
        let (mut climate, outage) = *self.sky.now.lock();
        if !may_repeat {
            climate.repeat = 0;
        }
        let sky = &self.sky;
        StoreFuture::new(async move {
            let fate = sky.fate(&climate, outage);
            sky.travel(climate.delay).await;
            match fate {
                None => {
                    let reply = call(&self.store).await;
                    sky.travel(climate.delay).await;
                    reply
                }
                Some(Happened::Refuse) => Err(StoreError::unavailable(Did::Nothing)),
                Some(Happened::Outage) => Err(StoreError::unavailable(outage.unwrap_or(Did::Unknown))),
                Some(Happened::LoseCall) => Err(StoreError::unavailable(Did::Unknown)),
                Some(Happened::LoseReply) => {
                    let _lost = call(&self.store).await;
                    Err(StoreError::unavailable(Did::Unknown))
                }
                Some(Happened::Hang) => {
                    if sky.random.one_in(2) {
                        let _lost = call(&self.store).await;
                    }
                    std::future::pending().await
                }
                Some(Happened::Stray) => {
                    if let Some(later) = later() {
                        sky.send_late(climate.late, later);
                    }
                    Err(StoreError::unavailable(Did::Unknown))
                }
                Some(Happened::Repeat) => {
                    if let Some(later) = later() {
                        sky.send_late(climate.late, later);
                    }
                    call(&self.store).await
                }
            }
        })
    }
}

impl Sky {
    fn fate(&self, climate: &Climate, outage: Option<Did>) -> Option<Happened> {
        let by_chance = [
            (climate.lose_reply, Happened::LoseReply),
            (climate.lose_call, Happened::LoseCall),
            (climate.refuse, Happened::Refuse),
            (climate.stray, Happened::Stray),
            (climate.repeat, Happened::Repeat),
            (climate.hang, Happened::Hang),
        ];
        let fate = match outage {
            Some(_) => Some(Happened::Outage),
            None => by_chance.into_iter().find(|(n, _)| self.random.one_in(*n)).map(|(_, what)| what),
        };
        if let Some(what) = fate {
            *self.happened.lock().entry(what).or_default() += 1;
        }
        fate
    }

    async fn travel(&self, most: Duration) {
        give_way().await;
        if !most.is_zero() && self.random.one_in(2) {
            self.clock.sleep_until(self.clock.now() + self.random.upto(most)).await;
        }
    }

    fn send_late(&self, most: Duration, call: BoxFuture) {
        let wait = self.clock.sleep_until(self.clock.now() + self.random.upto(most));
        self.tasks.spawn(
            "late call",
            Box::pin(async move {
                wait.await;
                call.await;
            }),
        );
    }
}

/// The same claim once more, for a copy of a call that travels on its own.
fn same(claim: &Claim) -> Claim {
    let what = AskFor {
        identity: *claim.identity(),
        fingerprint: Fingerprint::NONE,
        lease: Duration::ZERO,
        hold: Duration::ZERO,
        keep: Duration::ZERO,
        grace: Duration::ZERO,
        needs_token: false,
        takeover: false,
        not_after: StoreTime::default(),
        rest: Bytes::new(),
    };
    Ask::new(claim.owner(), what).grant(claim.fence(), claim.attempt())
}

/// A release that owns what it speaks of.
enum Owned {
    Held(Claim, bool, bool, Duration, Bytes),
    Fate(Identity, Owner, Duration, Bytes),
}

impl<S: Store> fmt::Debug for Weather<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weather({:?})", self.happened())
    }
}

impl<S: Store> Store for Weather<S> {
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed> {
        let store = Arc::clone(&self.store);
        let later = move || {
            let ask = ask.clone();
            Some(Box::pin(async move { drop(store.claim(&ask).await) }) as BoxFuture)
        };
        self.call(false, later, move |s| s.claim(ask))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>> {
        let store = Arc::clone(&self.store);
        let later = move || {
            let batch: Vec<_> = batch.iter().map(|r| (same(r.claim), r.lease, r.keep)).collect();
            Some(Box::pin(async move {
                let batch: Vec<_> =
                    batch.iter().map(|(claim, lease, keep)| Renewal { claim, lease: *lease, keep: *keep }).collect();
                drop(store.renew(&batch).await);
            }) as BoxFuture)
        };
        self.call(true, later, move |s| s.renew(batch))
    }

    fn part(&self, id: &Identity) -> u64 {
        self.store.part(id)
    }

    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled> {
        let store = Arc::clone(&self.store);
        let later = move || {
            let (claim, to) = (same(claim), to.clone());
            Some(Box::pin(async move { drop(store.settle(&claim, &to).await) }) as BoxFuture)
        };
        self.call(true, later, move |s| s.settle(claim, to))
    }

    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled> {
        let store = Arc::clone(&self.store);
        let later = move || {
            let owned = match what {
                Releasing::Held { claim, counts, park, keep, rest } => {
                    Owned::Held(same(claim), *counts, *park, *keep, rest.clone())
                }
                Releasing::Fate { identity, owner, keep, rest } => Owned::Fate(**identity, *owner, *keep, rest.clone()),
                _ => return None,
            };
            Some(Box::pin(async move {
                let what = match &owned {
                    Owned::Held(claim, counts, park, keep, rest) => {
                        Releasing::Held { claim, counts: *counts, park: *park, keep: *keep, rest: rest.clone() }
                    }
                    Owned::Fate(identity, owner, keep, rest) => {
                        Releasing::Fate { identity, owner: *owner, keep: *keep, rest: rest.clone() }
                    }
                };
                drop(store.release(&what).await);
            }) as BoxFuture)
        };
        self.call(true, later, move |s| s.release(what))
    }

    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued> {
        self.call(false, || None, move |s| s.issue(token))
    }

    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended> {
        self.call(false, || None, move |s| s.extend(id, ttl))
    }

    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool> {
        self.call(false, || None, move |s| s.withdraw(id))
    }

    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen> {
        self.call(false, || None, move |s| s.get(id))
    }

    fn wait<'a>(&'a self, id: &'a Identity, seen: Option<Fence>) -> StoreFuture<'a, ()> {
        self.store.wait(id, seen)
    }

    fn health(&self) -> Reply<'_, Health> {
        self.call(false, || None, |s| s.health())
    }

    fn facts(&self) -> StoreFacts {
        StoreFacts { shared: self.sky.is_far.load(Ordering::SeqCst), ..self.store.facts() }
    }

    fn tell_changes(&self, to: Weak<dyn Changes>) {
        self.store.tell_changes(to);
    }
}

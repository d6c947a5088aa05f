//! A second right store, as plain as can be, and its wrong sisters: one seeded bug each.

use std::{collections::BTreeMap, marker::PhantomData, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::{
    Fence, StoreTime,
    env::LocalStoreClock,
    fingerprint::Fingerprint,
    identity::Identity,
    record::{Flags, Record, Rest, StateCode},
    store::{
        Ask, Claim, Claimed, Cursor, Durability, Entry, Extended, FenceStrength, Filter, Health, Issued, NewToken,
        Page, Purged, Releasing, Renewal, Renewed, Reply, Resolution, Resolved, Seen, Settled, Settlement, Store,
        StoreAdmin, StoreError, StoreFacts, StoreFuture, Target,
    },
    transition::{self, Step},
};
use semel_testkit::{clock::ManualClock, conformance::Bed};

/// What is wrong with a store.
pub(crate) trait Bug: Send + Sync + 'static {
    const IS: Wrong;
}

macro_rules! bugs {
    ($($(#[doc = $doc:literal])* $bug:ident)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Wrong { $($(#[doc = $doc])* $bug),* }
        $(
            pub(crate) struct $bug;
            impl Bug for $bug { const IS: Wrong = Wrong::$bug; }
        )*
    };
}

bugs! {
    Nothing
    ReleaseWithoutOwnerCheck
    RenewThatRecreates
    /// The fence counts from one again after the record's end.
    FenceThatRestarts
    /// The fence is the clock's reading alone.
    FenceOfTheClockAlone
    LeaseAsTimeToLive
    ExpiredIsRead
    NotAfterIgnored
    ClaimantDecidesOnTakeover
    GraceIgnored
    TakeoverOfAnotherQuestion
    CompletionNeedsALiveLease
    CompletionNeedsARecord
    CompletionOverwritesAnybody
    CompletionSentAgainWritesAgain
    UnknownOverwritesDone
    FreeKeepsItsQuestion
    DuplicateLeavesAMark
    OwnerIsGrantedTwice
    RenewalBeyondMaxHold
    RenewalMovesTheEnd
    UnreadableIsAbsent
    /// Looks, and writes later.
    CheckThenAct
    LiveClaimIsResolved
    ResolutionKeepsTheFence
    ReleaseForgetsTheToken
    TokenIsUsedTwice
    AnythingIsDeleted
    RestIsCutAt64KiB
    AcknowledgedBeforeWritten
    PurgeTakesTheLiving
    PurgeDoesNothing
    /// Looks at a part of the store and says that no more is left.
    PurgeStopsInTheMiddle
    AbandonmentNeedsTheFence
    AttemptsAlwaysCount
}

/// Records by digest under one lock, decided by the transitions.
pub(crate) struct Table<B> {
    records: Mutex<BTreeMap<[u8; 32], Record>>,
    audit: Mutex<Vec<String>>,
    /// What was there before the last write: a store that acknowledges too early loses that much.
    before: Mutex<Option<([u8; 32], Option<Record>)>>,
    clock: LocalStoreClock,
    bug: PhantomData<fn() -> B>,
}

impl<B: Bug> Table<B> {
    fn is(bug: Wrong) -> bool {
        B::IS == bug
    }

    fn apply<T>(&self, id: &Identity, records: &mut BTreeMap<[u8; 32], Record>, step: Step<T>) -> T {
        let old = records.get(id.digest()).cloned();
        match step {
            Step::Write(mut record, answer) => {
                if Self::is(Wrong::RestIsCutAt64KiB) {
                    record.rest.truncate(1 << 16);
                }
                records.insert(*id.digest(), record);
                *self.before.lock() = Some((*id.digest(), old));
                answer
            }
            Step::Remove(answer) => {
                records.remove(id.digest());
                answer
            }
            Step::Leave(answer) => answer,
        }
    }

    fn decide<T>(&self, id: &Identity, decision: impl FnOnce(Option<&Record>, StoreTime) -> Step<T>) -> T {
        let mut records = self.records.lock();
        let slot = records.get(id.digest()).filter(|r| !Self::is(Wrong::UnreadableIsAbsent) || r.is_readable());
        let step = decision(slot, self.clock.now());
        self.apply(id, &mut records, step)
    }

    fn claim_step(slot: Option<&Record>, ask: &Ask, now: StoreTime) -> Step<Claimed> {
        let mut ask = ask.clone();
        let mut slot = slot.cloned();
        if Self::is(Wrong::NotAfterIgnored) {
            ask.set_not_after(StoreTime::MAX);
        }
        if let Some(r) = &mut slot {
            match B::IS {
                Wrong::ClaimantDecidesOnTakeover if ask.takeover => r.flags = r.flags.with(Flags::TAKEOVER),
                Wrong::GraceIgnored if r.lease_until <= now => r.lease_until = StoreTime::default(),
                Wrong::TakeoverOfAnotherQuestion => r.fingerprint = ask.fingerprint,
                Wrong::OwnerIsGrantedTwice if r.owner == ask.owner() => r.state = StateCode::Free,
                Wrong::TokenIsUsedTwice if r.flags.has(Flags::ISSUED) => r.state = StateCode::Free,
                Wrong::FreeKeepsItsQuestion
                    if r.state == StateCode::Free
                        && r.is_here(now)
                        && ![ask.fingerprint, Fingerprint::NONE].iter().any(|f| f.same(&r.fingerprint)) =>
                {
                    return Step::Leave(Claimed::Found { record: slot, now });
                }
                _ => {}
            }
            if Self::is(Wrong::OwnerIsGrantedTwice) && r.owner == ask.owner() {
                r.owner = semel_core::Owner::from_bytes([0; 16]);
            }
        }
        let last = slot.as_ref().filter(|r| r.is_here(now)).and_then(|r| r.fence);
        match transition::claim(slot.as_ref(), &ask, now) {
            Step::Write(mut record, Claimed::Granted { claim, left, now, unresolved }) => {
                let wrong_fence = match B::IS {
                    Wrong::FenceThatRestarts => Fence::new(last.map_or(1, |f| f.get() + 1)),
                    Wrong::FenceOfTheClockAlone => Fence::new(now.as_micros().unsigned_abs()),
                    _ => None,
                };
                let fence = wrong_fence.unwrap_or(claim.fence());
                record.fence = Some(fence);
                if Self::is(Wrong::LeaseAsTimeToLive) {
                    record.expires_at = record.lease_until;
                }
                let claim = ask.grant(fence, claim.attempt());
                Step::Write(record, Claimed::Granted { claim, left, now, unresolved })
            }
            Step::Leave(Claimed::Found { record: Some(r), now }) if Self::is(Wrong::DuplicateLeavesAMark) => {
                let marked = Record { flags: r.flags.with(Flags::WATCHED), ..r.clone() };
                Step::Write(marked, Claimed::Found { record: Some(r), now })
            }
            other => other,
        }
    }

    fn renew_step(slot: Option<&Record>, r: &Renewal<'_>, now: StoreTime) -> Step<Renewed> {
        let mut slot = slot.cloned();
        if Self::is(Wrong::RenewalBeyondMaxHold)
            && let Some(r) = &mut slot
        {
            r.expires_at = r.expires_at + Duration::from_secs(1 << 20);
        }
        match transition::renew(slot.as_ref(), r, now) {
            Step::Leave(Renewed::Missing) if Self::is(Wrong::RenewThatRecreates) => {
                let made = Record {
                    version: semel_core::record::VERSION,
                    state: StateCode::InFlight,
                    flags: Flags::NONE,
                    fingerprint: Fingerprint::NONE,
                    owner: r.claim.owner(),
                    fence: Some(r.claim.fence()),
                    attempt: r.claim.attempt(),
                    lease_until: now + r.lease,
                    expires_at: now + r.lease + r.keep,
                    rest: Bytes::new(),
                };
                Step::Write(made, Renewed::Left(r.lease))
            }
            Step::Write(mut record, answer) => {
                match B::IS {
                    Wrong::RenewalMovesTheEnd => record.expires_at = record.lease_until + r.keep,
                    Wrong::RenewalBeyondMaxHold => record.expires_at = record.expires_at - Duration::from_secs(1 << 20),
                    _ => {}
                }
                Step::Write(record, answer)
            }
            other => other,
        }
    }

    fn settle_step(slot: Option<&Record>, claim: &Claim, to: &Settlement, now: StoreTime) -> Step<Settled> {
        let here = slot.filter(|r| r.is_here(now));
        let is_unknown = matches!(to, Settlement::Unknown { .. });
        match (B::IS, here) {
            (Wrong::CompletionNeedsALiveLease, Some(r)) if r.state == StateCode::InFlight && r.lease_until <= now => {
                return Step::Leave(Settled::Lost(r.clone()));
            }
            (Wrong::CompletionNeedsARecord, None) => return Step::Leave(Settled::Ok { restored: false }),
            (Wrong::CompletionOverwritesAnybody, Some(r)) if r.owner != claim.owner() && !is_unknown => {
                return transition::settle(None, claim, to, now);
            }
            (Wrong::CompletionSentAgainWritesAgain, Some(r)) if r.state == StateCode::Done => {
                let again = Record { state: StateCode::InFlight, ..r.clone() };
                return transition::settle(Some(&again), claim, to, now);
            }
            (Wrong::UnknownOverwritesDone, Some(r)) if is_unknown && r.state == StateCode::Done => {
                let undone = Record { state: StateCode::InFlight, ..r.clone() };
                return transition::settle(Some(&undone), claim, to, now);
            }
            _ => {}
        }
        transition::settle(slot, claim, to, now)
    }

    fn release_step(slot: Option<&Record>, what: &Releasing<'_>, now: StoreTime) -> Step<Settled> {
        let mut slot = slot.cloned();
        if let Some(r) = &mut slot {
            let (owner, fence) = match what {
                Releasing::Held { claim, .. } => (claim.owner(), Some(claim.fence())),
                Releasing::Fate { owner, .. } => (*owner, None),
                other => panic!("no such release: {other:?}"),
            };
            match B::IS {
                Wrong::ReleaseWithoutOwnerCheck => (r.owner, r.fence) = (owner, fence.or(r.fence)),
                Wrong::AbandonmentNeedsTheFence if fence.is_none() => return Step::Leave(Settled::Lost(r.clone())),
                Wrong::ReleaseForgetsTheToken => r.flags = r.flags.without(Flags::ISSUED),
                Wrong::AttemptsAlwaysCount => r.attempt += 1,
                _ => {}
            }
        }
        match transition::release(slot.as_ref(), what, now) {
            Step::Write(record, answer) if Self::is(Wrong::FreeKeepsItsQuestion) => {
                let fingerprint = slot.map_or(Fingerprint::NONE, |r| r.fingerprint);
                Step::Write(Record { fingerprint, ..record }, answer)
            }
            other => other,
        }
    }

    fn resolve_step(
        slot: Option<&Record>,
        (fence, resolver): (Fence, semel_core::Owner),
        to: &Resolution,
        now: StoreTime,
    ) -> Step<Resolved> {
        let mut slot = slot.cloned();
        if Self::is(Wrong::LiveClaimIsResolved)
            && let Some(r) = &mut slot
        {
            r.lease_until = r.lease_until.min(now);
        }
        match transition::resolve(slot.as_ref(), (fence, resolver), to, now) {
            Step::Write(record, Resolved::Ok(_)) if Self::is(Wrong::ResolutionKeepsTheFence) => {
                Step::Write(Record { fence: Some(fence), ..record }, Resolved::Ok(fence))
            }
            other => other,
        }
    }
}

fn ready<'a, T>(answer: T) -> Reply<'a, T> {
    StoreFuture::ready(Ok(answer))
}

impl<B: Bug> Store for Table<B> {
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed> {
        if !Self::is(Wrong::CheckThenAct) {
            return ready(self.decide(&ask.identity, |slot, now| Self::claim_step(slot, ask, now)));
        }
        StoreFuture::new(async move {
            let slot = self.records.lock().get(ask.identity.digest()).cloned();
            let step = Self::claim_step(slot.as_ref(), ask, self.clock.now());
            tokio::task::yield_now().await;
            Ok(self.apply(&ask.identity, &mut self.records.lock(), step))
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>> {
        let one = |r: &Renewal<'_>| self.decide(r.claim.identity(), |slot, now| Self::renew_step(slot, r, now));
        ready(batch.iter().map(|r| Ok(one(r))).collect())
    }

    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled> {
        ready(self.decide(claim.identity(), |slot, now| Self::settle_step(slot, claim, to, now)))
    }

    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled> {
        let id = match what {
            Releasing::Held { claim, .. } => claim.identity(),
            Releasing::Fate { identity, .. } => identity,
            other => panic!("no such release: {other:?}"),
        };
        ready(self.decide(id, |slot, now| Self::release_step(slot, what, now)))
    }

    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued> {
        ready(self.decide(&token.identity, |slot, now| transition::issue(slot, token, now)))
    }

    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended> {
        ready(self.decide(id, |slot, now| transition::extend(slot, ttl, now)))
    }

    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool> {
        ready(self.decide(id, transition::withdraw))
    }

    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen> {
        let now = self.clock.now();
        let record = self.records.lock().get(id.digest()).cloned();
        ready(Seen { record: record.filter(|r| Self::is(Wrong::ExpiredIsRead) || r.is_here(now)), now })
    }

    fn wait<'a>(&'a self, _id: &'a Identity, _seen: Option<Fence>) -> StoreFuture<'a, ()> {
        StoreFuture::never()
    }

    fn health(&self) -> Reply<'_, Health> {
        let records = Some(self.records.lock().len() as u64);
        ready(Health {
            now: self.clock.now(),
            writable: true,
            records,
            bytes: None,
            trouble: String::new(),
            birth: None,
        })
    }

    fn facts(&self) -> StoreFacts {
        StoreFacts {
            name: "table",
            durability: Durability::Process,
            fence: FenceStrength::Strong,
            max_rest: u64::MAX,
            shared: false,
            tells_changes: false,
        }
    }
}

impl<B: Bug> StoreAdmin for Table<B> {
    fn list<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, max: usize) -> Reply<'a, Page> {
        let now = self.clock.now();
        let records = self.records.lock();
        let later = records.iter().filter(|(digest, _)| after.is_none_or(|a| digest.as_slice() > a.0.as_ref()));
        let passing = later.filter(|(_, r)| r.is_here(now) && filter.passes(r, now));
        let entry = |(digest, record): (&[u8; 32], &Record)| {
            let identity = Rest::read(&record.rest).expect("only readable ones are listed").identity(*digest);
            Entry { identity, record: record.clone() }
        };
        let entries: Vec<_> = passing.take(max).map(entry).collect();
        let next = entries.last().filter(|_| entries.len() == max);
        let next = next.map(|e| Cursor(Bytes::copy_from_slice(e.identity.digest())));
        ready(Page { entries, next, now })
    }

    fn resolve<'a>(&'a self, target: Target<'a>, to: &'a Resolution) -> Reply<'a, Resolved> {
        let key = (target.fence, target.resolver);
        ready(self.decide(target.identity, |slot, now| Self::resolve_step(slot, key, to, now)))
    }

    fn delete<'a>(&'a self, id: &'a Identity, expected: StateCode) -> Reply<'a, bool> {
        if Self::is(Wrong::AnythingIsDeleted) {
            return ready(self.records.lock().remove(id.digest()).is_some());
        }
        ready(self.decide(id, |slot, now| transition::delete(slot, expected, now)))
    }

    fn purge(&self, max: usize) -> Reply<'_, Purged> {
        let now = self.clock.now();
        let mut records = self.records.lock();
        let over = |r: &Record| !r.is_here(now) || Self::is(Wrong::PurgeTakesTheLiving);
        let looked_at = if Self::is(Wrong::PurgeStopsInTheMiddle) { 20 } else { usize::MAX };
        let max = if Self::is(Wrong::PurgeDoesNothing) { 0 } else { max };
        let ended = records.iter().take(looked_at).filter(|(_, r)| over(r)).map(|(d, _)| *d);
        let ended: Vec<_> = ended.take(max).collect();
        let gone: Vec<_> = ended.iter().filter_map(|d| Some((*d, records.remove(d)?))).collect();
        let unresolved = |(digest, r): &([u8; 32], Record)| {
            let rest = Rest::read(&r.rest).ok().filter(|_| r.is_unresolved())?;
            Some(rest.identity(*digest))
        };
        let more = max > 0 && gone.len() == max;
        ready(Purged { removed: gone.len(), unresolved: gone.iter().filter_map(unresolved).collect(), more })
    }

    fn audit<'a>(&'a self, line: &'a str) -> Reply<'a, ()> {
        self.audit.lock().push(line.to_owned());
        ready(())
    }

    fn audited(&self, max: usize) -> Reply<'_, Vec<String>> {
        ready(self.audit.lock().iter().rev().take(max).cloned().collect())
    }
}

/// A bed for a [`Table`]; reopening it keeps what the table holds.
pub(crate) struct TableBed<B> {
    clock: ManualClock,
    table: Arc<Table<B>>,
}

impl<B: Bug> Bed for TableBed<B> {
    async fn start() -> Self {
        let clock = ManualClock::new();
        let table = Table {
            records: Mutex::default(),
            audit: Mutex::default(),
            before: Mutex::default(),
            clock: LocalStoreClock::new(Arc::new(clock.clone()), StoreTime::default()),
            bug: PhantomData,
        };
        Self { clock, table: Arc::new(table) }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        Arc::clone(&self.table) as _
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        let mut records = self.table.records.lock();
        match bytes {
            Some(bytes) => records.insert(*id.digest(), Record::decode(&bytes)),
            None => records.remove(id.digest()),
        };
    }

    async fn reopen(&self) -> bool {
        if B::IS == Wrong::AcknowledgedBeforeWritten
            && let Some((digest, old)) = self.table.before.lock().take()
        {
            let mut records = self.table.records.lock();
            match old {
                Some(old) => records.insert(digest, old),
                None => records.remove(&digest),
            };
        }
        true
    }
}

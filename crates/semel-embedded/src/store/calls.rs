//! `Store`: what executes.

use std::time::Duration;

use semel_core::{
    Fence,
    identity::Identity,
    store::{
        Ask, Claim, Claimed, Durability, Extended, FenceStrength, Health, Issued, NewToken, Releasing, Renewal,
        Renewed, Reply, Seen, Settled, Settlement, Store, StoreError, StoreFacts, StoreFuture,
    },
    transition::{self, Step},
};

use super::{
    EmbeddedStore,
    decide::{Decided, How},
};
use crate::{Power, log::Need, space::Room};

impl Store for EmbeddedStore {
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed> {
        let how = How { need: Need::Synced, begins: true, me: Some(ask.owner()) };
        self.shared.decide(ask.identity.digest(), how, |slot, now| transition::claim(slot, ask, now)).reply()
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>> {
        let how = How { need: Need::Written, begins: false, me: None };
        let one = |r: &Renewal<'_>| {
            let digest = r.claim.identity().digest();
            match self.shared.decide(digest, how, |slot, now| transition::renew(slot, r, now)) {
                // A renewal waits for nothing: who renews has got the answer to the claim.
                Decided::Now(answer) => answer,
                Decided::After(answer, _) => Ok(answer),
            }
        };
        StoreFuture::ready(Ok(batch.iter().map(one).collect()))
    }

    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled> {
        let how = How { need: self.shared.settled(), begins: false, me: Some(claim.owner()) };
        let digest = claim.identity().digest();
        self.shared.decide(digest, how, |slot, now| transition::settle(slot, claim, to, now)).reply()
    }

    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled> {
        let (identity, owner) = match what {
            Releasing::Held { claim, .. } => (claim.identity(), claim.owner()),
            Releasing::Fate { identity, owner, .. } => (*identity, *owner),
            // A way to release that this version does not know is not made by this version's engine.
            _ => return StoreFuture::ready(Err(StoreError::unavailable(semel_core::store::Did::Nothing))),
        };
        let how = How { need: self.shared.settled(), begins: false, me: Some(owner) };
        self.shared.decide(identity.digest(), how, |slot, now| transition::release(slot, what, now)).reply()
    }

    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued> {
        let how = How { need: Need::Synced, begins: true, me: None };
        self.shared.decide(token.identity.digest(), how, |slot, now| transition::issue(slot, token, now)).reply()
    }

    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended> {
        self.shared.decide(id.digest(), How::WRITTEN, |slot, now| transition::extend(slot, ttl, now)).reply()
    }

    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool> {
        self.shared.decide(id.digest(), How::WRITTEN, transition::withdraw).reply()
    }

    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen> {
        let see = |slot: Option<&semel_core::record::Record>, now| {
            Step::Leave(Seen { record: slot.filter(|r| r.is_here(now)).cloned(), now })
        };
        self.shared.decide(id.digest(), How::WRITTEN, see).reply()
    }

    fn wait<'a>(&'a self, _id: &'a Identity, _seen: Option<Fence>) -> StoreFuture<'a, ()> {
        // One process: the engine that settles wakes its waiters itself.
        StoreFuture::never()
    }

    fn health(&self) -> Reply<'_, Health> {
        let room = self.shared.space.room();
        if room != Room::Roomy && self.shared.space.is_stale() {
            self.shared.queue.nudge();
        }
        let trouble = match (self.shared.queue.stopped(), room) {
            (Some(stopped), _) => stopped.error(semel_core::store::Did::Nothing).to_string(),
            (None, Room::Roomy) => String::new(),
            (None, Room::Tight) => format!(
                "little space is free on the file system of {}: no new work is taken until some is",
                self.dir().display()
            ),
            (None, Room::Spent) => format!(
                "no space is free on the file system of {}: running work settles out of the reserve, large answers are \
                 not kept, no new work is taken",
                self.dir().display()
            ),
        };
        StoreFuture::ready(Ok(Health {
            now: self.shared.now(),
            writable: trouble.is_empty(),
            records: self.shared.records(),
            bytes: self.shared.bytes(),
            trouble,
            birth: None,
        }))
    }

    fn facts(&self) -> StoreFacts {
        let durability = match self.shared.durability {
            Power::Power => Durability::Power,
            Power::Process => Durability::Process,
        };
        StoreFacts {
            name: "embedded",
            durability,
            fence: FenceStrength::Strong,
            max_rest: self.shared.max_rest,
            shared: false,
            tells_changes: false,
        }
    }
}

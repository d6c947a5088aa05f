//! What kind of world a seed makes.

use std::{sync::Arc, time::Duration};

use semel_core::{
    policy::{OnDuplicate, OnInFlight, OnStoreError, Policy},
    store::Capacity,
};
use semel_testkit::sim::{Climate, Seeded};

use super::client::Customs;

const SECOND: Duration = Duration::from_secs(1);

/// Drawn from the seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) takeover: bool,
    pub(super) crashes: bool,
    /// Processes stand still, also for longer than their leases.
    pub(super) pauses: bool,
    pub(super) forgets: bool,
    pub(super) leaps: bool,
    pub(super) outages: bool,
    pub(super) bad_network: bool,
    pub(super) narrow: bool,
    /// The store says of itself that it is shared: engines remember, join and break off.
    pub(super) far: bool,
    /// What the store does not answer runs without a grant.
    pub(super) open: bool,
    /// The store has not room for everything.
    pub(super) tight: bool,
    /// Whoever asks for what is done is told so, and no more.
    pub(super) rejects: bool,
    pub(super) customs: Customs,
}

impl Kind {
    pub(super) fn random(random: &Seeded) -> Self {
        let kind = Self::of_weather(random);
        let tight = random.one_in(6);
        let customs = Customs {
            strangers: random.one_in(5),
            versions: random.one_in(8),
            // Who runs without asking the store has no use for a token.
            tokens: random.one_in(4) && !kind.open,
            bodiless: random.one_in(5),
            heavy: tight,
        };
        // Of what cannot be compared nobody can say whether it is a repeat.
        Self { tight, customs, rejects: random.one_in(6) && !customs.versions, ..kind }
    }

    fn of_weather(random: &Seeded) -> Self {
        Self {
            takeover: random.one_in(4),
            crashes: random.one_in(2),
            forgets: random.one_in(5),
            leaps: random.one_in(5),
            outages: random.one_in(3),
            bad_network: !random.one_in(3),
            narrow: random.one_in(5),
            far: random.one_in(2),
            open: random.one_in(6),
            pauses: random.one_in(2),
            tight: false,
            rejects: false,
            customs: Customs::default(),
        }
    }

    /// Room for two records and not for the third, or for three and not for all their bodies.
    pub(super) fn capacity(self, random: &Seeded) -> Capacity {
        match () {
            () if !self.tight => Capacity::default(),
            () if random.one_in(2) => Capacity { records: 2, ..Capacity::default() },
            () => Capacity { bytes: 1_000 + usize::try_from(random.below(1_000)).unwrap_or(0), ..Capacity::default() },
        }
    }

    /// Whether an outcome may be there without its body, or not be readable by everybody.
    pub(super) const fn bodies_go(self) -> bool {
        self.tight || self.customs.bodiless || self.customs.versions
    }

    pub(super) fn climate(self, random: &Seeded) -> Climate {
        if !self.bad_network {
            return Climate { delay: random.upto(SECOND / 10), ..Climate::default() };
        }
        let often = || if random.one_in(3) { 0 } else { 4 + random.below(20) };
        Climate {
            lose_reply: often(),
            lose_call: often(),
            refuse: often(),
            stray: often(),
            repeat: often(),
            hang: often(),
            delay: random.upto(SECOND / 4),
            late: random.upto(3 * SECOND),
        }
    }

    /// What its callers' rule says.
    pub(super) fn policy(self, random: &Seeded) -> Arc<Policy> {
        let builder = Policy::key().max_hold(60 * SECOND);
        let builder = if random.one_in(4) { builder.on_in_flight(OnInFlight::Reject) } else { builder };
        let builder = if self.takeover { builder.takeover(SECOND).max_attempts(2) } else { builder };
        let builder = if self.narrow { builder.max_running(1) } else { builder };
        let builder = if self.open { builder.on_store_error(OnStoreError::Open) } else { builder };
        let builder = if self.rejects { builder.on_duplicate(OnDuplicate::Reject) } else { builder };
        builder.build().expect("the policy is possible")
    }
}

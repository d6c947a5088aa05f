//! The calls that a random sequence is made of.

use proptest::{
    prelude::{Just, Strategy, any},
    prop_oneof,
    sample::Index,
};
use semel_core::record::StateCode;

/// How many identities a sequence plays with.
pub(super) const KEYS: u64 = 3;

/// One step. A `pick` is one of the questions, or grants, that came before; most often one of the last.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Claim { key: u64, question: u8, takeover: bool, grace: bool, needs_token: bool, late: bool },
    ClaimAgain { pick: Pick },
    Renew { picks: Vec<Pick>, long: bool },
    Complete { pick: Pick, body: u8 },
    Unknown { pick: Pick },
    Release { pick: Pick, counts: bool, park: bool },
    Abandon { pick: Pick },
    Issue { key: u64 },
    Extend { key: u64, long: bool },
    Withdraw { key: u64 },
    Resolve { key: u64, happened: bool, saw: bool },
    Delete { key: u64, state: StateCode },
    Purge { max: usize },
    Advance { thousands: u64 },
    Lose { key: u64 },
    Restore { key: u64, which: Index },
}

#[derive(Clone, Debug)]
pub(super) enum Pick {
    Last(usize),
    Any(Index),
}

impl Pick {
    pub(super) fn from<'a, T>(&self, all: &'a [T]) -> Option<&'a T> {
        match self {
            Self::Last(n) => all.iter().rev().nth(*n),
            Self::Any(_) if all.is_empty() => None,
            Self::Any(i) => Some(i.get(all)),
        }
    }
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![3 => (0..3_usize).prop_map(Pick::Last), 1 => any::<Index>().prop_map(Pick::Any)]
}

fn state() -> impl Strategy<Value = StateCode> {
    prop_oneof![
        Just(StateCode::Free),
        Just(StateCode::InFlight),
        Just(StateCode::Done),
        Just(StateCode::Unknown),
        Just(StateCode::Parked)
    ]
}

fn seldom() -> impl Strategy<Value = bool> {
    prop_oneof![4 => Just(false), 1 => Just(true)]
}

pub(super) fn any_call() -> impl Strategy<Value = Call> {
    let key = || 0..KEYS;
    let claim = (key(), 1..3_u8, any::<bool>(), any::<bool>(), seldom(), seldom()).prop_map(
        |(key, question, takeover, grace, needs_token, late)| Call::Claim {
            key,
            question,
            takeover,
            grace,
            needs_token,
            late,
        },
    );
    let renew = proptest::collection::vec(pick(), 0..4);
    prop_oneof![
        8 => claim,
        2 => pick().prop_map(|pick| Call::ClaimAgain { pick }),
        3 => (renew, any::<bool>()).prop_map(|(picks, long)| Call::Renew { picks, long }),
        4 => (pick(), any::<u8>()).prop_map(|(pick, body)| Call::Complete { pick, body }),
        3 => pick().prop_map(|pick| Call::Unknown { pick }),
        4 => (pick(), any::<bool>(), seldom()).prop_map(|(pick, counts, park)| Call::Release { pick, counts, park }),
        2 => pick().prop_map(|pick| Call::Abandon { pick }),
        3 => key().prop_map(|key| Call::Issue { key }),
        1 => (key(), any::<bool>()).prop_map(|(key, long)| Call::Extend { key, long }),
        2 => key().prop_map(|key| Call::Withdraw { key }),
        2 => (key(), any::<bool>(), any::<bool>()).prop_map(|(key, happened, saw)| Call::Resolve { key, happened, saw }),
        2 => (key(), state()).prop_map(|(key, state)| Call::Delete { key, state }),
        1 => (0..3_usize).prop_map(|max| Call::Purge { max }),
        6 => (1..5_u64).prop_map(|thousands| Call::Advance { thousands }),
        1 => key().prop_map(|key| Call::Lose { key }),
        1 => (key(), any::<Index>()).prop_map(|(key, which)| Call::Restore { key, which }),
    ]
}

/// A sequence that leads to every kind of answer, whatever the random ones lead to.
pub(super) fn one_of_each() -> Vec<Call> {
    let claim =
        |key, takeover| Call::Claim { key, question: 1, takeover, grace: false, needs_token: false, late: false };
    let late = Call::Claim { key: 0, question: 1, takeover: false, grace: false, needs_token: false, late: true };
    let renew = |n| Call::Renew { picks: vec![Pick::Last(n)], long: false };
    let complete = |n| Call::Complete { pick: Pick::Last(n), body: 0 };
    vec![
        claim(0, true),
        // In the middle of a lease, so that its end moves and the record's does not.
        Call::Advance { thousands: 1 },
        renew(0),
        claim(0, false),
        late,
        // Taken over: the one before has lost its lease, and its completion is refused.
        Call::Advance { thousands: 2 },
        claim(0, true),
        renew(1),
        complete(1),
        complete(0),
        Call::Delete { key: 0, state: StateCode::Free },
        Call::Delete { key: 0, state: StateCode::Done },
        renew(0),
        // What the store lost is written anew, or granted to the same owner again.
        claim(1, false),
        Call::Lose { key: 1 },
        complete(0),
        claim(2, false),
        Call::Lose { key: 2 },
        Call::ClaimAgain { pick: Pick::Last(0) },
        Call::Unknown { pick: Pick::Last(0) },
        Call::Resolve { key: 2, happened: true, saw: false },
        Call::Resolve { key: 2, happened: true, saw: true },
        Call::Delete { key: 1, state: StateCode::Done },
        Call::Issue { key: 1 },
        Call::Issue { key: 1 },
        Call::Extend { key: 1, long: true },
        Call::Withdraw { key: 1 },
        Call::Withdraw { key: 1 },
        Call::Extend { key: 1, long: false },
        // Past the end of an unknown that nobody told.
        claim(0, false),
        Call::Advance { thousands: 8 },
        Call::Purge { max: 3 },
    ]
}

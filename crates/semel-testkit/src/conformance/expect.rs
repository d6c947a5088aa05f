//! What an answer has to be. Each of these panics at the case's own line.

use std::time::Duration;

use semel_core::{
    Fence, StoreTime,
    record::{Record, StateCode},
    store::{Claim, Claimed, Extended, Renewed, Resolved, Settled, StoreError},
};

/// How far a time may be off: a server's clock does not stand still while a case runs.
pub(super) const SLACK: Duration = Duration::from_secs(20);

#[track_caller]
pub(super) fn granted(answer: Result<Claimed, StoreError>) -> Claim {
    match answer {
        Ok(Claimed::Granted { claim, .. }) => claim,
        other => panic!("expected a grant, got {other:?}"),
    }
}

#[track_caller]
pub(super) fn found(answer: Result<Claimed, StoreError>) -> (Option<Record>, StoreTime) {
    match answer {
        Ok(Claimed::Found { record, now }) => (record, now),
        other => panic!("expected to find what is there, got {other:?}"),
    }
}

#[track_caller]
pub(super) fn late(answer: Result<Claimed, StoreError>) {
    match answer {
        Ok(Claimed::Late { .. }) => {}
        other => panic!("expected late, got {other:?}"),
    }
}

#[track_caller]
pub(super) fn stands(answer: Result<Settled, StoreError>) {
    match answer {
        Ok(Settled::Ok { restored: false }) => {}
        other => panic!("expected it to stand, got {other:?}"),
    }
}

#[track_caller]
pub(super) fn restored(answer: Result<Settled, StoreError>) {
    match answer {
        Ok(Settled::Ok { restored: true }) => {}
        other => panic!("expected it to be restored, got {other:?}"),
    }
}

#[track_caller]
pub(super) fn lost(answer: Result<Settled, StoreError>) -> Record {
    match answer {
        Ok(Settled::Lost(record)) => record,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// The answers to a batch of renewals that all have one.
#[track_caller]
pub(super) fn answers(batch: Result<Vec<Result<Renewed, StoreError>>, StoreError>) -> Vec<Renewed> {
    batch.and_then(|answers| answers.into_iter().collect()).expect("the store works")
}

#[track_caller]
pub(super) fn left(answer: &Renewed, about: Duration) {
    match answer {
        Renewed::Left(left) => near(*left, about),
        other => panic!("expected a renewed lease, got {other:?}"),
    }
}

#[track_caller]
pub(super) fn taken_from(answer: Renewed) -> Record {
    match answer {
        Renewed::Lost(record) => record,
        other => panic!("expected a lost lease, got {other:?}"),
    }
}

#[track_caller]
pub(super) fn resolved(answer: Result<Resolved, StoreError>) -> Fence {
    match answer {
        Ok(Resolved::Ok(fence)) => fence,
        other => panic!("expected the word to stand, got {other:?}"),
    }
}

#[track_caller]
pub(super) fn conflict(answer: Result<Resolved, StoreError>) -> Option<Record> {
    match answer {
        Ok(Resolved::Conflict(record)) => record,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

#[track_caller]
pub(super) fn until(answer: Result<Extended, StoreError>) -> StoreTime {
    match answer {
        Ok(Extended::Until(t)) => t,
        other => panic!("expected a later end, got {other:?}"),
    }
}

#[track_caller]
pub(super) fn no_token(answer: Result<Extended, StoreError>) -> Option<Record> {
    match answer {
        Ok(Extended::Found(record)) => record,
        other => panic!("expected that it is no unused token, got {other:?}"),
    }
}

#[track_caller]
pub(super) fn near(is: Duration, about: Duration) {
    assert!(is.abs_diff(about) <= SLACK, "expected about {about:?}, got {is:?}");
}

#[track_caller]
pub(super) fn near_time(is: StoreTime, about: StoreTime) {
    let off = is.since(about).max(about.since(is));
    assert!(off <= SLACK, "{off:?} off: expected about {about:?}, got {is:?}");
}

/// All that a store compares and carries, the times exactly.
#[track_caller]
pub(super) fn same(is: &Record, was: &Record) {
    let bytes = |r: &Record| (r.version, r.encode());
    assert!(bytes(is) == bytes(was), "the record changed\nfrom {was:?}\nto   {is:?}");
}

#[track_caller]
pub(super) fn in_state(record: Option<Record>, state: StateCode) -> Record {
    let record = record.unwrap_or_else(|| panic!("expected a record {}, found none", state.name()));
    assert_eq!(record.state, state, "{record:?}");
    record
}

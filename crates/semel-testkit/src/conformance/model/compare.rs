//! Answers and records side by side: equal but for what the test itself takes in time.

use std::time::Duration;

use semel_core::{
    StoreTime,
    record::Record,
    store::{Extended, Renewed, Resolved, Settled},
};

/// A tenth of what separates ends from calls.
const DRIFT: Duration = Duration::from_secs(20);

pub(super) type Verdict = Result<(), String>;

fn verdict(same: bool, what: &dyn Fn() -> String) -> Verdict {
    if same { Ok(()) } else { Err(what()) }
}

pub(super) fn times(is: StoreTime, should: StoreTime) -> bool {
    is.since(should).max(should.since(is)) <= DRIFT
}

pub(super) fn spans(is: Duration, should: Duration) -> bool {
    is.abs_diff(should) <= DRIFT
}

pub(super) fn records(is: &Record, should: &Record) -> Verdict {
    let exact = |r: &Record| {
        let asked = (r.fingerprint.version().algorithm, *r.fingerprint.digest());
        (r.version, r.state, r.flags, asked, r.owner, r.fence, r.attempt, r.rest.clone())
    };
    let close = times(is.lease_until, should.lease_until) && times(is.expires_at, should.expires_at);
    verdict(exact(is) == exact(should) && close, &|| format!("the record is\n  {is:?}\nand should be\n  {should:?}"))
}

pub(super) fn slots(is: Option<&Record>, should: Option<&Record>) -> Verdict {
    match (is, should) {
        (None, None) => Ok(()),
        (Some(is), Some(should)) => records(is, should),
        (is, should) => Err(format!("there is\n  {is:?}\nand should be\n  {should:?}")),
    }
}

pub(super) fn settled(is: &Settled, should: &Settled) -> Verdict {
    match (is, should) {
        (Settled::Lost(is), Settled::Lost(should)) => records(is, should),
        (Settled::Ok { restored: is }, Settled::Ok { restored: should }) if is == should => Ok(()),
        _ => other(is, should),
    }
}

pub(super) fn renewed(is: &Renewed, should: &Renewed) -> Verdict {
    match (is, should) {
        (Renewed::Lost(is), Renewed::Lost(should)) => records(is, should),
        (Renewed::Left(is), Renewed::Left(should)) if spans(*is, *should) => Ok(()),
        (Renewed::Missing, Renewed::Missing) => Ok(()),
        _ => other(is, should),
    }
}

pub(super) fn extended(is: &Extended, should: &Extended) -> Verdict {
    match (is, should) {
        (Extended::Until(is), Extended::Until(should)) if times(*is, *should) => Ok(()),
        (Extended::Found(is), Extended::Found(should)) => slots(is.as_ref(), should.as_ref()),
        _ => other(is, should),
    }
}

pub(super) fn resolved(is: &Resolved, should: &Resolved) -> Verdict {
    match (is, should) {
        (Resolved::Ok(_), Resolved::Ok(_)) => Ok(()),
        (Resolved::Conflict(is), Resolved::Conflict(should)) => slots(is.as_ref(), should.as_ref()),
        _ => other(is, should),
    }
}

pub(super) fn equal<T: PartialEq + std::fmt::Debug>(is: &T, should: &T) -> Verdict {
    verdict(is == should, &|| format!("the answer is {is:?} and should be {should:?}"))
}

pub(super) fn other<T: std::fmt::Debug>(is: &T, should: &T) -> Verdict {
    Err(format!("the answer is\n  {is:?}\nand should be\n  {should:?}"))
}

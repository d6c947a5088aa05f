//! The engine's words in those of the checker.

use semel_core::{
    StoreTime,
    engine::{Answer, Broken, Kept},
    judge::Recorded,
    record::{Body, Payload, Record, Rest, StateCode},
    refusal::Refusal,
};
use semel_testkit::checker::{Call, Collector, Last, Promise, Told};

/// What callers may be told of what is done: where bodies may be gone, anywhere, and where the rule rejects repeats.
const AFTER_SUCCESS: &[&str] = &[
    "refused, outcome-unavailable",
    "refused, store-unavailable",
    "refused, too-many-waiters",
    "refused, too-many-running",
    "refused, duplicate",
];

/// In a world where no record allows takeover, bodies stay, and repeats get the outcome.
pub(super) const STRICT: Promise = Promise::strict(after_success(false, false));

pub(super) const fn after_success(bodies_go: bool, repeats_are_rejected: bool) -> &'static [&'static str] {
    let (_, rest) = AFTER_SUCCESS.split_at(if bodies_go { 0 } else { 1 });
    rest.split_at(if repeats_are_rejected { rest.len() } else { rest.len() - 1 }).0
}

/// What a caller's work came to: its effect's value, if there was one, and what became of it.
pub(super) fn executed(collector: &Collector, call: Call, value: Option<u64>, kept: &Kept) {
    let name = kept_name(kept);
    let told = match (value, name) {
        (None, _) => Told::Refused,
        (Some(value), "stored" | "restored") => Told::Fresh(value.to_string()),
        (Some(value), "unrecorded") => Told::Unrecorded(value.to_string()),
        (Some(_), _) => Told::Unclear,
    };
    collector.tell(call, told, format!("executed, {name}"));
}

/// The same of work without a grant: what it says of the record counts for nothing.
pub(super) fn unguarded(collector: &Collector, call: Call, value: Option<u64>, kept: &Kept) {
    let told = value.map_or(Told::Refused, |value| Told::Unguarded(value.to_string()));
    collector.tell(call, told, format!("unguarded, {}", kept_name(kept)));
}

pub(super) fn replayed(collector: &Collector, call: Call, recorded: &Recorded, waited: bool) {
    collector.tell(call, Told::Replayed(value(recorded)), format!("replayed, waited: {waited}"));
}

pub(super) fn refused(collector: &Collector, call: Call, refusal: &Refusal) {
    let (told, more) = match refusal {
        Refusal::KeyReused => (Told::Mismatch, ""),
        Refusal::NotIssued => (Told::NoToken, ""),
        Refusal::Stranger => (Told::Stranger, " of a stranger's"),
        Refusal::Duplicate { rest_of_window: None, .. } => (Told::Refused, " under way"),
        Refusal::Duplicate { .. } | Refusal::OutcomeUnavailable { .. } => (Told::Done, ""),
        _ => (Told::Refused, ""),
    };
    collector.tell(call, told, format!("refused, {}{more}", refusal.name()));
}

pub(super) fn answered(collector: &Collector, call: Call, answer: &Answer<Option<u64>>) {
    match answer {
        Answer::Executed { value, kept } => executed(collector, call, *value, kept),
        Answer::Unguarded { value, kept, .. } => unguarded(collector, call, *value, kept),
        Answer::Replayed { recorded, waited } => replayed(collector, call, recorded, *waited),
        Answer::Refused(refusal) => refused(collector, call, refusal),
        Answer::Broken(how) => {
            let how = match how {
                Broken::Panicked => "panicked",
                Broken::Overheld => "overheld",
                other => panic!("no such end: {other:?}"),
            };
            collector.tell(call, Told::Unclear, format!("broken, {how}"));
        }
        other => panic!("no such answer: {other:?}"),
    }
}

fn kept_name(kept: &Kept) -> &'static str {
    match kept {
        Kept::Stored => "stored",
        Kept::Restored => "restored",
        Kept::Released => "released",
        Kept::Unknown => "unknown",
        Kept::Unrecorded => "unrecorded",
        Kept::Lost { .. } => "lost",
        other => panic!("no such end: {other:?}"),
    }
}

fn value(recorded: &Recorded) -> String {
    of_body(&recorded.outcome.body).expect("whoever is given an outcome again is given its body")
}

/// The value that a body begins with.
fn of_body(body: &Body) -> Option<String> {
    let Body::Whole(body) = body else { return None };
    Some(u64::from_be_bytes(body[..size_of::<u64>()].try_into().expect("a value has eight bytes")).to_string())
}

/// What the store has at the end.
pub(super) fn last(record: Option<&Record>, now: StoreTime) -> Last {
    let Some(record) = record else { return Last::Nothing };
    match record.reads_as(now) {
        StateCode::Free => Last::Nothing,
        StateCode::InFlight => Last::InFlight,
        StateCode::Unknown => Last::Unknown,
        StateCode::Parked => Last::Parked,
        StateCode::Done => match Rest::read(&record.rest).map(|rest| rest.payload) {
            Ok(Payload::Outcome { outcome, .. }) => Last::Done(of_body(&outcome.body)),
            _ => Last::Done(None),
        },
    }
}

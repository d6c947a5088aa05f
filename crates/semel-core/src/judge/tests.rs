//! Every row of the table, in its order: what is found, and what that means.

use bytes::Bytes;

use super::*;
use crate::{
    fingerprint::{Fingerprint, Version},
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    ids::Owner,
    record::{Body, Format, Meta, VERSION},
    store::AskFor,
};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(5);
const NOW: StoreTime = StoreTime::from_micros(1_000_000_000);
const MINE: Owner = Owner::from_bytes([1; 16]);
const OTHER: Owner = Owner::from_bytes([2; 16]);

fn asked(question: u8) -> Fingerprint {
    Fingerprint::stored(Version { algorithm: 1, parameters: 7 }, [question; 32])
}

fn ask() -> Ask {
    ask_for(false)
}

fn ask_for(needs_token: bool) -> Ask {
    let secret = Secret::from_material(b"0123456789abcdef").unwrap();
    let key = Key::new("k", Display::Masked);
    let identity = Identity::new(&secret, Kind::Key, Namespace::http("t").unwrap(), &Scope::shared(), &key);
    let what = AskFor {
        identity,
        fingerprint: asked(1),
        lease: LEASE,
        hold: LEASE,
        keep: LEASE,
        grace: GRACE,
        needs_token,
        takeover: false,
        not_after: StoreTime::MAX,
        rest: Bytes::new(),
    };
    Ask::new(MINE, what)
}

fn caller(credentials: u8, request: u8) -> Caller {
    Caller { credentials: Some([credentials; 16]), request: Some([request; 16]) }
}

fn rest(payload: &Payload) -> Bytes {
    let (namespace, rule, key) = ("http:t", "r", "k");
    let (credentials, request) = (Some([1; 16]), Some([1; 16]));
    let meta = Meta { kind: Kind::Key, parameters: 7, max_attempts: 3, namespace, rule, key, credentials, request };
    Rest::write(&meta.encode(), payload)
}

fn outcome() -> Payload {
    let outcome = Outcome::new(Format::HTTP, &b"201"[..], &b"an order"[..]);
    Payload::Outcome { outcome, settled_at: NOW - SECOND }
}

fn words() -> Payload {
    Payload::Words("connection reset".into())
}

/// Another's record, in flight for three more seconds unless the test says otherwise.
fn record(state: StateCode, payload: &Payload) -> Record {
    Record {
        version: VERSION,
        state,
        flags: Flags::NONE,
        fingerprint: if state == StateCode::Parked { Fingerprint::NONE } else { asked(1) },
        owner: OTHER,
        fence: Fence::new(42),
        attempt: 1,
        lease_until: NOW + 3 * SECOND,
        expires_at: NOW + 60 * SECOND,
        rest: rest(payload),
    }
}

fn judged(record: &Record) -> Judgement {
    judge(&ask(), Some(record), NOW, &caller(1, 1))
}

#[track_caller]
fn in_flight(judgement: Judgement) -> Running {
    match judgement {
        Judgement::InFlight(running) => running,
        other => panic!("expected in flight, got {other:?}"),
    }
}

#[test]
fn an_unreadable_version_is_in_flight_for_a_lease() {
    let r = Record { version: VERSION + 1, ..record(StateCode::Done, &outcome()) };
    let expected = Running { left: LEASE, fence: None, same_request: false };
    assert_eq!(in_flight(judged(&r)), expected);
    let mine = Record { owner: MINE, ..r };
    assert_eq!(in_flight(judged(&mine)), expected, "before anything else is looked at");
}

#[test]
fn what_is_not_there_was_raced_or_never_issued() {
    let over = Record { expires_at: NOW, ..record(StateCode::Done, &outcome()) };
    for found in [None, Some(&over)] {
        assert!(matches!(judge(&ask(), found, NOW, &caller(1, 1)), Judgement::Raced));
        assert!(matches!(judge(&ask_for(true), found, NOW, &caller(1, 1)), Judgement::NotIssued));
    }
}

#[test]
fn my_own_record_in_flight_is_my_grant_again() {
    let r = Record { owner: MINE, attempt: 2, ..record(StateCode::InFlight, &Payload::Nothing) };
    let Judgement::Again { claim, left } = judged(&r) else { panic!("it is mine") };
    assert_eq!((claim.fence().get(), claim.attempt(), left), (42, 2, 3 * SECOND));
    let over = Record { lease_until: NOW - SECOND, fingerprint: asked(2), ..r };
    let Judgement::Again { left, .. } = judged(&over) else { panic!("nobody acted on its end") };
    assert_eq!(left, Duration::ZERO);
}

#[test]
fn my_own_record_settled_is_a_stray_copys() {
    for state in [StateCode::Free, StateCode::Done, StateCode::Unknown, StateCode::Parked] {
        let r = Record { owner: MINE, ..record(state, &Payload::Nothing) };
        assert!(matches!(judged(&r), Judgement::Late), "{state:?}");
    }
}

#[test]
fn a_free_record_was_raced_unless_a_token_is_needed_and_it_is_none() {
    let free = Record { fingerprint: Fingerprint::NONE, ..record(StateCode::Free, &Payload::Nothing) };
    let token = Record { flags: Flags::ISSUED, ..free.clone() };
    assert!(matches!(judged(&free), Judgement::Raced));
    assert!(matches!(judge(&ask_for(true), Some(&free), NOW, &caller(1, 1)), Judgement::NotIssued));
    assert!(matches!(judge(&ask_for(true), Some(&token), NOW, &caller(1, 1)), Judgement::Raced));
    // Also with other credentials: it carries no outcome, and nobody's question.
    assert!(matches!(judge(&ask(), Some(&free), NOW, &caller(2, 1)), Judgement::Raced));
}

#[test]
fn an_outcome_for_a_question_of_another_version_is_unavailable() {
    for version in [Version { algorithm: 2, parameters: 7 }, Version { algorithm: 1, parameters: 8 }] {
        let fingerprint = Fingerprint::stored(version, [1; 32]);
        let done = Record { fingerprint, flags: Flags::BODY_KEPT, ..record(StateCode::Done, &outcome()) };
        assert!(matches!(judged(&done), Judgement::Unavailable { kept: None }));
        let running = Record { fingerprint, ..record(StateCode::InFlight, &Payload::Nothing) };
        assert_eq!(in_flight(judged(&running)).left, 3 * SECOND);
    }
}

/// Who came with another version of the question after an owner had died was told that it was done. Nobody knows that.
#[test]
fn an_unknown_for_a_question_of_another_version_is_unknown_and_not_done() {
    let fingerprint = Fingerprint::stored(Version { algorithm: 1, parameters: 8 }, [1; 32]);
    let settled = Record { lease_until: NOW - SECOND, ..record(StateCode::Unknown, &words()) };
    let dead = Record { lease_until: NOW - SECOND, ..record(StateCode::InFlight, &Payload::Nothing) };
    for r in [settled, dead] {
        for r in [Record { fingerprint, ..r.clone() }, Record { rest: Bytes::from_static(b"\x09?"), ..r }] {
            let Judgement::Unknown { since, last: None } = judged(&r) else { panic!("{:?}", judged(&r)) };
            assert_eq!(since, NOW - SECOND);
        }
    }
}

#[test]
fn a_rest_that_cannot_be_read_is_unavailable_and_never_a_run() {
    let r = Record { rest: Bytes::from_static(b"\x09?"), ..record(StateCode::Done, &outcome()) };
    assert!(matches!(judged(&r), Judgement::Unavailable { kept: None }));
    let running = Record { state: StateCode::InFlight, ..r.clone() };
    assert_eq!(in_flight(judged(&running)).left, 3 * SECOND);
    let parked = Record { state: StateCode::Parked, ..r };
    assert!(matches!(judged(&parked), Judgement::Parked { attempt: 1, last: None }));
}

#[test]
fn another_question_is_a_mismatch_in_every_state_that_has_one() {
    for state in [StateCode::InFlight, StateCode::Done, StateCode::Unknown] {
        let r = Record { fingerprint: asked(2), flags: Flags::BODY_KEPT, ..record(state, &outcome()) };
        assert!(matches!(judged(&r), Judgement::Mismatch), "{state:?}");
        // Before credentials: who reuses a key is told that, whoever it is.
        assert!(matches!(judge(&ask(), Some(&r), NOW, &caller(2, 2)), Judgement::Mismatch), "{state:?}");
    }
}

#[test]
fn other_credentials_get_no_stored_byte() {
    let strangers = [caller(2, 1), Caller::default(), Caller { credentials: None, request: Some([1; 16]) }];
    for state in [StateCode::InFlight, StateCode::Done, StateCode::Unknown, StateCode::Parked] {
        let r = Record { flags: Flags::BODY_KEPT, ..record(state, &outcome()) };
        for stranger in &strangers {
            assert!(matches!(judge(&ask(), Some(&r), NOW, stranger), Judgement::Stranger), "{state:?}, {stranger:?}");
        }
    }
}

#[test]
fn a_live_lease_is_in_flight_for_what_is_left_of_it() {
    let r = record(StateCode::InFlight, &Payload::Nothing);
    let expected = Running { left: 3 * SECOND, fence: Fence::new(42), same_request: true };
    assert_eq!(in_flight(judged(&r)), expected);
    assert!(!in_flight(judge(&ask(), Some(&r), NOW, &caller(1, 2))).same_request);
    let nearly = Record { lease_until: NOW + Duration::from_micros(1), ..r };
    assert_eq!(in_flight(judged(&nearly)).left, MIN_RETRY, "nobody is told to come back at once");
}

#[test]
fn a_lease_that_is_over_without_takeover_is_unknown_since_its_end() {
    for since in [NOW, NOW - 30 * SECOND] {
        let r = Record { lease_until: since, ..record(StateCode::InFlight, &Payload::Nothing) };
        let Judgement::Unknown { since: told, last: None } = judged(&r) else { panic!("nobody can tell") };
        assert_eq!(told, since);
    }
}

#[test]
fn a_lease_that_is_over_with_takeover_waits_for_the_grace_and_the_attempts() {
    let over = |since: Duration, attempt: u32| {
        let r = record(StateCode::InFlight, &Payload::Nothing);
        judged(&Record { flags: Flags::TAKEOVER, lease_until: NOW - since, attempt, ..r })
    };
    assert_eq!(in_flight(over(2 * SECOND, 1)).left, 3 * SECOND);
    assert!(matches!(over(GRACE, 1), Judgement::Raced));
    assert!(matches!(over(GRACE, 2), Judgement::Raced));
    assert!(matches!(over(SECOND, 3), Judgement::Parked { attempt: 3, .. }));
    assert!(matches!(over(GRACE, 4), Judgement::Parked { attempt: 4, .. }));
}

#[test]
fn a_recorded_outcome_is_replayed() {
    let r = Record { flags: Flags::BODY_KEPT, ..record(StateCode::Done, &outcome()) };
    let Judgement::Replay(recorded) = judged(&r) else { panic!("it is there") };
    assert_eq!(recorded.outcome.body, Body::Whole(Bytes::from_static(b"an order")));
    assert_eq!((recorded.settled_at, recorded.left), (NOW - SECOND, 60 * SECOND));
    assert!(recorded.same_request);
    let Judgement::Replay(recorded) = judge(&ask(), Some(&r), NOW, &caller(1, 2)) else { panic!("it is there") };
    assert!(!recorded.same_request);
}

#[test]
fn an_outcome_without_its_body_is_unavailable_and_says_what_is_left() {
    let r = record(StateCode::Done, &outcome());
    let Judgement::Unavailable { kept: Some(kept) } = judged(&r) else { panic!("the body is not there") };
    assert_eq!(kept.outcome.head, Bytes::from_static(b"201"));
    let bare = Record { flags: Flags::BODY_KEPT, ..record(StateCode::Done, &Payload::Nothing) };
    assert!(matches!(judged(&bare), Judgement::Unavailable { kept: None }));
}

#[test]
fn an_unknown_and_a_parked_record_say_so_with_their_last_words() {
    let since = NOW - SECOND;
    let r = Record { lease_until: since, ..record(StateCode::Unknown, &words()) };
    let Judgement::Unknown { since: told, last } = judged(&r) else { panic!("nobody can tell") };
    assert_eq!((told, last.as_deref()), (since, Some("connection reset")));
    let r = Record { attempt: 3, ..record(StateCode::Parked, &words()) };
    let Judgement::Parked { attempt, last } = judged(&r) else { panic!("a person decides") };
    assert_eq!((attempt, last.as_deref()), (3, Some("connection reset")));
}

/// What a claim is refused for and what its refusal means never disagree: where the transition would grant, the judge
/// says that it was raced, and nowhere else.
#[test]
fn the_judge_says_raced_exactly_where_a_claim_would_be_granted() {
    use crate::transition::{self, Step};
    let states = [StateCode::Free, StateCode::InFlight, StateCode::Done, StateCode::Unknown, StateCode::Parked];
    let mut granted = 0;
    for state in states {
        for case in 0..256_u32 {
            let bit = |n: u32| case >> n & 1 == 1;
            let r = Record {
                flags: Flags::when(bit(0), Flags::ISSUED).with(Flags::when(bit(1), Flags::TAKEOVER)),
                owner: if bit(2) { MINE } else { OTHER },
                lease_until: if bit(3) { NOW + SECOND } else { NOW - if bit(4) { SECOND } else { GRACE } },
                expires_at: if bit(5) { NOW } else { NOW + SECOND },
                fingerprint: if state == StateCode::Free || state == StateCode::Parked {
                    Fingerprint::NONE
                } else {
                    asked(if bit(6) { 2 } else { 1 })
                },
                ..record(state, &Payload::Nothing)
            };
            let ask = ask_for(bit(7));
            let grants = matches!(transition::claim(Some(&r), &ask, NOW), Step::Write(..));
            let raced = matches!(judge(&ask, Some(&r), NOW, &caller(1, 1)), Judgement::Raced);
            assert_eq!(grants, raced, "{ask:?}\n{r:?}");
            granted += u32::from(grants);
        }
    }
    assert!(granted > 100);
}

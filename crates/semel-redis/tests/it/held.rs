//! A completion in short touches what its claim made, as long as that counts, and nothing else.

use std::time::Duration;

use bytes::Bytes;
use semel_core::{
    Fence, Owner, StoreTime,
    record::{Flags, Record, StateCode, VERSION},
};
use semel_testkit::servers::redis::{Redis, Said, Setup};

use crate::questions::{LEASE, TTL, fingerprint, rest};

const KEY: &[u8] = b"semel:k";

/// As a claim without a script flags its record.
const MADE: Flags = Flags::from_byte(32);

/// What stands for `Arg::Now` where nobody knows the time.
const NEVER: i64 = i64::MAX;

fn script() -> String {
    [
        include_str!("../../src/script/complete_held.lua"),
        include_str!("../../src/script/head.lua"),
        include_str!("../../src/script/complete.lua"),
    ]
    .concat()
}

/// A record in flight, as a claim made it at `at`.
fn made(at: StoreTime) -> Record {
    Record {
        version: VERSION,
        state: StateCode::InFlight,
        flags: MADE,
        fingerprint: fingerprint(),
        owner: Owner::from_bytes([7; 16]),
        fence: Fence::new(u64::try_from(at.as_micros()).expect("after 1970")),
        attempt: 1,
        lease_until: at + LEASE,
        expires_at: at + LEASE + TTL,
        rest: rest(),
    }
}

/// What is there, by whose time its completion comes, and what that is.
struct Case {
    what: &'static str,
    there: Option<Bytes>,
    reckons: i64,
}

fn cases(now: StoreTime) -> Vec<Case> {
    let made = made(now);
    let made = || made.clone();
    let of = |what, record: Record| Case { what, there: Some(record.encode().into()), reckons: now.as_micros() };
    let whole = Bytes::from(made().encode());
    vec![
        of("as it was made", made()),
        of("of another owner", Record { owner: Owner::from_bytes([8; 16]), ..made() }),
        of("of another grant", Record { fence: Fence::new(1_800_000_000_000_000), ..made() }),
        of("that somebody waits for", Record { flags: MADE.with(Flags::WATCHED), ..made() }),
        of("of a token", Record { flags: MADE.with(Flags::ISSUED), ..made() }),
        of("that a script gave", Record { flags: Flags::NONE, ..made() }),
        of("that is unknown", Record { state: StateCode::Unknown, ..made() }),
        of("that is done", Record { state: StateCode::Done, ..made() }),
        of("that is over", Record { expires_at: now, ..made() }),
        Case { what: "cut short", there: Some(whole.slice(..40)), reckons: now.as_micros() },
        Case { what: "cut to nothing", there: Some(Bytes::new()), reckons: now.as_micros() },
        Case { what: "by nobody's time", there: Some(whole), reckons: NEVER },
        Case { what: "gone", there: None, reckons: now.as_micros() },
    ]
}

/// The cases whose completion is done in short, under this script. What is short writes what came, to the byte.
async fn short(server: &Redis, script: &str) -> Vec<&'static str> {
    let now = StoreTime::from_micros(1_790_000_000_000_000);
    let ends = now + Duration::from_secs(90);
    let outcome = Record { state: StateCode::Done, flags: Flags::BODY_KEPT, expires_at: ends, ..made(now) }.encode();
    let expected = &made(now).encode()[4..32];
    let mut short = Vec::new();
    for Case { what, there, reckons } in cases(now) {
        server.tell(&["FLUSHALL"]).await;
        if let Some(there) = &there {
            server.ask_bytes(&[b"SET", KEY, there]).await;
        }
        let reckons = reckons.to_string();
        let said = server
            .ask_bytes(&[b"EVAL", script.as_bytes(), b"1", KEY, &outcome, b"92000", expected, reckons.as_bytes()])
            .await;
        if matches!(said, Said::Int(1)) {
            assert_eq!(server.ask_bytes(&[b"GET", KEY]).await, Said::Text(outcome.clone()), "{what}");
            let stays = server.ask_bytes(&[b"PTTL", KEY]).await.number().expect("it ends");
            assert!((80_000..=92_000).contains(&stays), "{what}: {stays}");
            short.push(what);
        } else if let Said::Error(words) = said {
            short.push("a script that fails");
            assert!(!words.is_empty());
        }
    }
    short
}

#[tokio::test]
async fn what_a_claim_made_is_completed_in_short_and_nothing_else() {
    let server = Redis::start(&Setup::new()).await;
    assert_eq!(short(&server, &script()).await, ["as it was made"]);
}

/// What the test above has to see.
#[tokio::test]
async fn a_completion_in_short_that_does_not_look_is_caught() {
    let server = Redis::start(&Setup::new()).await;
    for (from, to) in [
        ("#held == 44 and ", ""),
        ("string.sub(held, 1, 28) == ARGV[3]", "true"),
        ("string.sub(held, 1, 28)", "ARGV[3]"),
        ("string.sub(held, 1, 28) == ARGV[3]", "string.sub(held, 5, 28) == string.sub(ARGV[3], 5)"),
        ("string.sub(held, 1, 28) == ARGV[3]", "string.sub(held, 1, 20) == string.sub(ARGV[3], 1, 20)"),
        (" and struct.unpack('>I8', held, 37) > ARGV[4] + 0", ""),
        ("> ARGV[4] + 0", "> ARGV[4] - 1"),
    ] {
        let wrong = script().replacen(from, to, 1);
        assert_ne!(wrong, script(), "the script does not say {from}");
        assert_ne!(short(&server, &wrong).await, ["as it was made"], "{from} => {to}");
    }
}

//! `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use semel_admin::metrics::{CONTENT_TYPE, Levels, Op, Outcome, Why};
use semel_admin::{Counts, Measured};
use semel_core::engine::{Answer, Call, Engine, Kept, Load, Local, OpenReason, Ran, StoreState, Verdict};
use semel_core::env::Env;
use semel_core::fingerprint::Fingerprint;
use semel_core::identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret};
use semel_core::observe::{Event, Observer, StoreCall, VerdictKind, What};
use semel_core::policy::Policy;
use semel_core::record::{Format, Outcome as Recorded};
use semel_core::refusal::Refusal;
use semel_core::store::{Did, Store, StoreError};

use crate::{get, memory, parts};

fn identity() -> Identity {
    let secret = Secret::random(&*Env::system().rng);
    Identity::new(
        &secret,
        Kind::Key,
        Namespace::http("test").expect("a name"),
        &Scope::shared(),
        &Key::new(&"k", Display::Masked),
    )
}

/// The value of a series, if it is there.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test]
async fn the_exposition_is_prometheus_text_with_every_series_from_the_start() {
    let (metrics, readiness) = parts();
    readiness.serving();
    let (status, kind, text) = get(&metrics, &readiness, "/metrics").await;
    assert_eq!((status, kind.as_str()), (200, CONTENT_TYPE));
    for rule in ["orders", "refunds"] {
        for outcome in Outcome::ALL {
            let series = format!("semel_requests_total{{rule=\"{rule}\",outcome=\"{}\"}}", outcome.label());
            assert_eq!(value(&text, &series), Some(0.0), "{series}");
        }
        for why in Why::ALL.iter().filter(|why| **why != Why::NoRule) {
            let series = format!("semel_unguarded_total{{rule=\"{rule}\",why=\"{}\"}}", why.label());
            assert_eq!(value(&text, &series), Some(0.0), "{series}");
        }
        assert_eq!(value(&text, &format!("semel_lease_lost_total{{rule=\"{rule}\"}}")), Some(0.0));
    }
    // What cannot be is no series: a rule whose requests have no rule, or a guarded request without one.
    let nameless: Vec<&str> = text.lines().filter(|line| line.contains("rule=\"\"")).collect();
    assert_eq!(nameless, ["semel_unguarded_total{rule=\"\",why=\"no-rule\"} 0"]);
    assert_eq!(text.matches("no-rule").count(), 1);
    for (series, expected) in [
        ("semel_build_info{version=\"1.2.3\"}", 1.0),
        ("semel_store_info{store=\"memory\",durability=\"none\",fence=\"strong\"}", 1.0),
        ("semel_store_up", 1.0),
        ("semel_store_records", 0.0),
        ("semel_draining", 0.0),
        ("semel_unknown", 0.0),
        ("semel_parked", 0.0),
        ("semel_claim_seconds_count", 0.0),
        ("semel_store_seconds_bucket{op=\"claim\",le=\"+Inf\"}", 0.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series} in\n{text}");
    }
    for line in text.lines() {
        assert!(line.starts_with("# ") || line.starts_with("semel_"), "{line}");
    }
}

#[test]
fn each_event_is_counted_once_under_its_rule() {
    let (metrics, _) = parts();
    let id = identity();
    let failed = StoreError::unavailable(Did::Unknown);
    let settled = |kept| What::Settled { verdict: VerdictKind::Keep, kept };
    let counted = |outcome| metrics.rule("orders").outcome(outcome).get();
    for (what, outcome) in [
        (What::Replayed { waited: false }, Outcome::Replayed),
        (What::Replayed { waited: true }, Outcome::Waited),
        (What::Refused(&Refusal::KeyReused), Outcome::KeyReused),
        (What::Refused(&Refusal::StoreFull), Outcome::StoreFull),
        (What::Refused(&Refusal::InFlight { retry_after: Duration::ZERO }), Outcome::InFlight),
        (What::TurnedAway("key-missing"), Outcome::KeyMissing),
        (What::TurnedAway("request-too-large"), Outcome::RequestTooLarge),
        (What::TurnedAway("nobody knows"), Outcome::Other),
        (settled(&Kept::Stored), Outcome::Fresh),
        (settled(&Kept::Released), Outcome::Released),
        (settled(&Kept::Unknown), Outcome::Unknown),
        (settled(&Kept::Unrecorded), Outcome::Unrecorded),
        (settled(&Kept::Lost { recorded: None }), Outcome::Lost),
    ] {
        let before = counted(outcome);
        metrics.on(&Event::new(&id, "orders", what));
        assert_eq!(counted(outcome), before + 1, "{outcome:?}");
    }
    metrics.on(&Event::new(&id, "orders", What::Unguarded(OpenReason::StoreDown)));
    metrics.on(&Event::new(&id, "orders", What::RecordMissing));
    metrics.on(&Event::new(&id, "", What::BreakerOpened));
    metrics.on(&Event::new(&id, "orders", settled(&Kept::Restored)));
    let text = metrics.render(&Levels::default()).unwrap();
    for series in [
        "semel_unguarded_total{rule=\"orders\",why=\"store-down\"}",
        "semel_store_missing_total",
        "semel_breaker_opened_total",
        "semel_store_restored_total",
    ] {
        assert_eq!(value(&text, series), Some(1.0), "{series}");
    }
    metrics.on(&Event::new(&id, "orders", What::LeaseLost));
    metrics.on(&Event::new(&id, "orders", What::Overheld));
    metrics.on(&Event::new(&id, "orders", What::Suspect { rejected: false }));
    metrics.on(&Event::new(&id, "orders", What::Suspect { rejected: true }));
    metrics.on(&Event::new(&id, "orders", What::Panicked("oh")));
    metrics.on(&Event::new(&id, "orders", What::LateSettlementRefused));
    metrics.on(&Event::new(&id, "", What::StoreFailed { call: StoreCall::Settle, error: &failed }));
    metrics.on(&Event::new(&id, "orders", What::Granted).took(Duration::from_millis(3)));
    let rule = metrics.rule("orders");
    assert_eq!((rule.lease_lost.get(), rule.overheld.get(), rule.panics.get(), rule.late.get()), (1, 1, 1, 1));
    let text = metrics.render(&Levels::default()).unwrap();
    assert_eq!(value(&text, "semel_suspects_total{rule=\"orders\"}"), Some(2.0));
    assert_eq!(metrics.store_errors(Op::Settle).get(), 1);
    assert_eq!(metrics.claim().snapshot().count, 1);
    assert_eq!(Outcome::ALL.iter().map(|o| metrics.rule("refunds").outcome(*o).get()).sum::<u64>(), 0);
}

#[test]
fn a_name_that_was_not_given_at_the_start_makes_no_series() {
    let (metrics, _) = parts();
    metrics.on(&Event::new(&identity(), "from-a-client", What::Replayed { waited: false }));
    let text = metrics.render(&Levels::default()).unwrap();
    assert!(!text.contains("from-a-client"));
    assert_eq!(value(&text, "semel_requests_total{rule=\"\",outcome=\"replayed\"}"), Some(1.0));
}

#[test]
fn levels_are_shown_where_they_are_known() {
    let (metrics, _) = parts();
    let text = metrics.render(&Levels::default()).unwrap();
    for absent in ["semel_inflight", "semel_waiters", "semel_unknown", "semel_store_records"] {
        assert_eq!(value(&text, absent), None);
    }
    assert_eq!(value(&text, "semel_store_up"), Some(0.0));
    metrics.watch(|| Load { running: 3, waiting: 7 });
    let local = Local { joined: 4, remembered: 5, bytes: 6 };
    metrics.watch_store(move || StoreState { breaker_open: true, lost: 8, local, ..StoreState::default() });
    metrics.rule("orders").unguarded(Why::NoKey).add_one();
    let text = metrics
        .render(&Levels { health: None, counts: Some(Counts { unknown: 2, parked: 1 }), draining: true })
        .unwrap();
    for (series, expected) in [
        ("semel_inflight", 3.0),
        ("semel_waiters", 7.0),
        ("semel_unknown", 2.0),
        ("semel_parked", 1.0),
        ("semel_draining", 1.0),
        ("semel_breaker_open", 1.0),
        ("semel_store_lost_total", 8.0),
        ("semel_local_joined_total", 4.0),
        ("semel_local_remembered_total", 5.0),
        ("semel_local_bytes", 6.0),
        ("semel_unguarded_total{rule=\"orders\",why=\"no-key\"}", 1.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}");
    }
}

#[tokio::test]
async fn a_measured_store_counts_its_calls() {
    let (metrics, _) = parts();
    let store = Measured::new(memory(), metrics.clone(), Arc::clone(&Env::system().clock));
    let _ = store.health().await.unwrap();
    let _ = store.get(&identity()).await.unwrap();
    assert_eq!(metrics.store_seconds(Op::Health).snapshot().count, 1);
    assert_eq!(metrics.store_seconds(Op::Get).snapshot().count, 1);
    assert_eq!(metrics.store_seconds(Op::Claim).snapshot().count, 0);
}

#[tokio::test]
async fn the_engine_feeds_them() {
    let (metrics, _) = parts();
    let env = Env::system();
    let secret = Secret::random(&*env.rng);
    let store = Arc::new(Measured::new(memory(), metrics.clone(), Arc::clone(&env.clock)));
    let engine = Engine::builder(store, secret).env(env).observe(Arc::new(metrics.clone())).build();
    let of = engine.clone();
    metrics.watch(move || of.load());
    let policy = Policy::key().named("orders").build().unwrap();
    let call = Call::new(identity(), Fingerprint::NONE, policy);
    let work =
        async |_run| Ran { value: (), verdict: Verdict::Keep(Recorded::new(Format::JSON, b"".as_slice(), "done")) };
    assert!(matches!(engine.run(call.clone(), work).await, Answer::Executed { .. }));
    for _ in 0..3 {
        assert!(matches!(engine.run(call.clone(), work).await, Answer::Replayed { .. }));
    }
    let text = metrics.render(&Levels::default()).unwrap();
    for (series, expected) in [
        ("semel_requests_total{rule=\"orders\",outcome=\"fresh\"}", 1.0),
        ("semel_requests_total{rule=\"orders\",outcome=\"replayed\"}", 3.0),
        ("semel_claim_seconds_count", 1.0),
        ("semel_store_seconds_count{op=\"claim\"}", 4.0),
        ("semel_store_seconds_count{op=\"settle\"}", 1.0),
        ("semel_inflight", 0.0),
        ("semel_waiters", 0.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series} in\n{text}");
    }
}

//! `/healthz` and `/readyz`.

use std::time::Duration;

use semel_admin::Readiness;
use semel_core::engine::StoreState;

use crate::stores::{Broken, How};
use crate::{get, parts};

#[tokio::test]
async fn a_living_process_says_so_whatever_its_store_does() {
    let (metrics, readiness) = parts();
    readiness.draining();
    assert_eq!(
        get(&metrics, &readiness, "/healthz").await,
        (200, "application/json".into(), r#"{"alive":true}"#.into())
    );
}

#[tokio::test]
async fn ready_means_serving_on_a_store_that_takes_claims() {
    let (metrics, readiness) = parts();
    let (status, _, body) = get(&metrics, &readiness, "/readyz").await;
    assert_eq!(
        (status, body.as_str()),
        (503, r#"{"notes":[],"ready":false,"reasons":[{"detail":"no requests are accepted yet","what":"starting"}]}"#)
    );
    readiness.serving();
    let (status, _, body) = get(&metrics, &readiness, "/readyz").await;
    assert_eq!((status, body.as_str()), (200, r#"{"notes":[],"ready":true,"reasons":[]}"#));
    readiness.draining();
    let (status, _, body) = get(&metrics, &readiness, "/readyz").await;
    assert_eq!(status, 503);
    assert!(body.contains(r#""what":"draining""#), "{body}");
}

#[tokio::test]
async fn a_store_that_lost_its_records_is_a_note_and_keeps_no_traffic_away() {
    let (metrics, readiness) = parts();
    readiness.serving();
    let since_lost = Some(Duration::from_secs(77));
    readiness.watch_store(move || StoreState { lost: 2, since_lost, ..StoreState::default() });
    let (status, _, body) = get(&metrics, &readiness, "/readyz").await;
    assert_eq!(status, 200);
    assert!(body.contains(r#""what":"store-lost""#) && body.contains("77 s ago (2 times in all)"), "{body}");
    let (metrics, readiness) = parts();
    readiness.watch_store(move || StoreState { lost: 1, since_lost, ..StoreState::default() });
    assert!(get(&metrics, &readiness, "/readyz").await.2.contains("77 s ago (once in all)"));
}

#[tokio::test]
async fn an_open_breaker_is_a_reason() {
    let (metrics, readiness) = parts();
    readiness.serving();
    readiness.watch_store(|| StoreState { breaker_open: true, ..StoreState::default() });
    let (status, _, body) = get(&metrics, &readiness, "/readyz").await;
    assert_eq!(status, 503);
    assert!(body.contains(r#""what":"breaker""#), "{body}");
}

/// Whatever the store says of itself: what counts is how it answers claims.
#[tokio::test]
async fn a_store_that_refuses_claims_as_full_is_a_reason_and_not_up() {
    let (metrics, readiness) = parts();
    readiness.serving();
    let full = || StoreState { full: true, ..StoreState::default() };
    readiness.watch_store(full);
    metrics.watch_store(full);
    let (status, _, body) = get(&metrics, &readiness, "/readyz").await;
    assert_eq!(status, 503);
    assert!(body.contains(r#""what":"store""#) && body.contains("no room"), "{body}");
    let text = get(&metrics, &readiness, "/metrics").await.2;
    assert!(text.contains("semel_store_up 0\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_store_in_trouble_is_named_with_its_trouble() {
    for (how, detail) in [
        (How::ReadOnly("the disk is full"), "the disk is full"),
        (How::ReadOnly(""), "the store takes no claims"),
        (How::Fails, "the store does not answer"),
        (How::Hangs, "the store does not answer within 1 s"),
    ] {
        let readiness = Readiness::new(Broken::new(how));
        readiness.serving();
        let reasons = readiness.reasons().await;
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].what == "store" && reasons[0].detail == detail, "{:?}", reasons[0]);
    }
}

//! Clients that leave.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use semel_core::engine::Engine;
use tower::ServiceExt;

use crate::support::*;

/// Yields to the runtime a few times, as work does that talks to others.
async fn work() {
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_at_any_moment_after_sending_leaves_one_effect_and_finds_its_answer() {
    for moment in 0..20 {
        let (engine, effects) = (Engine::memory(), Effects::default());
        let counted = effects.clone();
        let service = guard(&engine, rule(), move |_| {
            let effects = counted.clone();
            async move {
                work().await;
                let n = effects.happen();
                work().await;
                answer(201, format!("order {n}"))
            }
        });
        let mut first = Box::pin(service.clone().oneshot(post("k", "x")));
        let mut answered = false;
        for _ in 0..=moment {
            answered = (&mut first).now_or_never().is_some();
            if answered {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(first);
        let retry = send(&service, post("k", "x")).await;
        assert_eq!((retry.status.as_u16(), &*retry.body), (201, &b"order 1"[..]), "moment {moment}");
        assert!(matches!(retry.became(), "waited" | "replayed"), "moment {moment}: {}", retry.became());
        assert_eq!(effects.count(), 1, "moment {moment}, answered {answered}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_while_its_body_is_read_has_claimed_nothing() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, rule(), move |_| {
        let n = counted.happen();
        async move { answer(201, format!("order {n}")) }
    });
    let half = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"hal"))]).chain(stream::pending());
    let mut first = Box::pin(service.clone().oneshot(post("k", Body::from_stream(half))));
    for _ in 0..10 {
        assert!((&mut first).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    assert_eq!((effects.count(), engine.load().running), (0, 0));
    drop(first);
    // The key is free, also for another body.
    let next = send(&service, post("k", "whole")).await;
    assert_eq!((next.became(), effects.count()), ("fresh", 1));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused_and_claims_nothing() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, rule(), move |_| {
        counted.happen();
        async { answer(201, "") }
    });
    let cut = stream::iter([Ok(Bytes::from_static(b"hal")), Err(std::io::Error::other("reset"))]);
    let got = send(&service, post("k", Body::from_stream(cut))).await;
    assert_eq!((got.status.as_u16(), got.problem()), (400, "request-incomplete".to_owned()));
    assert_eq!(effects.count(), 0);
    assert_eq!(send(&service, post("k", "whole")).await.became(), "fresh");
}

#[tokio::test]
async fn a_drain_waits_for_work_whose_client_has_left() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, rule(), move |_| {
        let effects = counted.clone();
        async move {
            work().await;
            effects.happen();
            answer(201, "")
        }
    });
    let mut first = Box::pin(service.clone().oneshot(post("k", "x")));
    assert!((&mut first).now_or_never().is_none());
    drop(first);
    let drained = engine.drain(Duration::from_secs(5)).await;
    assert_eq!((effects.count(), drained.abandoned), (1, 0));
}

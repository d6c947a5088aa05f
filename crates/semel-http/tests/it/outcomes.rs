//! What answers mean, through the whole guard.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{Request, StatusCode};
use semel_core::engine::Engine;
use semel_http::{GuardLayer, Mark, MissingKey, classify::Outcomes, problem::ProblemKind};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::*;

/// What a second copy gets after a first answer with `status`: its status, what became of it, and how many effects.
async fn second(
    rule: semel_http::RuleBuilder,
    status: u16,
    word: Option<&'static str>,
    mark: Option<Mark>,
) -> (u16, String, usize) {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, rule, move |_| {
        counted.happen();
        let mut answer = answer(status, "body");
        for line in word.into_iter().flat_map(str::lines) {
            answer.headers_mut().append("semel-outcome", line.parse().unwrap());
        }
        if let Some(mark) = mark {
            answer.extensions_mut().insert(mark);
        }
        async move { answer }
    });
    let first = send(&service, post("k", "x")).await;
    assert_eq!((first.status.as_u16(), &*first.body), (status, &b"body"[..]), "the first caller gets what came");
    assert!(!first.headers.contains_key("semel-outcome"), "the word is for the guard");
    if status >= 400 {
        assert_eq!(first.header("idempotency-error-source"), "upstream");
    }
    let again = send(&service, post("k", "x")).await;
    let became = if again.problem().is_empty() { again.became().to_owned() } else { again.problem() };
    (again.status.as_u16(), became, effects.count())
}

#[tokio::test]
async fn answers_are_kept_released_or_unknown_as_the_table_says() {
    for status in [200, 201, 202, 303, 400, 404, 410, 422] {
        assert_eq!(second(rule(), status, None, None).await, (status, "replayed".into(), 1), "{status}");
    }
    for status in [401, 403, 407, 409, 421, 423, 425, 429] {
        assert_eq!(second(rule(), status, None, None).await, (status, "fresh".into(), 2), "{status}");
    }
    for status in [408, 500, 502, 503, 504] {
        assert_eq!(second(rule(), status, None, None).await, (409, "outcome-unknown".into(), 1), "{status}");
        let relaxed = rule().outcomes(Outcomes::relaxed());
        assert_eq!(second(relaxed, status, None, None).await, (status, "fresh".into(), 2), "{status}");
    }
    let early = rule().outcomes(Outcomes::strict().release_on([StatusCode::SERVICE_UNAVAILABLE]));
    assert_eq!(second(early, 503, None, None).await.2, 2);
    let callback = rule().callback(Duration::from_secs(60));
    assert_eq!(second(callback, 404, None, None).await.2, 2);
}

#[tokio::test]
async fn the_services_own_word_wins_over_the_table_and_a_mark_over_both() {
    assert_eq!(second(rule(), 500, Some("keep"), None).await, (500, "replayed".into(), 1));
    assert_eq!(second(rule(), 201, Some("release"), None).await, (201, "fresh".into(), 2));
    assert_eq!(second(rule(), 201, Some("unknown"), None).await, (409, "outcome-unknown".into(), 1));
    assert_eq!(second(rule(), 502, None, Some(Mark::NothingSent)).await, (502, "rejected".into(), 2));
    assert_eq!(second(rule(), 201, None, Some(Mark::Unknown)).await, (409, "outcome-unknown".into(), 1));
    assert_eq!(second(rule(), 502, Some("keep"), Some(Mark::NothingSent)).await, (502, "rejected".into(), 2));
}

/// Of two lines the first won, and a word that nobody knows was passed over: the table guessed.
#[tokio::test]
async fn a_word_of_the_service_that_cannot_be_read_is_unknown() {
    let relaxed = || rule().outcomes(Outcomes::relaxed());
    for status in [201, 500] {
        for word in ["release\nkeep", "keep\nrelease", "perhaps", "release, keep", "release\nperhaps", "released"] {
            let got = second(relaxed(), status, Some(word), None).await;
            assert_eq!(got, (409, "outcome-unknown".into(), 1), "{status} {word}");
        }
        // One word, however it is written.
        for word in ["Release", "release\nrelease", "RELEASE "] {
            assert_eq!(second(rule(), status, Some(word), None).await, (status, "fresh".into(), 2), "{status} {word}");
        }
    }
    assert_eq!(second(rule(), 502, Some("perhaps"), Some(Mark::NothingSent)).await, (502, "rejected".into(), 2));
}

/// It said `bypassed`, which is of requests that ran.
#[tokio::test]
async fn what_nobody_guards_says_whether_it_can_have_run_too() {
    for (mark, became) in [
        (None, "bypassed"),
        (Some(Mark::Keep), "bypassed"),
        (Some(Mark::Release), "bypassed"),
        (Some(Mark::NothingSent), "rejected"),
        (Some(Mark::Lost), "unknown"),
        (Some(Mark::Unknown), "unknown"),
    ] {
        let service = guard(&Engine::memory(), rule().missing(MissingKey::Optional), move |_| async move {
            let mut answer = answer(502, "no");
            if let Some(mark) = mark {
                answer.extensions_mut().insert(mark);
            }
            answer
        });
        let bare = Request::post("/orders").body(Body::empty()).unwrap();
        assert_eq!(send(&service, bare).await.became(), became, "{mark:?}");
    }
}

/// A proxy's own 502 said "unknown" to every rule, so that a relaxed one never freed the key after a broken connection,
/// as its table says it does.
#[tokio::test]
async fn a_lost_answer_is_what_the_rule_calls_a_failure_whatever_its_rows_say_about_the_status() {
    assert_eq!(second(rule(), 502, None, Some(Mark::Lost)).await, (409, "outcome-unknown".into(), 1));
    let relaxed = rule().outcomes(Outcomes::relaxed());
    assert_eq!(second(relaxed, 502, None, Some(Mark::Lost)).await, (502, "fresh".into(), 2));
    let early = rule().outcomes(Outcomes::strict().release_on([StatusCode::BAD_GATEWAY]));
    assert_eq!(second(early, 502, None, Some(Mark::Lost)).await, (409, "outcome-unknown".into(), 1));
}

/// A proxy's 502 and 504 had other words than the guard's, and no identity to ask for.
#[tokio::test]
async fn a_proxys_own_problem_is_told_as_the_guards_with_the_identity() {
    for (mark, kind, status, retryable) in [
        (Mark::NothingSent, ProblemKind::UpstreamUnreachable, "rejected", true),
        (Mark::Lost, ProblemKind::UpstreamTimeout, "unknown", false),
    ] {
        let engine = Engine::memory();
        let service = guard(&engine, rule(), move |_| async move {
            let mut answer = answer(kind.status().as_u16(), "the proxy's words");
            answer.extensions_mut().insert(mark);
            answer.extensions_mut().insert(kind);
            answer
        });
        let first = send(&service, post("k", "x")).await;
        let document: serde_json::Value = serde_json::from_slice(&first.body).unwrap();
        assert_eq!((first.status, first.became()), (kind.status(), status));
        assert_eq!(first.problem(), kind.name());
        assert_eq!(document["retryable"], retryable);
        assert_eq!(document["identity"].as_str().unwrap().len(), 16);
        assert_eq!(first.headers["cache-control"], "no-store");
        assert_eq!(first.headers["idempotency-error-source"], "guard");
    }
}

#[tokio::test]
async fn an_unknown_outcome_says_since_when_and_the_last_status() {
    let engine = Engine::memory();
    let service = guard(&engine, rule(), |_| async { answer(503, "secret words") });
    assert_eq!(send(&service, post("k", "x")).await.became(), "unknown");
    let again = send(&service, post("k", "x")).await;
    let document: serde_json::Value = serde_json::from_slice(&again.body).unwrap();
    assert_eq!((&document["last_status"], &document["retryable"]), (&503.into(), &false.into()));
    assert!(document["since"].as_str().unwrap().ends_with("GMT"));
    assert_eq!(document["identity"].as_str().unwrap().len(), 16);
    assert_eq!(again.became(), "unknown");
    assert!(!String::from_utf8_lossy(&again.body).contains("secret"));
}

#[tokio::test]
async fn an_attempt_that_was_not_sent_does_not_count() {
    let engine = Engine::memory();
    let service = guard(&engine, rule(), |request: Ask| async move {
        let mut answer = answer(502, request.headers()["semel-attempt"].to_str().unwrap().to_owned());
        answer.extensions_mut().insert(Mark::NothingSent);
        answer
    });
    for _ in 0..3 {
        assert_eq!(send(&service, post("k", "x")).await.body, "1");
    }
    let service = guard(&engine, rule(), |request: Ask| async move {
        answer(429, request.headers()["semel-attempt"].to_str().unwrap().to_owned())
    });
    for attempt in ["1", "2", "3"] {
        assert_eq!(send(&service, post("k2", "x")).await.body, attempt);
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_unknown() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, rule(), move |_| {
        counted.happen();
        let cut = stream::iter([Ok(Bytes::from_static(b"hal")), Err(std::io::Error::other("reset"))]);
        async { answer(200, Body::from_stream(cut)) }
    });
    let first = send(&service, post("k", "x")).await;
    assert_eq!((first.status.as_u16(), first.problem()), (502, "upstream-broken".to_owned()));
    assert_eq!(send(&service, post("k", "x")).await.problem(), "outcome-unknown");
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn the_inner_services_error_goes_to_the_first_caller_and_leaves_an_unknown() {
    #[derive(Debug, PartialEq)]
    struct Broken;
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let inner = service_fn(move |_: Ask| {
        counted.happen();
        async { Err::<http::Response<Body>, _>(Broken) }
    });
    let service = GuardLayer::new(engine, rule().build().unwrap()).layer(inner);
    let first: Result<_, Broken> = service.clone().oneshot(post("k", "x")).await;
    assert_eq!(first.unwrap_err(), Broken);
    let again = service.oneshot(post("k", "x")).await.unwrap();
    assert_eq!((again.status().as_u16(), effects.count()), (409, 1));
}

#[tokio::test]
async fn a_panic_is_unknown_and_the_process_lives() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, rule(), move |_| {
        counted.happen();
        async { panic!("on purpose") }
    });
    let first = send(&service, post("k", "x")).await;
    assert_eq!((first.status.as_u16(), first.problem()), (502, "upstream-broken".to_owned()));
    assert_eq!(send(&service, post("k", "x")).await.problem(), "outcome-unknown");
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn work_that_runs_into_max_hold_is_stopped_and_unknown() {
    let engine = Engine::memory();
    let hold = Duration::from_millis(300);
    let rule = rule().policy(|p| {
        p.lease(Duration::from_millis(100)).max_hold(hold).on_in_flight(semel_core::policy::OnInFlight::Reject)
    });
    let service = guard(&engine, rule, |_| std::future::pending());
    let first = send(&service, post("k", "x")).await;
    assert_eq!((first.status.as_u16(), first.problem()), (504, "upstream-timeout".to_owned()));
    assert_eq!(send(&service, post("k", "x")).await.problem(), "outcome-unknown");
}

#[tokio::test]
async fn infallible_stays_infallible() {
    fn takes(_: &impl tower::Service<Request<Body>, Error = Infallible>) {}
    takes(&guard(&Engine::memory(), rule(), |_| async { answer(200, "") }));
}

#[tokio::test]
async fn an_answer_that_frees_its_key_is_kept_until_no_time() {
    let service = guard(&Engine::memory(), rule(), |_| async { answer(409, "busy") });
    let got = send(&service, post("k", "x")).await;
    assert_eq!((got.became(), got.header("idempotency-expires")), ("fresh", ""));
}

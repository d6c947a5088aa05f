//! Many copies of one intent.

use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use semel_core::{
    engine::Engine,
    policy::{OnDuplicate, OnInFlight},
};
use semel_http::{Bodies, RejectStatus};
use tokio::sync::Semaphore;
use tower::{Layer, limit::ConcurrencyLimitLayer, service_fn};

use crate::support::*;

/// A service that counts and then waits until the gate opens.
fn slow(
    effects: &Effects,
    gate: &Arc<Semaphore>,
) -> impl Fn(Ask) -> std::pin::Pin<Box<dyn Future<Output = http::Response<axum::body::Body>> + Send>> + Clone + Sync + use<>
{
    let (effects, gate) = (effects.clone(), Arc::clone(gate));
    move |_| {
        let (effects, gate) = (effects.clone(), Arc::clone(&gate));
        Box::pin(async move {
            let n = effects.happen();
            gate.acquire().await.unwrap().forget();
            answer(201, format!("order {n}"))
        })
    }
}

fn storm(
    service: &impl Guarded,
    n: usize,
    request: impl Fn() -> http::Request<axum::body::Body>,
) -> Vec<tokio::task::JoinHandle<Got>> {
    (0..n)
        .map(|_| {
            let (service, request) = (service.clone(), request());
            #[expect(clippy::disallowed_methods, reason = "clients of the test, not work of the library")]
            tokio::spawn(async move { send(&service, request).await })
        })
        .collect()
}

async fn all(copies: Vec<tokio::task::JoinHandle<Got>>) -> Vec<Got> {
    let mut got = Vec::new();
    for copy in copies {
        got.push(copy.await.unwrap());
    }
    got
}

#[tokio::test]
async fn a_hundred_copies_that_wait_have_one_effect_and_equal_answers() {
    let (engine, effects, gate) = (Engine::memory(), Effects::default(), Arc::new(Semaphore::new(0)));
    let service = guard(&engine, rule(), slow(&effects, &gate));
    let copies = storm(&service, 100, || post("k", "x"));
    until("99 copies wait", || engine.load().waiting == 99).await;
    gate.add_permits(1);
    let got = all(copies).await;
    assert_eq!(effects.count(), 1);
    let mut became = HashMap::new();
    for answer in &got {
        assert_eq!((answer.status.as_u16(), &*answer.body), (201, &b"order 1"[..]));
        *became.entry(answer.became().to_owned()).or_insert(0) += 1;
    }
    assert_eq!(became, HashMap::from([("fresh".to_owned(), 1), ("waited".to_owned(), 99)]));
    let later = send(&service, post("k", "x")).await;
    assert_eq!((later.became(), later.header("idempotent-replayed")), ("replayed", "true"));
    assert_eq!(later.body, "order 1");
}

#[tokio::test]
async fn a_hundred_copies_that_are_rejected_have_one_effect_and_say_when_to_come_back() {
    let (engine, effects, gate) = (Engine::memory(), Effects::default(), Arc::new(Semaphore::new(0)));
    let rule = rule().policy(|p| p.on_in_flight(OnInFlight::Reject));
    let service = guard(&engine, rule, slow(&effects, &gate));
    let first = storm(&service, 1, || post("k", "x"));
    until("the first runs", || effects.count() == 1).await;
    for copy in all(storm(&service, 99, || post("k", "x"))).await {
        assert_eq!((copy.status.as_u16(), copy.problem()), (409, "in-flight".to_owned()));
        let seconds: u64 = copy.header("retry-after").parse().unwrap();
        assert!((1..=10).contains(&seconds), "within the lease: {seconds}");
        assert_eq!((copy.became(), copy.header("idempotency-error-source")), ("rejected", "guard"));
    }
    gate.add_permits(1);
    assert_eq!(all(first).await[0].became(), "fresh");
    assert_eq!(effects.count(), 1);
    assert_eq!(send(&service, post("k", "x")).await.body, "order 1");
}

#[tokio::test]
async fn copies_get_the_answer_of_the_attempt_they_met_and_the_next_request_runs() {
    let (engine, effects, gate) = (Engine::memory(), Effects::default(), Arc::new(Semaphore::new(0)));
    let (counted, opened) = (effects.clone(), Arc::clone(&gate));
    let service = guard(&engine, rule(), move |_| {
        let (effects, gate) = (counted.clone(), Arc::clone(&opened));
        async move {
            let n = effects.happen();
            gate.acquire().await.unwrap().forget();
            if n == 1 { answer(429, "slow down") } else { answer(201, "order") }
        }
    });
    let copies = storm(&service, 3, || post("k", "x"));
    until("two copies wait", || engine.load().waiting == 2).await;
    gate.add_permits(2);
    for copy in all(copies).await {
        assert_eq!((copy.status.as_u16(), &*copy.body), (429, &b"slow down"[..]));
        assert_eq!(copy.header("idempotency-error-source"), "upstream");
    }
    assert_eq!(effects.count(), 1);
    let next = send(&service, post("k", "x")).await;
    assert_eq!((next.status.as_u16(), next.became(), effects.count()), (201, "fresh", 2));
}

#[tokio::test]
async fn one_click_that_the_network_repeats_gets_equal_answers_and_a_second_click_gets_a_message() {
    let (engine, effects, gate) = (Engine::memory(), Effects::default(), Arc::new(Semaphore::new(0)));
    let rule = rule().policy(|p| p.on_duplicate(OnDuplicate::Reject));
    let service = guard(&engine, rule, slow(&effects, &gate));
    let copies = storm(&service, 3, || post("k", "x").with("x-request-id", "click-1"));
    until("two copies wait", || engine.load().waiting == 2).await;
    gate.add_permits(1);
    for copy in all(copies).await {
        assert_eq!((copy.status.as_u16(), &*copy.body), (201, &b"order 1"[..]));
    }
    let late = send(&service, post("k", "x").with("x-request-id", "click-1")).await;
    assert_eq!((late.became(), &*late.body), ("replayed", &b"order 1"[..]));
    for second in [post("k", "x").with("x-request-id", "click-2"), post("k", "x")] {
        let second = send(&service, second.with("accept", "text/plain")).await;
        assert_eq!((second.status.as_u16(), &*second.body), (409, &b"Already submitted.\n"[..]));
        assert_eq!(second.header("retry-after"), "", "no client shall retry a rejected duplicate by itself");
    }
    let chinese = send(&service, post("k", "x").with("accept-language", "zh-CN,zh;q=0.9")).await;
    assert_eq!(chinese.problem(), "duplicate");
    assert!(String::from_utf8_lossy(&chinese.body).contains("已提交"));
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn a_rule_that_rejects_with_429_says_when_the_window_ends() {
    let (engine, effects, gate) = (Engine::memory(), Effects::default(), Arc::new(Semaphore::new(0)));
    let rule = rule()
        .policy(|p| p.on_duplicate(OnDuplicate::Reject).ttl(Duration::from_secs(90)))
        .reject_status(RejectStatus::TooManyRequests);
    let service = guard(&engine, rule, slow(&effects, &gate));
    let first = storm(&service, 1, || post("k", "x"));
    until("the first runs", || effects.count() == 1).await;
    let seconds = |got: &Got| got.header("retry-after").parse::<u64>().unwrap();
    let met = send(&service, post("k", "x")).await;
    assert_eq!((met.status.as_u16(), met.problem(), met.became()), (429, "duplicate".to_owned(), "rejected"));
    assert_eq!(seconds(&met), 90, "the window begins when the first is settled");
    gate.add_permits(1);
    assert_eq!(all(first).await[0].status, 201);
    let late = send(&service, post("k", "x")).await;
    assert_eq!((late.status.as_u16(), late.problem()), (429, "duplicate".to_owned()));
    assert!((1..=90).contains(&seconds(&late)), "{}", seconds(&late));
    let document: serde_json::Value = serde_json::from_slice(&late.body).unwrap();
    assert_eq!((&document["status"], &document["title"]), (&429.into(), &"Too Many Requests".into()));
    assert_eq!(document["retryable"], false, "it would be another run");
    // With other credentials it is no duplicate of the caller's, and there is no window.
    let stranger = send(&service, post("k", "x").with("authorization", "another")).await;
    assert_eq!((stranger.status.as_u16(), stranger.header("retry-after")), (409, ""));
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn copies_that_wait_hold_no_permit_of_an_inner_limit() {
    let (engine, effects, gate) = (Engine::memory(), Effects::default(), Arc::new(Semaphore::new(0)));
    let handle = slow(&effects, &gate);
    let inner = service_fn(move |request: Ask| {
        let answer = handle(request);
        async move { Ok::<_, std::convert::Infallible>(answer.await) }
    });
    let limited = ConcurrencyLimitLayer::new(2).layer(inner);
    let service = semel_http::GuardLayer::new(engine.clone(), rule().build().unwrap()).layer(limited);
    let copies = storm(&service, 50, || post("k", "x"));
    until("49 copies wait", || engine.load().waiting == 49).await;
    // One of the two permits is free although 49 copies came through the limit.
    let other = storm(&service, 1, || post("other", "x"));
    until("another key runs", || effects.count() == 2).await;
    gate.add_permits(2);
    assert_eq!(all(other).await[0].status, 201);
    assert!(all(copies).await.iter().all(|c| c.status == 201));
    assert_eq!(effects.count(), 2);
}

#[tokio::test]
async fn a_copy_that_waits_too_long_is_told_that_it_is_in_flight() {
    let (engine, effects, gate) = (Engine::memory(), Effects::default(), Arc::new(Semaphore::new(0)));
    let rule = rule().policy(|p| p.on_in_flight(OnInFlight::Wait(Duration::from_millis(20))));
    let service = guard(&engine, rule, slow(&effects, &gate));
    let first = storm(&service, 1, || post("k", "x"));
    until("the first runs", || effects.count() == 1).await;
    assert_eq!(send(&service, post("k", "x")).await.problem(), "in-flight");
    gate.add_permits(1);
    assert_eq!(all(first).await[0].status, 201);
}

/// A body whose memory tells when it is given back.
fn tracked() -> (axum::body::Body, Weak<()>) {
    struct Owned(Vec<u8>, #[expect(dead_code, reason = "it is there while the body is")] Arc<()>);

    impl AsRef<[u8]> for Owned {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    let held = Arc::new(());
    let told = Arc::downgrade(&held);
    (bytes::Bytes::from_owner(Owned(vec![b'x'; 60_000], held)).into(), told)
}

/// A waiter never runs, so it needs what it asks for its fingerprint alone. A thousand of them would hold a thousand bodies.
#[tokio::test]
async fn a_copy_that_waits_has_given_up_its_body() {
    let (engine, effects, gate) = (Engine::memory(), Effects::default(), Arc::new(Semaphore::new(0)));
    let bodies = Bodies::default();
    let service = guard_within(&bodies, &engine, rule(), slow(&effects, &gate));
    let (bodies_of_copies, held): (Vec<_>, Vec<_>) = (0..3).map(|_| tracked()).unzip();
    assert!(held.iter().all(|body| body.strong_count() == 1));
    let bodies_of_copies = RefCell::new(bodies_of_copies);
    let copies = storm(&service, 3, || post("k", bodies_of_copies.borrow_mut().pop().expect("one for each")));
    until("one runs and two wait", || engine.load().waiting == 2 && effects.count() == 1).await;
    // The one that runs was taken by the service, which has dropped it.
    assert_eq!(held.iter().map(Weak::strong_count).sum::<usize>(), 0);
    assert_eq!(bodies.held().requests, 0);
    gate.add_permits(1);
    let got = all(copies).await;
    assert!(got.iter().all(|copy| copy.status == 201));
    assert_eq!(effects.count(), 1);
}

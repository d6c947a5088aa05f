//! Requests that are equal in all but the key.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use semel_core::{
    engine::Engine,
    env::Env,
    identity::Secret,
    observe::{Event, What},
    store::{Capacity, MemoryStore},
};
use semel_http::{RejectStatus, RuleBuilder, Suspect, fingerprint::FingerprintMode, fingerprint::Json, principal};
use tokio::sync::Semaphore;

use crate::support::*;

/// Longer than any test takes.
const WINDOW: Duration = Duration::from_secs(3_600);

/// Whether each suspect was rejected.
type Told = Arc<Mutex<Vec<(String, bool)>>>;

fn engine() -> (Engine, Told) {
    let told = Told::default();
    let heard = Arc::clone(&told);
    let env = Env::system();
    let store = MemoryStore::new(&env, Capacity::default());
    let observer = move |event: &Event<'_>| {
        if let What::Suspect { rejected } = event.what {
            heard.lock().push((event.rule.to_owned(), rejected));
        }
    };
    let secret = Secret::random(&*env.rng);
    (Engine::builder(Arc::new(store), secret).env(env).observe(Arc::new(observer)).build(), told)
}

/// Each user has a scope of their own.
fn users(what: Suspect) -> RuleBuilder {
    let user = principal::trusted_header(http::HeaderName::from_static("x-user"));
    semel_http::Rule::key().named("orders").principal(user).suspect(what, WINDOW)
}

/// A service that answers as the body says.
fn shop(engine: &Engine, rule: RuleBuilder, effects: &Effects) -> impl Guarded + use<> {
    let effects = effects.clone();
    guard(engine, rule, move |request: Ask| {
        let effects = effects.clone();
        async move {
            let body = http_body_util::BodyExt::collect(request.into_body()).await.unwrap().to_bytes();
            let n = effects.happen();
            match &*body {
                b"busy" => answer(429, "later"),
                b"broken" => answer(500, "oh"),
                b"panic" => panic!("as the test wants it"),
                _ => answer(201, format!("order {n}")),
            }
        }
    })
}

fn order(user: &str, key: &str, body: &'static str) -> http::Request<axum::body::Body> {
    post(key, body).with("x-user", user)
}

#[tokio::test]
async fn the_same_order_under_a_new_key_is_counted_and_runs() {
    let ((engine, told), effects) = (engine(), Effects::default());
    let service = shop(&engine, users(Suspect::Count), &effects);
    for (user, key, body) in [("ann", "1", "x"), ("bob", "2", "x"), ("ann", "3", "y")] {
        assert_eq!(send(&service, order(user, key, body)).await.became(), "fresh");
    }
    assert_eq!(*told.lock(), []);
    let second = send(&service, order("ann", "4", "x")).await;
    assert_eq!((second.status.as_u16(), second.became(), &*second.body), (201, "fresh", &b"order 4"[..]));
    assert_eq!(*told.lock(), [("orders".to_owned(), false)]);
    // Copies of either are copies, and no suspects.
    for key in ["1", "4"] {
        assert_eq!(send(&service, order("ann", key, "x")).await.became(), "replayed");
    }
    assert_eq!((told.lock().len(), effects.count()), (1, 4));
}

#[tokio::test]
async fn the_same_order_under_a_new_key_is_rejected_where_the_rule_says_so_and_its_key_stays_free() {
    let ((engine, told), effects) = (engine(), Effects::default());
    let rule = users(Suspect::Reject).policy(|p| p.message("Twice?"));
    let service = shop(&engine, rule, &effects);
    assert_eq!(send(&service, order("ann", "1", "x")).await.became(), "fresh");
    for _ in 0..2 {
        let second = send(&service, order("ann", "2", "x")).await;
        assert_eq!((second.status.as_u16(), second.problem(), second.became()), (409, "duplicate".into(), "rejected"));
        assert_eq!((second.header("retry-after"), second.header("idempotency-error-source")), ("", "guard"));
        assert!(String::from_utf8_lossy(&second.body).contains("Twice?"));
    }
    assert_eq!(*told.lock(), vec![("orders".to_owned(), true); 2]);
    assert_eq!(send(&service, order("ann", "1", "x")).await.became(), "replayed");
    assert_eq!(send(&service, order("ann", "2", "y")).await.became(), "fresh", "another question under the free key");
    assert_eq!(send(&service, order("bob", "2", "x")).await.became(), "fresh", "somebody else's");
    assert_eq!(effects.count(), 3);
}

#[tokio::test]
async fn a_rejected_suspect_is_told_when_it_is_none_any_more_if_the_rule_says_429() {
    let ((engine, _), effects) = (engine(), Effects::default());
    let service = shop(&engine, users(Suspect::Reject).reject_status(RejectStatus::TooManyRequests), &effects);
    assert_eq!(send(&service, order("ann", "1", "x")).await.became(), "fresh");
    let second = send(&service, order("ann", "2", "x")).await;
    assert_eq!((second.status.as_u16(), second.problem()), (429, "duplicate".to_owned()));
    let seconds: u64 = second.header("retry-after").parse().unwrap();
    assert!((1..=3_600).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn two_keys_at_once_are_one_order() {
    let ((engine, told), effects, gate) = (engine(), Effects::default(), Arc::new(Semaphore::new(0)));
    let (counted, opened) = (effects.clone(), Arc::clone(&gate));
    let service = guard(&engine, users(Suspect::Reject), move |_| {
        let (effects, gate) = (counted.clone(), Arc::clone(&opened));
        async move {
            effects.happen();
            gate.acquire().await.unwrap().forget();
            answer(201, "order")
        }
    });
    let (one, request) = (service.clone(), order("ann", "1", "x"));
    #[expect(clippy::disallowed_methods, reason = "a client of the test, not work of the library")]
    let first = tokio::spawn(async move { send(&one, request).await });
    until("the first runs", || effects.count() == 1).await;
    assert_eq!(send(&service, order("ann", "2", "x")).await.problem(), "duplicate");
    gate.add_permits(1);
    assert_eq!(first.await.unwrap().became(), "fresh");
    assert_eq!((effects.count(), told.lock().len()), (1, 1));
}

#[tokio::test]
async fn what_left_nothing_behind_is_no_reason_to_suspect_and_what_nobody_can_tell_is() {
    for (body, left, suspected) in [("busy", "fresh", false), ("broken", "unknown", true), ("panic", "unknown", true)] {
        let ((engine, told), effects) = (engine(), Effects::default());
        let service = shop(&engine, users(Suspect::Reject), &effects);
        assert_eq!(send(&service, order("ann", "1", body)).await.became(), left, "{body}");
        let second = send(&service, order("ann", "2", body)).await;
        assert_eq!(second.problem() == "duplicate", suspected, "{body}");
        assert_eq!((told.lock().len(), effects.count()), if suspected { (1, 1) } else { (0, 2) }, "{body}");
    }
}

#[tokio::test]
async fn callers_who_cannot_be_told_apart_are_not_compared() {
    let ((engine, told), effects) = (engine(), Effects::default());
    let service = shop(&engine, rule().suspect(Suspect::Reject, WINDOW), &effects);
    for (key, token) in [("1", None), ("2", None), ("3", Some("a")), ("4", Some("b"))] {
        let request = post(key, "x");
        let request = if let Some(token) = token { request.with("authorization", token) } else { request };
        assert_eq!(send(&service, request).await.became(), "fresh", "{key}");
    }
    assert_eq!(*told.lock(), []);
    let again = send(&service, post("5", "x").with("authorization", "a")).await;
    assert_eq!((again.problem(), effects.count()), ("duplicate".to_owned(), 4));
}

#[tokio::test]
async fn what_the_fingerprint_leaves_out_makes_no_difference() {
    let ((engine, told), effects) = (engine(), Effects::default());
    let without_time = FingerprintMode::Json(Json::default().without("/sent_at").unwrap());
    let service = shop(&engine, users(Suspect::Count).fingerprint(without_time), &effects);
    for (key, body) in [("1", r#"{"sku":7,"sent_at":1}"#), ("2", r#"{"sent_at":2,"sku":7}"#), ("3", r#"{"sku":8}"#)] {
        let request = order("ann", key, body).with("content-type", "application/json");
        assert_eq!(send(&service, request).await.became(), "fresh");
    }
    assert_eq!(told.lock().len(), 1);
}

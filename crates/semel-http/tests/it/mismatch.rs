//! The same key for something else, or by somebody else.

use axum::body::Body;
use http::{HeaderName, Method, Request};
use semel_core::engine::Engine;
use semel_http::{
    MissingKey, Rule,
    fingerprint::{FingerprintMode, Json},
    principal,
};

use crate::support::*;

const SECRET: &str = "the first answer";

fn service(engine: &Engine, rule: semel_http::RuleBuilder, effects: &Effects) -> impl Guarded + use<> {
    let effects = effects.clone();
    guard(engine, rule, move |_| {
        effects.happen();
        let mut answer = answer(201, SECRET);
        answer.headers_mut().insert("x-first", SECRET.parse().unwrap());
        async move { answer }
    })
}

fn leaks(got: &Got) -> bool {
    format!("{:?}{}", got.headers, String::from_utf8_lossy(&got.body)).contains(SECRET)
}

fn request(method: Method, uri: &str, body: &'static str) -> Request<Body> {
    let request = Request::builder().method(method).uri(uri).header("idempotency-key", "k");
    request.header("content-type", "application/json").body(body.into()).unwrap()
}

#[tokio::test]
async fn the_same_key_with_another_body_path_query_or_method_is_refused_and_nothing_leaks() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let service = service(&engine, rule(), &effects);
    let first = send(&service, request(Method::POST, "/orders?a=1", "{}")).await;
    assert_eq!(first.status, 201);
    for other in [
        request(Method::POST, "/orders?a=1", "{ }"),
        request(Method::POST, "/orders?a=1", ""),
        request(Method::POST, "/orders/7?a=1", "{}"),
        request(Method::POST, "/orders?a=2", "{}"),
        request(Method::POST, "/orders", "{}"),
        request(Method::PUT, "/orders?a=1", "{}"),
        request(Method::DELETE, "/orders?a=1", "{}"),
        request(Method::POST, "/orders?a=1", "{}").with("content-encoding", "gzip"),
    ] {
        let got = send(&service, other).await;
        assert_eq!((got.status.as_u16(), got.problem()), (422, "key-reused".to_owned()));
        assert!(!leaks(&got), "{got:?}");
    }
    assert_eq!(effects.count(), 1);
}

/// Two spellings of one method are one identity, as those of a path are: the second copy is refused, not run.
#[tokio::test]
async fn per_route_a_method_in_small_letters_is_no_other_intent() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, rule().per_route().every_method(), move |_| {
        counted.happen();
        async { answer(201, "") }
    });
    assert_eq!(send(&service, post("k", "x")).await.became(), "fresh");
    for method in ["post", "pOST"] {
        let mut copy = post("k", "x");
        *copy.method_mut() = method.parse().unwrap();
        assert_eq!(send(&service, copy).await.problem(), "key-reused", "{method}");
    }
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn per_route_the_same_key_elsewhere_is_another_intent() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let service = service(&engine, rule().per_route(), &effects);
    for (request, expected) in [
        (request(Method::POST, "/a", "{}"), 201),
        (request(Method::POST, "/b", "{}"), 201),
        (request(Method::PUT, "/a", "{}"), 201),
        (request(Method::POST, "/a?x=1", "{}"), 422),
    ] {
        assert_eq!(send(&service, request).await.status, expected);
    }
    assert_eq!(effects.count(), 3);
}

#[tokio::test]
async fn json_is_compared_by_its_meaning_where_the_rule_says_so() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let json = Json::default().without("/sent_at").unwrap();
    let service = service(&engine, rule().fingerprint(FingerprintMode::Json(json)), &effects);
    let ask = |body| request(Method::POST, "/orders", body);
    assert_eq!(send(&service, ask(r#"{"id":9007199254740993,"sent_at":1}"#)).await.became(), "fresh");
    let same = send(&service, ask(r#"{ "sent_at":2, "id":9007199254740993.0 }"#)).await;
    assert_eq!(same.became(), "replayed");
    let other = send(&service, ask(r#"{"id":9007199254740992,"sent_at":1}"#)).await;
    assert_eq!(other.problem(), "key-reused");
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn two_principals_with_one_key_have_two_effects_and_never_meet() {
    let user = HeaderName::from_static("x-user");
    for who in ["trusted", "api key"] {
        let (engine, effects) = (Engine::memory(), Effects::default());
        let rule = match who {
            "trusted" => Rule::key().principal(principal::trusted_header(user.clone())),
            _ => Rule::key().principal(principal::api_key(user.clone())),
        };
        let counted = effects.clone();
        let service = guard(&engine, rule, move |request: Ask| {
            let user = request.headers()["x-user"].to_str().unwrap().to_owned();
            counted.happen();
            async move { answer(201, user) }
        });
        for (user, became) in [("alice", "fresh"), ("bob", "fresh"), ("alice", "replayed"), ("bob", "replayed")] {
            // What a verified principal's credentials are does not matter: tokens rotate.
            let got = send(&service, post("k", "x").with("x-user", user).with("authorization", became)).await;
            assert_eq!((got.became(), &*got.body), (became, user.as_bytes()), "{who}");
        }
        assert_eq!(effects.count(), 2);
        let nobody = send(&service, post("k", "x")).await;
        assert_eq!((nobody.status.as_u16(), nobody.problem()), (403, "principal-missing".to_owned()));
        let two = send(&service, post("k", "x").with("x-user", "alice").with("x-user", "bob")).await;
        assert_eq!(two.problem(), "principal-missing");
    }
}

#[tokio::test]
async fn in_a_shared_scope_other_credentials_get_no_stored_byte() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let service = service(&engine, rule().missing(MissingKey::Optional), &effects);
    let alice = || post("k", "x").with("authorization", "Bearer alice");
    assert_eq!(send(&service, alice()).await.became(), "fresh");
    for other in
        [post("k", "x").with("authorization", "Bearer bob"), post("k", "x").with("cookie", "session=1"), post("k", "x")]
    {
        let got = send(&service, other).await;
        assert_eq!((got.status.as_u16(), got.problem()), (409, "duplicate".to_owned()));
        assert!(!leaks(&got), "{got:?}");
    }
    assert_eq!(send(&service, alice()).await.became(), "replayed");
    assert_eq!(effects.count(), 1);
}

/// Who calls may be told by another field than the usual ones.
#[tokio::test]
async fn in_a_shared_scope_the_credentials_are_those_that_the_rule_names() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let named = principal::Credentials::headers([HeaderName::from_static("x-device")]);
    let service = service(&engine, rule().credentials(named), &effects);
    let from = |device: &str| post("k", "x").with("x-device", device);
    assert_eq!(send(&service, from("a")).await.became(), "fresh");
    assert_eq!(send(&service, from("b")).await.problem(), "duplicate");
    assert_eq!(send(&service, from("a").with("authorization", "rotated")).await.became(), "replayed");
    assert_eq!(effects.count(), 1);
}

/// A path can be spelled in several ways, and is one place: the same key there is the same intent, or a mistake.
#[tokio::test]
async fn per_route_another_spelling_of_the_path_is_no_other_intent() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let service = service(&engine, rule().per_route(), &effects);
    assert_eq!(send(&service, request(Method::POST, "/orders", "{}")).await.became(), "fresh");
    assert_eq!(send(&service, request(Method::POST, "/%6Frders", "{}")).await.became(), "replayed");
    assert_eq!(effects.count(), 1);
}

//! Pages of other origins.

use std::{convert::Infallible, sync::Arc};

use axum::body::Body;
use http::{Method, Request, Response, header};
use semel_core::engine::Engine;
use semel_http::{Cors, GuardLayer, RequestView, key, principal};
use tower::{Layer, service_fn};

use crate::support::*;

const SHOP: &str = "https://shop.example.com";
const OTHER: &str = "https://other.example.com";

/// A service that lets pages of the shop send a JSON body and read `ETag`, as services do that know nothing of the guard.
fn handle(request: &Ask) -> Response<Body> {
    let origin = request.headers().get(header::ORIGIN).cloned().filter(|origin| origin == SHOP);
    let mut answer = answer(if request.method() == Method::OPTIONS { 204 } else { 201 }, "");
    let headers = answer.headers_mut();
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, "ETag".parse().unwrap());
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type".parse().unwrap());
    }
    answer
}

fn shop(layer: &GuardLayer) -> impl Guarded + use<> {
    layer.layer(service_fn(|request: Ask| {
        let answer = handle(&request);
        async move { Ok::<_, Infallible>(answer) }
    }))
}

fn guarded() -> GuardLayer {
    GuardLayer::new(Engine::memory(), rule().build().unwrap())
}

fn cors() -> Cors {
    Cors::origins([SHOP]).unwrap()
}

fn preflight(origin: &str, path: &str, method: &str) -> Request<Body> {
    let mut request = post("k", "").with("origin", origin).with("access-control-request-method", method);
    request.headers_mut().remove("idempotency-key");
    *request.method_mut() = Method::OPTIONS;
    *request.uri_mut() = path.parse().unwrap();
    request
}

const OURS: &str = "idempotency-status, idempotent-replayed, idempotency-expires, idempotency-error-source, retry-after, \
                    x-request-id";

#[tokio::test]
async fn without_the_switch_nothing_is_added() {
    let service = shop(&guarded());
    let asked = send(&service, preflight(SHOP, "/orders", "POST")).await;
    assert_eq!(asked.header("access-control-allow-headers"), "content-type");
    for became in ["fresh", "replayed"] {
        let got = send(&service, post("k", "x").with("origin", SHOP)).await;
        assert_eq!(got.became(), became);
        let (allowed, exposed) = if became == "fresh" { (SHOP, "ETag") } else { ("", "") };
        assert_eq!(got.header("access-control-allow-origin"), allowed);
        assert_eq!(got.header("access-control-expose-headers"), exposed);
    }
}

#[tokio::test]
async fn a_preflight_that_the_service_allows_allows_the_key() {
    let service = shop(&guarded().cors(cors()));
    let asked = send(&service, preflight(SHOP, "/orders", "POST")).await;
    assert_eq!(asked.header("access-control-allow-headers"), "content-type, idempotency-key");
    assert_eq!((asked.status.as_u16(), asked.header("access-control-allow-origin")), (204, SHOP));
    // What the service does not allow, nobody does.
    let refused = send(&service, preflight(OTHER, "/orders", "POST")).await;
    assert!(!refused.headers.keys().any(|name| name.as_str().starts_with("access-control")), "{:?}", refused.headers);
}

#[tokio::test]
async fn a_preflight_allows_the_key_of_the_rule_that_the_request_will_meet() {
    let made = |name: &str, header: &'static str| {
        let source = key::header([http::HeaderName::from_static(header)]);
        Arc::new(semel_http::Rule::key().named(name).principal(principal::shared()).source(source).build().unwrap())
    };
    let (orders, refunds) = (made("orders", "x-order"), made("refunds", "x-refund"));
    let rules = move |request: &RequestView<'_>| match (request.method.as_str(), request.uri.path()) {
        ("POST", "/orders") => Some(Arc::clone(&orders)),
        ("PATCH", "/refunds") => Some(Arc::clone(&refunds)),
        _ => None,
    };
    let service = shop(&GuardLayer::routed(Engine::memory(), rules).cors(cors()));
    for (path, method, allowed) in [
        ("/orders", "POST", "content-type, x-order"),
        ("/orders", "PATCH", "content-type"),
        ("/refunds", "PATCH", "content-type, x-refund"),
        ("/other", "POST", "content-type"),
    ] {
        let asked = send(&service, preflight(SHOP, path, method)).await;
        assert_eq!(asked.header("access-control-allow-headers"), allowed, "{method} {path}");
    }
}

#[tokio::test]
async fn answers_expose_what_became_of_the_request() {
    let service = shop(&guarded().cors(cors()));
    let fresh = send(&service, post("k", "x").with("origin", SHOP)).await;
    assert_eq!((fresh.became(), fresh.header("access-control-allow-origin")), ("fresh", SHOP));
    assert_eq!(fresh.header("access-control-expose-headers"), format!("ETag, {OURS}"));
    assert_eq!(fresh.header("access-control-allow-credentials"), "", "that is the service's word");
    // What nobody guards has a status as well.
    let mut bare = post("k", "x").with("origin", SHOP);
    bare.headers_mut().remove("idempotency-key");
    *bare.method_mut() = Method::DELETE;
    let passed = send(&service, bare).await;
    assert_eq!(
        (passed.became(), passed.header("access-control-expose-headers")),
        ("bypassed", &*format!("ETag, {OURS}"))
    );
}

#[tokio::test]
async fn what_the_service_never_sees_is_for_pages_of_the_named_origins() {
    let service = shop(&guarded().cors(cors()));
    assert_eq!(send(&service, post("k", "x")).await.header("access-control-expose-headers"), "", "no page asks");
    for (request, status) in [(post("k", "x"), 201), (post("k", "y"), 422), (post("", "x"), 400)] {
        let got = send(&service, request.with("origin", SHOP)).await;
        assert_eq!(got.status.as_u16(), status);
        assert_eq!(got.header("access-control-allow-origin"), SHOP, "{status}");
        assert_eq!(got.header("access-control-allow-credentials"), "true", "{status}");
        assert_eq!((got.header("vary"), got.header("access-control-expose-headers")), ("origin", OURS), "{status}");
    }
    for request in [post("k", "x"), post("k", "y"), post("", "x")] {
        let got = send(&service, request.with("origin", OTHER)).await;
        assert!(!got.headers.keys().any(|name| name.as_str().starts_with("access-control")), "{:?}", got.headers);
    }
    // A fresh answer that the service keeps from pages stays kept from them.
    let kept = send(&service, post("other", "x").with("origin", OTHER)).await;
    assert_eq!((kept.became(), kept.header("access-control-allow-origin")), ("fresh", ""));
}

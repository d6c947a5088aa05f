//! In axum.

use std::{convert::Infallible, time::Duration};

use axum::{Router, body::Body, extract::Path, routing::post as route};
use http::Request;
use http_body_util::BodyExt;
use semel_core::{
    engine::Engine,
    identity::{Principal, PrincipalKind},
    refusal::Refusal,
};
use semel_http::{GuardLayer, Rule, principal, problem::Problem};
use tower::ServiceExt;

use crate::support::rule;

async fn status(app: &Router, uri: &str) -> (u16, String) {
    let request = Request::post(uri).header("idempotency-key", "k").body(Body::empty()).unwrap();
    let answer = app.clone().oneshot(request).await.unwrap();
    let became = answer.headers().get("idempotency-status").map_or("", |v| v.to_str().unwrap()).to_owned();
    (answer.status().as_u16(), became)
}

#[tokio::test]
async fn nested_routers_do_not_hide_where_the_question_was_put() {
    let guarded = GuardLayer::new(Engine::memory(), rule().build().unwrap());
    let orders = Router::new().route("/orders/{id}", route(|Path(id): Path<u32>| async move { id.to_string() }));
    let app = Router::new().nest("/v1", orders.clone().layer(guarded.clone())).nest("/v2", orders.layer(guarded));
    assert_eq!(status(&app, "/v1/orders/7").await, (200, "fresh".into()));
    assert_eq!(status(&app, "/v1/orders/7").await, (200, "replayed".into()));
    // Inside, both are `/orders/7`.
    assert_eq!(status(&app, "/v2/orders/7").await, (422, "rejected".into()));
}

#[tokio::test]
async fn the_guard_fits_everywhere_a_layer_goes() {
    let guarded = || GuardLayer::new(Engine::memory(), rule().build().unwrap());
    let app: Router = Router::new()
        .route("/a", route(async || "a").layer(guarded()))
        .route("/b", route(async || "b"))
        .route_layer(guarded())
        .layer(guarded());
    assert_eq!(status(&app, "/b").await, (200, "fresh".into()));
    assert_eq!(status(&app, "/b").await, (200, "replayed".into()));
}

#[tokio::test]
async fn a_principal_from_an_extension_is_whoever_authentication_found() {
    #[derive(Clone)]
    struct User(u64);
    let by = principal::extension(|u: &User| Principal::new(PrincipalKind::Subject, u.0.to_string()));
    let guarded = GuardLayer::new(Engine::memory(), Rule::key().principal(by).build().unwrap());
    let app = Router::new().route("/a", route(async || "a")).layer(guarded);
    let seven = app.clone().layer(axum::Extension(User(7)));
    let eight = app.clone().layer(axum::Extension(User(8)));
    assert_eq!(status(&seven, "/a").await.1, "fresh");
    assert_eq!(status(&eight, "/a").await.1, "fresh");
    assert_eq!(status(&seven, "/a").await.1, "replayed");
    assert_eq!(status(&app, "/a").await, (403, "rejected".into()), "authentication stands behind the guard");
    let _: Result<_, Infallible> = app.oneshot(Request::new(Body::empty())).await;
}

/// A handler that claims by itself answers as the guard would.
#[tokio::test]
async fn a_problem_is_the_answer_of_a_handler() {
    async fn busy() -> Result<&'static str, Problem> {
        Err(Problem::of(&Refusal::InFlight { retry_after: Duration::from_secs(3) }))
    }
    let answer = Router::new().route("/a", route(busy)).oneshot(Request::post("/a").body(Body::empty()).unwrap()).await;
    let (head, body) = answer.unwrap().into_parts();
    let field = |name: &str| head.headers[name].to_str().unwrap();
    assert_eq!((head.status.as_u16(), field("content-type")), (409, "application/problem+json"));
    assert_eq!((field("retry-after"), field("idempotency-status")), ("3", "rejected"));
    let document: serde_json::Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(document["type"], "urn:semel:problem:in-flight");
}

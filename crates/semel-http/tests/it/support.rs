//! A guarded service that counts its effects, and a client.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body_util::BodyExt;
use semel_core::engine::Engine;
use semel_http::{Bodies, GuardLayer, RequestBody, ResponseBody, Rule, RuleBuilder, principal};
use tower::{Layer, Service, ServiceExt, service_fn};

pub(crate) type Ask = Request<RequestBody<Body>>;

/// A rule that everybody shares, for tests that are not about principals.
pub(crate) fn rule() -> RuleBuilder {
    Rule::key().principal(principal::shared())
}

/// What a test's service is: cloned for each request, as servers do.
pub(crate) trait Guarded:
    Service<Request<Body>, Response = Response<ResponseBody<Body>>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Guarded for S where
    S: Service<Request<Body>, Response = Response<ResponseBody<Body>>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// `handle` behind the guard.
pub(crate) fn guard<F, Fut>(engine: &Engine, rule: RuleBuilder, handle: F) -> impl Guarded + use<F, Fut>
where
    F: Fn(Ask) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<Body>> + Send + 'static,
{
    guard_within(&Bodies::default(), engine, rule, handle)
}

/// `handle` behind the guard, where bodies may take so much.
pub(crate) fn guard_within<F, Fut>(
    bodies: &Bodies,
    engine: &Engine,
    rule: RuleBuilder,
    handle: F,
) -> impl Guarded + use<F, Fut>
where
    F: Fn(Ask) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<Body>> + Send + 'static,
{
    let inner = service_fn(move |request| {
        let answer = handle(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    GuardLayer::new(engine.clone(), rule.build().unwrap()).bodies(bodies.clone()).layer(inner)
}

/// Counts effects.
#[derive(Clone, Default)]
pub(crate) struct Effects(Arc<AtomicUsize>);

impl Effects {
    /// One more; which one it is, from 1.
    pub(crate) fn happen(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A POST of `body` with `key`.
pub(crate) fn post(key: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post("/orders").header("idempotency-key", key).body(body.into()).unwrap()
}

pub(crate) trait With {
    fn with(self, name: &'static str, value: &str) -> Self;
}

impl With for Request<Body> {
    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers_mut().append(HeaderName::from_static(name), value.parse().unwrap());
        self
    }
}

pub(crate) fn answer(status: u16, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).body(body.into()).unwrap()
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }

    /// What became of the request, as the guard says.
    pub(crate) fn became(&self) -> &str {
        self.header("idempotency-status")
    }

    /// The name of the problem; empty for an answer of the service.
    pub(crate) fn problem(&self) -> String {
        let document: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        document["type"].as_str().unwrap_or_default().trim_start_matches("urn:semel:problem:").to_owned()
    }
}

pub(crate) async fn send(service: &impl Guarded, request: Request<Body>) -> Got {
    try_send(service, request).await.expect("the answer is not cut")
}

/// The error is that of the answer's body.
pub(crate) async fn try_send(service: &impl Guarded, request: Request<Body>) -> Result<Got, semel_http::BoxError> {
    let (head, body) = service.clone().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await?;
    let trailers = body.trailers().cloned();
    Ok(Got { status: head.status, headers: head.headers, body: body.to_bytes(), trailers })
}

/// Waits until `done`, at most five seconds.
pub(crate) async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..5_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what} did not come to pass");
}

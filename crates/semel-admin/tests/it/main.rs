//! The admin address from the outside.

mod documents;
mod listener;
mod metrics;
mod ready;
mod stores;

use std::sync::Arc;

use semel_admin::{Metrics, Readiness};
use semel_core::env::Env;
use semel_core::store::{Capacity, MemoryStore, Store};

pub(crate) fn memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(&Env::system(), Capacity::default()))
}

pub(crate) fn parts() -> (Metrics, Readiness) {
    let store = memory();
    (Metrics::new("1.2.3", store.facts(), ["orders", "refunds"]), Readiness::new(store))
}

/// Status, content type and body of a path.
pub(crate) async fn get(metrics: &Metrics, readiness: &Readiness, path: &str) -> (u16, String, String) {
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;
    let request = axum::http::Request::get(path).body(axum::body::Body::empty()).expect("a request");
    let answer = semel_admin::router(metrics.clone(), readiness.clone()).oneshot(request).await.expect("infallible");
    let status = answer.status().as_u16();
    let kind = answer.headers()["content-type"].to_str().expect("text").to_owned();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    (status, kind, String::from_utf8(body.to_vec()).expect("text"))
}

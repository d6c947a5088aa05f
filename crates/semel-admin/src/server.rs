//! The admin address.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;

use crate::metrics::CONTENT_TYPE as METRICS_TYPE;
use crate::{Metrics, Readiness};

#[derive(Clone)]
struct Shared {
    metrics: Metrics,
    readiness: Readiness,
}

/// `/healthz`, `/readyz` and `/metrics`, to serve or to nest.
pub fn router(metrics: Metrics, readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .fallback(async || answer(StatusCode::NOT_FOUND, json!({ "paths": ["/healthz", "/readyz", "/metrics"] })))
        .with_state(Shared { metrics, readiness })
}

/// The process lives: it could read this request and answer it.
async fn healthz() -> Response {
    answer(StatusCode::OK, json!({ "alive": true }))
}

/// The process should get traffic, or why not.
async fn readyz(State(shared): State<Shared>) -> Response {
    let reasons = shared.readiness.reasons().await;
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let notes = shared.readiness.notes();
    answer(status, json!({ "ready": reasons.is_empty(), "reasons": reasons, "notes": notes }))
}

async fn scrape(State(shared): State<Shared>) -> Response {
    let levels = shared.readiness.levels().await;
    match shared.metrics.render(&levels) {
        Ok(text) => plain([(CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE))], text),
        Err(_) => answer(StatusCode::INTERNAL_SERVER_ERROR, json!({ "error": "the metrics could not be written" })),
    }
}

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const NO_SNIFF: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));

fn answer(status: StatusCode, body: serde_json::Value) -> Response {
    (status, [(CACHE_CONTROL, NO_STORE), NO_SNIFF], Json(body)).into_response()
}

fn plain(head: [(HeaderName, HeaderValue); 1], body: String) -> Response {
    (head, [(CACHE_CONTROL, NO_STORE), NO_SNIFF], body).into_response()
}

/// Why the admin address cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum BindError {
    /// Other machines could reach it.
    NotLoopback(SocketAddr),
    /// The system refused it.
    Refused(SocketAddr, io::Error),
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoopback(at) => write!(
                f,
                "the admin address {at} can be reached from other machines, and it has no token and no mTLS in this version; \
                 use a loopback address such as 127.0.0.1:9090 and let a proxy with authentication forward it"
            ),
            Self::Refused(at, error) if error.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "the admin address {at} is in use by another process; stop that one, or take another port")
            }
            Self::Refused(at, error) => write!(f, "cannot listen on the admin address {at}: {error}"),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotLoopback(_) => None,
            Self::Refused(_, error) => Some(error),
        }
    }
}

/// The bound admin address.
#[derive(Debug)]
pub struct Listener {
    inner: TcpListener,
    at: SocketAddr,
}

impl Listener {
    /// Takes a loopback address; port 0 takes a free one. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`BindError`]: the address can be reached from other machines, or the system refuses it.
    pub async fn bind(at: SocketAddr) -> Result<Self, BindError> {
        if !at.ip().is_loopback() {
            return Err(BindError::NotLoopback(at));
        }
        let inner = TcpListener::bind(at).await.map_err(|error| BindError::Refused(at, error))?;
        let at = inner.local_addr().map_err(|error| BindError::Refused(at, error))?;
        Ok(Self { inner, at })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// Serves until `stop` ends; open requests are answered. Keep it serving while the gateway drains, so that
    /// `/readyz` says so.
    ///
    /// # Errors
    /// The listener broke.
    pub async fn serve(self, router: Router, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        axum::serve(self.inner, router).with_graceful_shutdown(stop).await
    }
}

//! Endpoints that are right, and endpoints that are wrong in one way each.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

const WORK: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Shop {
    effects: AtomicU64,
    /// Key → what was asked, what was answered.
    kept: Mutex<HashMap<String, (Bytes, Kept)>>,
    runs: Mutex<HashMap<String, u64>>,
    answers: AtomicU64,
}

type Kept = (StatusCode, String);

impl Shop {
    async fn work(&self) -> Kept {
        tokio::time::sleep(WORK).await;
        let id = self.effects.fetch_add(1, Ordering::SeqCst) + 1;
        (StatusCode::CREATED, format!(r#"{{"id":{id}}}"#))
    }
}

/// A server on a free port; gone when dropped.
pub(crate) struct Endpoint {
    address: SocketAddr,
    shop: Arc<Shop>,
    _task: JoinSet<()>,
}

impl Endpoint {
    pub(crate) async fn start() -> Self {
        let shop = Arc::new(Shop::default());
        let router = Router::new()
            .route("/safe", post(safe))
            .route("/slow", post(slow))
            .route("/marked", post(marked))
            .route("/racy", post(racy))
            .route("/twice", post(twice))
            .route("/differing", post(differing))
            .route("/unprotected", post(unprotected))
            .route("/mute", post(mute))
            .route("/deaf", post(deaf))
            .route("/leaky", post(leaky))
            .route("/sticky", post(sticky))
            .route("/broken", post(|| async { (StatusCode::BAD_REQUEST, "no") }))
            .route("/unreachable", post(unreachable))
            .route("/count", get(count))
            .with_state(shop.clone());
        Self::serve(shop, |listener| async move { axum::serve(listener, router).await.expect("it serves") }).await
    }

    /// Accepts and reads, and never answers.
    pub(crate) async fn hanging() -> Self {
        Self::raw(|mut stream| async move {
            let mut waste = [0; 1024];
            while stream.read(&mut waste).await.is_ok_and(|read| read > 0) {}
        })
        .await
    }

    /// Reads the request, then ends in the middle of the answer.
    pub(crate) async fn cutting() -> Self {
        Self::raw(|mut stream| async move {
            let mut waste = [0; 1024];
            _ = stream.read(&mut waste).await;
            _ = stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"id\":").await;
        })
        .await
    }

    async fn raw<F: Future<Output = ()> + Send + 'static>(talk: fn(tokio::net::TcpStream) -> F) -> Self {
        Self::serve(Arc::default(), move |listener| async move {
            let mut streams = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                streams.spawn(talk(stream));
            }
        })
        .await
    }

    async fn serve<F: Future<Output = ()> + Send + 'static>(
        shop: Arc<Shop>,
        server: impl FnOnce(TcpListener) -> F,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut task = JoinSet::new();
        task.spawn(server(listener));
        Self { address, shop, _task: task }
    }

    /// Of all keys so far.
    pub(crate) fn effects(&self) -> u64 {
        self.shop.effects.load(Ordering::SeqCst)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// An address where nobody listens.
pub(crate) async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    format!("http://{}/orders", listener.local_addr().expect("it is bound"))
}

fn key(headers: &HeaderMap) -> String {
    headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned()
}

/// One at a time, kept by key; another body is refused.
async fn safe(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> Response {
    let mut kept = shop.kept.lock().await;
    if let Some((asked, answer)) = kept.get(&key(&headers)) {
        return if *asked == body { answer.clone() } else { (StatusCode::UNPROCESSABLE_ENTITY, String::new()) }
            .into_response();
    }
    let answer = shop.work().await;
    kept.insert(key(&headers), (body, answer.clone()));
    answer.into_response()
}

/// How long `/slow` takes for one that runs.
pub(crate) const SLOW: Duration = Duration::from_millis(300);

/// Safe. What runs takes its time; its copies are refused meanwhile, at once.
async fn slow(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> Response {
    {
        let mut runs = shop.runs.lock().await;
        let run = runs.entry(key(&headers)).or_default();
        *run += 1;
        if *run > 1 {
            return StatusCode::CONFLICT.into_response();
        }
    }
    tokio::time::sleep(SLOW).await;
    safe(State(shop), headers, body).await
}

/// Safe, says the same to everybody, and marks what is a replay.
async fn marked(State(shop): State<Arc<Shop>>, headers: HeaderMap) -> Response {
    let mut kept = shop.kept.lock().await;
    if kept.contains_key(&key(&headers)) {
        return ([("idempotent-replayed", "true")], r#"{"ok":true}"#).into_response();
    }
    let answer = shop.work().await;
    kept.insert(key(&headers), (Bytes::new(), answer));
    ([("idempotency-status", "fresh")], r#"{"ok":true}"#).into_response()
}

/// How long the first copy of a key gives a second one to come.
const COMPANY: Duration = Duration::from_secs(2);

/// Looks, works, then keeps: all that look before the first one keeps run. If there is a second copy at all it comes in
/// time, on a busy machine as well.
async fn racy(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> Response {
    let found = shop.kept.lock().await.get(&key(&headers)).cloned();
    if let Some((_, answer)) = found {
        return answer.into_response();
    }
    *shop.runs.lock().await.entry(key(&headers)).or_default() += 1;
    let until = tokio::time::Instant::now() + COMPANY;
    while shop.runs.lock().await[&key(&headers)] < 2 && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answer = shop.work().await;
    shop.kept.lock().await.insert(key(&headers), (body, answer.clone()));
    answer.into_response()
}

/// Runs the first two copies of each key.
async fn twice(State(shop): State<Arc<Shop>>, headers: HeaderMap) -> Response {
    let mut runs = shop.runs.lock().await;
    let run = runs.entry(key(&headers)).or_default();
    *run += 1;
    if *run <= 2 { shop.work().await.into_response() } else { StatusCode::CONFLICT.into_response() }
}

/// One effect, but every copy is told something else.
async fn differing(State(shop): State<Arc<Shop>>, headers: HeaderMap) -> Response {
    let mut kept = shop.kept.lock().await;
    if let Entry::Vacant(free) = kept.entry(key(&headers)) {
        free.insert((Bytes::new(), shop.work().await));
    }
    format!(r#"{{"answer":{}}}"#, shop.answers.fetch_add(1, Ordering::SeqCst)).into_response()
}

async fn unprotected(State(shop): State<Arc<Shop>>) -> Response {
    shop.work().await.into_response()
}

/// Runs everything and says the same to everybody.
async fn mute(State(shop): State<Arc<Shop>>) -> Response {
    shop.work().await;
    r#"{"ok":true}"#.into_response()
}

/// Takes all keys for one.
async fn deaf(State(shop): State<Arc<Shop>>) -> Response {
    let mut kept = shop.kept.lock().await;
    if let Some((_, answer)) = kept.get("deaf") {
        return ([("idempotent-replayed", "true")], answer.clone()).into_response();
    }
    let answer = shop.work().await;
    kept.insert("deaf".to_owned(), (Bytes::new(), answer.clone()));
    answer.into_response()
}

/// What the gateway answers where its service is away.
async fn unreachable() -> impl IntoResponse {
    let problem = r#"{"type":"urn:semel:problem:upstream-unreachable","status":502}"#;
    (StatusCode::BAD_GATEWAY, [("content-type", "application/problem+json")], problem)
}

/// Safe, but hands the stored answer to another body.
async fn leaky(State(shop): State<Arc<Shop>>, headers: HeaderMap) -> Response {
    safe(State(shop), headers, Bytes::new()).await
}

/// With `fail: keep` the failure is kept, with `fail: free` the key stays free.
async fn sticky(State(shop): State<Arc<Shop>>, headers: HeaderMap, body: Bytes) -> Response {
    let fail = headers.get("fail").and_then(|value| value.to_str().ok());
    let failed = (StatusCode::SERVICE_UNAVAILABLE, String::new());
    match fail {
        Some("keep") => {
            shop.kept.lock().await.insert(key(&headers), (body, failed.clone()));
            failed.into_response()
        }
        Some(_) => failed.into_response(),
        None => safe(State(shop), headers, body).await,
    }
}

async fn count(State(shop): State<Arc<Shop>>) -> String {
    format!(r#"{{"effects":{{"total":{}}}}}"#, shop.effects.load(Ordering::SeqCst))
}

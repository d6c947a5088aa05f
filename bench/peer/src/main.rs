//! What people write by hand, as well as it is usually written: one `SET NX` before the call, one script that stores the
//! answer if the key is still ours, one `GET` for a duplicate. No lease that is renewed, no fence, no unknown outcomes, no
//! fingerprint: it does less than Semel, on the same Redis.
//!
//! `semel-bench-peer LISTEN UPSTREAM REDIS`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode, Uri};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use redis::aio::ConnectionManager;
use redis::{AsyncCommands as _, ExistenceCheck, Script, SetExpiry, SetOptions};

/// Milliseconds that a key is held while its request runs, and that an answer is kept.
const TTL_MS: u64 = 86_400_000;

struct Peer {
    client: Client<HttpConnector, Full<Bytes>>,
    upstream: String,
    redis: ConnectionManager,
    store: Script,
    free: Script,
    next: AtomicU64,
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(listen), Some(upstream), Some(url)) = (args.next(), args.next(), args.next()) else {
        panic!("semel-bench-peer LISTEN UPSTREAM REDIS");
    };
    let redis = redis::Client::open(url).expect("a Redis URL").get_connection_manager().await.expect("a Redis");
    let peer = Peer {
        client: Client::builder(TokioExecutor::new()).build_http(),
        upstream,
        redis,
        store: Script::new(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end",
        ),
        free: Script::new("if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"),
        next: AtomicU64::new(1),
    };
    let app = axum::Router::new().fallback(once).with_state(Arc::new(peer));
    let listener = tokio::net::TcpListener::bind(listen).await.expect("a free address");
    axum::serve(listener, app).await.expect("it serves");
}

async fn once(State(peer): State<Arc<Peer>>, request: Request) -> Response<Body> {
    let Some(key) = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return call(&peer, request).await.map_or_else(|()| said(StatusCode::BAD_GATEWAY), answer);
    };
    let key = format!("peer:{key}");
    let token = format!("p{}", peer.next.fetch_add(1, Ordering::Relaxed));
    let mut redis = peer.redis.clone();
    let options = SetOptions::default().conditional_set(ExistenceCheck::NX).with_expiration(SetExpiry::PX(TTL_MS));
    let first: Result<Option<String>, _> = redis.set_options(&key, &token, options).await;
    match first {
        Ok(Some(_)) => {}
        Ok(None) => {
            let stored: Result<Option<Vec<u8>>, _> = redis.get(&key).await;
            return match stored {
                Ok(Some(bytes)) if bytes.first() == Some(&b'a') => answer(Bytes::from(bytes).slice(1..)),
                Ok(_) => said(StatusCode::CONFLICT),
                Err(_) => said(StatusCode::SERVICE_UNAVAILABLE),
            };
        }
        Err(_) => return said(StatusCode::SERVICE_UNAVAILABLE),
    }
    match call(&peer, request).await {
        Ok(body) => {
            let kept = [&b"a"[..], &body].concat();
            let stored: Result<(), _> =
                peer.store.key(&key).arg(&token).arg(kept).arg(TTL_MS).invoke_async(&mut redis).await;
            stored.map_or_else(|_| said(StatusCode::SERVICE_UNAVAILABLE), |()| answer(body))
        }
        Err(()) => {
            let _freed: Result<(), _> = peer.free.key(&key).arg(&token).invoke_async(&mut redis).await;
            said(StatusCode::BAD_GATEWAY)
        }
    }
}

/// The upstream's answer; only its body is kept, as such services do.
async fn call(peer: &Peer, request: Request) -> Result<Bytes, ()> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| ())?.to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = format!("{}{path}", peer.upstream).parse::<Uri>().map_err(|_| ())?;
    let response = peer.client.request(Request::from_parts(head, Full::new(body))).await.map_err(|_| ())?;
    if !response.status().is_success() {
        return Err(());
    }
    Ok(response.into_body().collect().await.map_err(|_| ())?.to_bytes())
}

fn answer(body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}

fn said(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

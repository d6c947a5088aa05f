//! Replays are byte-identical.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use semel_core::{
    engine::Engine,
    env::Env,
    identity::Secret,
    store::{Capacity, MemoryStore},
};
use semel_http::ReplayHeaders;
use semel_testkit::clock::ManualClock;

use crate::support::*;

/// The first answer and its replay.
async fn twice(make: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static) -> (Got, Got) {
    twice_under(rule(), make).await
}

async fn twice_under(
    rule: semel_http::RuleBuilder,
    make: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
) -> (Got, Got) {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, rule, move |_| {
        counted.happen();
        let answer = make();
        async move { answer }
    });
    let first = send(&service, post("k", "x")).await;
    let second = send(&service, post("k", "x")).await;
    assert_eq!((first.became(), second.became(), effects.count()), ("fresh", "replayed", 1));
    assert_eq!((first.status, &first.body, &first.trailers), (second.status, &second.body, &second.trailers));
    assert_eq!(second.header("idempotent-replayed"), "true");
    assert!(second.header("idempotency-expires").ends_with(" GMT"));
    (first, second)
}

fn lines(got: &Got, name: &str) -> Vec<HeaderValue> {
    got.headers.get_all(name).iter().cloned().collect()
}

#[tokio::test]
async fn headers_come_back_line_by_line_and_cookies_do_not() {
    let (first, second) = twice(|| {
        Response::builder()
            .status(201)
            .header("set-cookie", "a=1")
            .header("set-cookie", "b=2")
            .header("link", "</a>; rel=next, </b>; rel=last")
            .header("link", "</c>")
            .header("x-odd", HeaderValue::from_bytes(b"\xfc, \xe4").unwrap())
            .header("etag", "W/\"x\"")
            .header("vary", "accept, origin")
            .header("cache-control", "no-store")
            .header("connection", "x-hop")
            .header("x-hop", "1")
            .header("www-authenticate", "Basic")
            .header("x-request-id", "1")
            .header("access-control-allow-origin", "*")
            .body("x".into())
            .unwrap()
    })
    .await;
    assert_eq!(lines(&first, "set-cookie").len(), 2);
    for kept in ["link", "x-odd", "etag", "vary", "cache-control"] {
        assert!(!lines(&first, kept).is_empty());
        assert_eq!(lines(&first, kept), lines(&second, kept), "{kept}");
    }
    for gone in ["set-cookie", "x-hop", "connection", "www-authenticate", "x-request-id", "access-control-allow-origin"]
    {
        assert!(lines(&second, gone).is_empty(), "{gone}");
    }
}

#[tokio::test]
async fn a_rule_may_allow_cookies_and_deny_others() {
    let replay = ReplayHeaders::default().allow([http::header::SET_COOKIE]).deny([http::header::ETAG]);
    let (_, second) = twice_under(rule().replay(replay), || {
        Response::builder().header("set-cookie", "a=1").header("etag", "x").body(Body::empty()).unwrap()
    })
    .await;
    assert_eq!(lines(&second, "set-cookie"), ["a=1"]);
    assert!(lines(&second, "etag").is_empty());
}

#[tokio::test]
async fn an_empty_204_and_a_303_with_location_come_back() {
    let (_, empty) = twice(|| answer(204, Body::empty())).await;
    assert_eq!((empty.status.as_u16(), empty.body.len()), (204, 0));
    let (_, other) =
        twice(|| Response::builder().status(303).header("location", "/orders/7,8").body(Body::empty()).unwrap()).await;
    assert_eq!((other.status.as_u16(), other.header("location")), (303, "/orders/7,8"));
}

#[tokio::test]
async fn compressed_binary_and_large_bodies_come_back_byte_by_byte() {
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let (_, packed) =
        twice(move || Response::builder().header("content-encoding", "gzip").body(gzip.to_vec().into()).unwrap()).await;
    assert_eq!((packed.header("content-encoding"), &*packed.body), ("gzip", &gzip[..]));
    let large: Vec<u8> = (0..4 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let kept = Bytes::from(large);
    let body = kept.clone();
    let (_, replayed) = twice(move || answer(200, body.clone())).await;
    assert_eq!(replayed.body, kept);
}

#[tokio::test]
async fn chunks_and_trailers_come_back() {
    let (_, second) = twice(|| {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", HeaderValue::from_static("7"));
        let frames = ["one ", "two ", "", "three"].map(|p| Ok(Frame::data(Bytes::from_static(p.as_bytes()))));
        let all: Vec<Result<_, std::io::Error>> = frames.into_iter().chain([Ok(Frame::trailers(trailers))]).collect();
        answer(200, Body::new(StreamBody::new(stream::iter(all))))
    })
    .await;
    assert_eq!(second.body, "one two three");
    assert_eq!(second.trailers.unwrap()["x-checksum"], "7");
}

/// What is left of the time is told, not the whole of it again.
#[tokio::test]
async fn a_replay_says_until_when_the_first_answer_is_kept() {
    let clock = ManualClock::new();
    let env = Env { clock: Arc::new(clock.clone()), ..Env::system() };
    let store = Arc::new(MemoryStore::new(&env, Capacity::default()));
    let engine = Engine::builder(store, Secret::random(&*env.rng)).env(env).build();
    let service = guard(&engine, rule(), |_| async { answer(201, "order") });
    let first = send(&service, post("k", "x")).await;
    assert!(first.header("idempotency-expires").ends_with(" GMT"));
    clock.advance(Duration::from_secs(100));
    let second = send(&service, post("k", "x")).await;
    assert_eq!(second.became(), "replayed");
    assert_eq!(second.header("idempotency-expires"), first.header("idempotency-expires"));
}

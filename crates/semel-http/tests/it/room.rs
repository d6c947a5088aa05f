//! What the bodies of many requests may take together, and how long.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http_body_util::BodyExt;
use semel_core::{engine::Engine, testing};
use semel_http::{Bodies, Caps};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

use crate::support::*;

const LARGE: usize = 60_000;

fn large() -> Bytes {
    Bytes::from(vec![b'x'; LARGE])
}

/// A large body of unknown length that does not end.
fn endless() -> Body {
    let pieces = stream::iter((0..6).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; LARGE / 6]))));
    Body::from_stream(pieces.chain(stream::pending()))
}

/// Pieces of `len` bytes, one every `pause`, for ever.
fn drip(len: usize, pause: Duration) -> Body {
    Body::from_stream(stream::unfold((), move |()| async move {
        sleep(pause).await;
        Some((Ok::<_, std::io::Error>(Bytes::from(vec![b'y'; len])), ()))
    }))
}

#[tokio::test(start_paused = true)]
async fn a_body_that_trickles_is_refused_when_its_time_is_over_and_claims_nothing() {
    let (engine, effects) = (testing::engine(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, rule(), move |_| {
        counted.happen();
        async { answer(200, "") }
    });
    let began = Instant::now();
    let got = send(&service, post("k", drip(1, Duration::from_secs(20)))).await;
    assert_eq!((got.status.as_u16(), got.problem(), got.became()), (408, "request-timeout".to_owned(), "rejected"));
    assert!((60..=100).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(effects.count(), 0);
    assert_eq!(send(&service, post("k", "whole")).await.became(), "fresh");
}

#[tokio::test]
async fn requests_without_room_for_their_bodies_are_refused_until_there_is() {
    let (engine, bodies) = (Engine::memory(), Bodies::default().requests(100_000));
    let service = guard_within(&bodies, &engine, rule(), |request: Ask| async {
        answer(200, request.into_body().collect().await.unwrap().to_bytes().len().to_string())
    });
    let mut first = Box::pin(service.clone().oneshot(post("first", endless())));
    assert!((&mut first).now_or_never().is_none());
    assert!((LARGE..=100_000).contains(&bodies.held().requests), "{:?}", bodies.held());
    for body in [Body::from(large()), endless()] {
        let got = send(&service, post("second", body)).await;
        assert_eq!((got.status.as_u16(), got.problem()), (503, "too-many-bodies".to_owned()));
        assert_eq!((got.header("retry-after"), got.became()), ("1", "rejected"));
    }
    assert_eq!(send(&service, post("small", "small")).await.body, "5");
    assert_eq!(bodies.held().requests_refused, 2);
    // Its client leaves.
    drop(first);
    assert_eq!(bodies.held().requests, 0);
    assert_eq!(send(&service, post("second", large())).await.body, LARGE.to_string());
    assert_eq!(bodies.held().requests, 0, "the service has taken it");
}

#[tokio::test]
async fn answers_without_room_are_passed_on_and_recorded_without_their_body() {
    for known in [true, false] {
        let (engine, bodies, effects) = (Engine::memory(), Bodies::default().answers(100_000), Effects::default());
        let counted = effects.clone();
        let service = guard_within(&bodies, &engine, rule(), move |_| {
            counted.happen();
            let pieces = stream::iter((0..6).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; LARGE / 6]))));
            let body = if known { Body::from(large()) } else { Body::from_stream(pieces) };
            async move { answer(201, body) }
        });
        let first = service.clone().oneshot(post("first", "x")).await.unwrap();
        assert!((LARGE..=100_000).contains(&bodies.held().answers), "{:?}", bodies.held());
        // Its client has not taken it: the next one finds no room.
        let second = send(&service, post("second", "x")).await;
        assert_eq!((second.status.as_u16(), second.became(), second.body.len()), (201, "fresh", LARGE));
        let again = send(&service, post("second", "x")).await;
        assert_eq!((again.status.as_u16(), again.problem()), (409, "outcome-unavailable".to_owned()));
        assert_eq!(bodies.held().answers_not_kept, 1);
        assert_eq!(first.into_body().collect().await.unwrap().to_bytes().len(), LARGE);
        assert_eq!(bodies.held().answers, 0, "what is recorded is the store's to count");
        for became in ["fresh", "replayed"] {
            let third = send(&service, post("third", "x")).await;
            assert_eq!((third.became(), third.body.len()), (became, LARGE));
        }
        assert_eq!(effects.count(), 3, "known length: {known}");
    }
}

/// Each client that asked again and read nothing held the recorded answer once more, and nothing counted it.
#[tokio::test]
async fn replays_without_room_are_refused_until_others_have_been_taken_to_their_last_byte() {
    let (engine, bodies, effects) = (Engine::memory(), Bodies::default().answers(200_000), Effects::default());
    let counted = effects.clone();
    let service = guard_within(&bodies, &engine, rule(), move |request: Ask| {
        counted.happen();
        let small = request.headers()["idempotency-key"] == "small";
        async move { answer(201, if small { large().slice(..16 << 10) } else { large() }) }
    });
    for key in ["k", "small"] {
        assert_eq!(send(&service, post(key, "x")).await.became(), "fresh");
    }
    let mut unread = Vec::new();
    for _ in 0..2 {
        unread.push(service.clone().oneshot(post("k", "x")).await.unwrap());
    }
    assert_eq!(bodies.held().answers, 2 * LARGE);
    let got = send(&service, post("k", "x")).await;
    assert_eq!((got.status.as_u16(), got.problem()), (503, "too-many-bodies".to_owned()));
    assert_eq!((got.header("retry-after"), got.became()), ("1", "rejected"));
    assert_eq!((bodies.held().requests_refused, bodies.held().answers_not_kept), (1, 0));
    // What is small is not counted, and what has yet to be recorded finds room beside the replays.
    assert_eq!(send(&service, post("small", "x")).await.became(), "replayed");
    assert_eq!(send(&service, post("new", "x")).await.became(), "fresh");
    let mut taken = unread.pop().expect("two are unread").into_body();
    let frame = taken.frame().await.expect("it has a body").expect("it is whole");
    assert!(taken.frame().await.is_none());
    assert_eq!(bodies.held().answers, 2 * LARGE, "the connection has not sent it yet");
    drop(frame);
    assert_eq!(bodies.held().answers, LARGE);
    for key in ["k", "new"] {
        let got = send(&service, post(key, "x")).await;
        assert_eq!((got.became(), got.body.len()), ("replayed", LARGE), "{key}");
    }
    drop(unread);
    assert_eq!((bodies.held().answers, bodies.held().answers_not_kept, effects.count()), (0, 0, 3));
}

#[tokio::test]
async fn copies_that_waited_for_one_answer_take_room_each() {
    let (engine, bodies) = (Engine::memory(), Bodies::default().answers(200_000));
    let (open, gate) = tokio::sync::watch::channel(false);
    let service = guard_within(&bodies, &engine, rule(), move |_| {
        let mut gate = gate.clone();
        async move {
            gate.wait_for(|open| *open).await.expect("the test opens it");
            answer(201, large())
        }
    });
    let mut all: Vec<_> = (0..4).map(|_| Box::pin(service.clone().oneshot(post("k", "x")))).collect();
    for one in &mut all {
        assert!(one.now_or_never().is_none());
    }
    open.send(true).expect("it is waited for");
    let mut became = Vec::new();
    let mut unread = Vec::new();
    for one in all {
        let got = one.await.expect("an answer");
        became.push(got.headers()["idempotency-status"].to_str().expect("text").to_owned());
        unread.push(got);
    }
    assert_eq!(became, ["fresh", "waited", "rejected", "rejected"]);
    assert_eq!(bodies.held().answers, 2 * LARGE);
}

/// Recorded when more was allowed: it is given to one client after the other.
#[tokio::test]
async fn an_answer_larger_than_all_the_room_is_replayed_while_it_is_the_only_one() {
    let (engine, bodies) = (Engine::memory(), Bodies::default().answers(LARGE / 2));
    let before = guard(&engine, rule(), |_| async { answer(201, large()) });
    assert_eq!(send(&before, post("k", "x")).await.became(), "fresh");
    let service = guard_within(&bodies, &engine, rule(), |_| async { answer(500, "never run") });
    let unread = service.clone().oneshot(post("k", "x")).await.unwrap();
    assert_eq!((unread.status().as_u16(), bodies.held().answers), (201, LARGE / 2));
    assert_eq!(send(&service, post("k", "x")).await.problem(), "too-many-bodies");
    drop(unread);
    assert_eq!(send(&service, post("k", "x")).await.body.len(), LARGE);
}

/// An answer of more frames than lie between recorder and reader.
fn long() -> Body {
    Body::from_stream(stream::iter((0..400).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(b"0123456789a")))))
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_is_cut_and_the_outcome_is_recorded() {
    let (engine, bodies) = (testing::engine(), Bodies::default().taken_within(Duration::from_secs(7)));
    let caps = Caps { request: 10, response: 10 };
    let service = guard_within(&bodies, &engine, rule().caps(caps), |_| async { answer(200, long()) });
    let unread = service.clone().oneshot(post("k", "x")).await.unwrap();
    sleep(Duration::from_secs(6)).await;
    assert_eq!(engine.load().running, 1, "it is waited for");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(engine.load().running, 0);
    assert_eq!(send(&service, post("k", "x")).await.problem(), "outcome-unavailable");
    assert!(unread.into_body().collect().await.is_err(), "never ended cleanly");
}

/// Each frame came in time, the whole did not: the work was stopped at `max_hold`, and its outcome was unknown.
#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_a_little_now_and_then_does_not_make_an_outcome_unknown() {
    let engine = testing::engine();
    let caps = Caps { request: 10, response: 10 };
    let service = guard(&engine, rule().caps(caps), |_| async { answer(200, long()) });
    let mut body = service.clone().oneshot(post("k", "x")).await.unwrap().into_body();
    let began = Instant::now();
    let cut = loop {
        sleep(Duration::from_secs(20)).await;
        match body.frame().await.expect("no clean end") {
            Ok(_) => assert!(began.elapsed() < Duration::from_secs(900), "it holds the claim for ever"),
            Err(cut) => break cut,
        }
    };
    assert!(cut.to_string().contains("cut short"), "{cut}");
    assert_eq!(send(&service, post("k", "x")).await.problem(), "outcome-unavailable");
}

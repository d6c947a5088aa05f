//! Bodies up to their caps and over them.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http_body::Body as _;
use http_body_util::BodyExt;
use semel_core::engine::Engine;
use semel_http::{Caps, RuleBuilder};
use tokio::sync::{Semaphore, mpsc};
use tower::ServiceExt;

use crate::support::*;

fn small() -> RuleBuilder {
    rule().caps(Caps { request: 10, response: 10 })
}

fn pieces(pieces: &'static [&'static str]) -> Body {
    Body::from_stream(stream::iter(pieces.iter().map(|p| Ok::<_, std::io::Error>(*p))))
}

#[tokio::test]
async fn a_request_over_the_cap_is_refused_and_claims_nothing() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, small(), move |request: Ask| {
        counted.happen();
        async move { answer(200, request.into_body().collect().await.unwrap().to_bytes()) }
    });
    for long in [Body::from("01234567890"), pieces(&["01234", "56789", "0"])] {
        let got = send(&service, post("k", long)).await;
        assert_eq!((got.status.as_u16(), got.problem()), (413, "request-too-large".to_owned()));
    }
    assert_eq!(effects.count(), 0);
    let got = send(&service, post("k", pieces(&["01234", "56789"]))).await;
    assert_eq!((got.status.as_u16(), &*got.body), (200, &b"0123456789"[..]));
    assert_eq!(send(&service, post("k", "0123456789")).await.became(), "replayed", "pieces do not matter");
}

#[tokio::test]
async fn an_answer_over_the_cap_is_passed_on_whole_and_never_run_again() {
    for known in [true, false] {
        let (engine, effects) = (Engine::memory(), Effects::default());
        let counted = effects.clone();
        let service = guard(&engine, small(), move |_| {
            counted.happen();
            let body = if known { Body::from("0123456789abcdef") } else { pieces(&["01234", "56789", "abc", "def"]) };
            let mut answer = answer(201, body);
            answer.headers_mut().insert("location", "/orders/7".parse().unwrap());
            async move { answer }
        });
        let first = send(&service, post("k", "x")).await;
        assert_eq!((first.status.as_u16(), first.became()), (201, "fresh"));
        assert_eq!(first.body, "0123456789abcdef");
        let again = send(&service, post("k", "x")).await;
        assert_eq!((again.status.as_u16(), again.problem()), (409, "outcome-unavailable".to_owned()));
        let document: serde_json::Value = serde_json::from_slice(&again.body).unwrap();
        assert_eq!((&document["original_status"], &document["location"]), (&201.into(), &"/orders/7".into()));
        assert!(document["settled_at"].as_str().unwrap().ends_with("GMT"));
        assert_eq!(effects.count(), 1, "known length: {known}");
    }
}

#[tokio::test]
async fn a_long_answer_that_breaks_off_is_cut_and_unknown() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, small(), move |_| {
        counted.happen();
        let cut =
            stream::iter(["0123456789", "abc"].map(Ok)).chain(stream::iter([Err(std::io::Error::other("reset"))]));
        async { answer(200, Body::from_stream(cut)) }
    });
    assert!(try_send(&service, post("k", "x")).await.is_err());
    assert_eq!(send(&service, post("k", "x")).await.problem(), "outcome-unknown");
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn a_long_answer_goes_ahead_and_its_end_waits_for_the_record() {
    let engine = Engine::memory();
    let (frames, mut wire) = mpsc::channel::<&'static str>(1);
    let wire = Arc::new(once::Slot::new(Body::from_stream(stream::poll_fn(move |cx| {
        wire.poll_recv(cx).map(|f| f.map(Ok::<_, std::io::Error>))
    }))));
    let service = guard(&engine, small(), move |_| {
        let body = wire.take();
        async move { answer(200, body) }
    });
    let asking = service.clone().oneshot(post("k", "x"));
    let feeding = async {
        for piece in ["0123456789", "a"] {
            frames.send(piece).await.unwrap();
        }
    };
    let (answer, ()) = tokio::join!(asking, feeding);
    // The head came while the body is still under way.
    let mut body = answer.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "0123456789a");
    assert!(!body.is_end_stream());
    assert_eq!(engine.load().running, 1);
    drop(frames);
    assert!(body.frame().await.is_none());
    assert_eq!(send(&service, post("k", "x")).await.problem(), "outcome-unavailable");
}

#[tokio::test]
async fn a_reader_that_leaves_a_long_answer_does_not_stop_its_recording() {
    let (engine, gate) = (Engine::memory(), Arc::new(Semaphore::new(0)));
    let opened = Arc::clone(&gate);
    let service = guard(&engine, small(), move |_| {
        let gate = Arc::clone(&opened);
        let late = stream::once(async move {
            gate.acquire().await.unwrap().forget();
            Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 1000]))
        });
        let many = stream::iter((0..100).map(|_| Ok(Bytes::from_static(b"y"))));
        let body = stream::iter([Ok(Bytes::from_static(b"0123456789a"))]).chain(late).chain(many);
        async { answer(200, Body::from_stream(body)) }
    });
    let answer = service.clone().oneshot(post("k", "x")).await.unwrap();
    drop(answer);
    assert_eq!(engine.load().running, 1);
    gate.add_permits(1);
    until("the recording ends", || engine.load().running == 0).await;
    assert_eq!(send(&service, post("k", "x")).await.problem(), "outcome-unavailable");
}

/// An answer in `n` frames, each of which takes a moment.
fn frames(n: usize) -> Body {
    let one = || async {
        tokio::task::yield_now().await;
        Ok::<_, std::io::Error>(Bytes::from_static(b"0123456789a"))
    };
    Body::from_stream(stream::iter(0..n).then(move |_| one()))
}

#[tokio::test]
async fn a_long_answer_is_recorded_although_nobody_reads_it_yet() {
    let engine = Engine::memory();
    let service = guard(&engine, small(), move |_| async { answer(200, frames(8)) });
    let answer = service.clone().oneshot(post("k", "x")).await.unwrap();
    // The frames have room between recorder and reader.
    until("the recording ends", || engine.load().running == 0).await;
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 8 * 11);
}

/// Left for a reader who never comes, its frames would have filled their place, and the claim would have been held until
/// the reader counted as stalled.
#[tokio::test]
async fn a_long_answer_whose_client_has_left_before_it_began_is_recorded_without_a_reader() {
    let engine = Engine::memory();
    let service = guard(&engine, small(), move |_| async {
        tokio::task::yield_now().await;
        answer(200, frames(200))
    });
    let mut first = Box::pin(service.clone().oneshot(post("k", "x")));
    assert!((&mut first).now_or_never().is_none());
    drop(first);
    until("the recording ends", || engine.load().running == 0).await;
    assert_eq!(send(&service, post("k", "x")).await.problem(), "outcome-unavailable");
}

#[tokio::test]
async fn a_slow_reader_gets_all_of_a_long_answer() {
    let engine = Engine::memory();
    let service = guard(&engine, small(), move |_| async { answer(200, frames(200)) });
    let mut body = service.clone().oneshot(post("k", "x")).await.unwrap().into_body();
    let mut len = 0;
    loop {
        for _ in 0..40 {
            tokio::task::yield_now().await;
        }
        let next = tokio::time::timeout(Duration::from_secs(10), body.frame()).await;
        let Some(frame) = next.expect("the frames go on") else { break };
        len += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(len, 200 * 11);
    assert_eq!(send(&service, post("k", "x")).await.problem(), "outcome-unavailable");
}

#[tokio::test]
async fn a_long_answer_means_what_a_short_one_means() {
    for (status, first, second) in [(201, "fresh", "outcome-unavailable"), (500, "unknown", "outcome-unknown")] {
        let service = guard(&Engine::memory(), small(), move |_| async move { answer(status, "0123456789abcdef") });
        assert_eq!(send(&service, post("k", "x")).await.became(), first, "{status}");
        assert_eq!(send(&service, post("k", "x")).await.problem(), second, "{status}");
    }
    let service = guard(&Engine::memory(), small(), |_| async { answer(409, "0123456789abcdef") });
    for _ in 0..2 {
        let got = send(&service, post("k", "x")).await;
        assert_eq!((got.status.as_u16(), got.became()), (409, "fresh"), "it is free again");
    }
}

#[tokio::test]
async fn events_go_ahead_at_once_and_are_not_replayed() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, rule(), move |_| {
        counted.happen();
        let mut answer = answer(200, pieces(&["data: 1\n\n"]));
        answer.headers_mut().insert("content-type", "text/event-stream".parse().unwrap());
        async move { answer }
    });
    assert_eq!(send(&service, post("k", "x")).await.body, "data: 1\n\n");
    assert_eq!(send(&service, post("k", "x")).await.problem(), "outcome-unavailable");
    assert_eq!(effects.count(), 1);
}

/// A body that is handed out once.
mod once {
    use axum::body::Body;
    use tokio::sync::Mutex;

    pub(super) struct Slot(Mutex<Option<Body>>);

    impl Slot {
        pub(super) fn new(body: Body) -> Self {
            Self(Mutex::new(Some(body)))
        }

        pub(super) fn take(&self) -> Body {
            self.0.try_lock().unwrap().take().unwrap()
        }
    }
}

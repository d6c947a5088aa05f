//! Bodies that never end, and many of them: what they hold has bounds, in time and in memory.

use std::time::Duration;

use tokio::{io::AsyncWriteExt, time::timeout};

use crate::{
    entire::{connect, entire, keyed, keyed_head, metric, until},
    peers::{PATIENCE, Upstream, field, status},
};

/// Answers each request with the length of its body.
async fn counting() -> Upstream {
    Upstream::start(|_, mut wire| async move {
        while let Some(head) = wire.head().await {
            let sent = field(&head, "content-length").map_or(0, |n| n.parse().unwrap());
            wire.body(sent).await;
            wire.answer("200 OK", &sent.to_string()).await;
        }
    })
    .await
}

/// One byte per idle interval kept a connection, and up to 8 MiB, for as long as the client liked.
#[tokio::test]
async fn a_guarded_body_that_trickles_is_refused_when_its_time_is_over() {
    let upstream = counting().await;
    let gateway = entire(upstream.address, "[limits]\nbody_timeout = \"600ms\"\n").await;
    let mut wire = connect(&gateway).await;
    wire.send(keyed_head("k", 10_000)).await;
    let (mut reader, mut writer) = wire.stream.split();
    let trickle = async {
        for _ in 0..200 {
            if writer.write_all(b"x").await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let mut answer = Vec::new();
    let read =
        async { while matches!(tokio::io::AsyncReadExt::read_buf(&mut reader, &mut answer).await, Ok(n) if n > 0) {} };
    tokio::select! {
        () = trickle => panic!("it may go on for ever"),
        read = timeout(PATIENCE, read) => read.expect("the connection is closed"),
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("urn:semel:problem:request-timeout"), "{answer}");
    let series = "semel_requests_total{rule=\"default\",outcome=\"request-timeout\"}";
    until(&gateway, series, |n| n == 1).await;
    // Nothing was claimed: the key is free, for another body too.
    let (head, _) = connect(&gateway).await.ask(&keyed("k", "tea")).await;
    assert_eq!((status(&head), field(&head, "idempotency-status")), (200, Some("fresh")), "{head}");
}

#[tokio::test]
async fn a_body_that_nobody_guards_may_take_as_long_as_it_likes() {
    let upstream = counting().await;
    let gateway = entire(upstream.address, "[limits]\nbody_timeout = \"100ms\"\n").await;
    let mut wire = connect(&gateway).await;
    wire.send("POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 8\r\n\r\n").await;
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        wire.send("x").await;
    }
    let (head, body) = wire.response().await;
    assert_eq!((status(&head), body.as_str()), (200, "8"));
}

/// A guarded body that stalls was called malformed.
#[tokio::test]
async fn a_guarded_body_that_stalls_is_late_and_not_malformed() {
    let upstream = counting().await;
    let gateway = entire(upstream.address, "[limits]\nbody_idle = \"200ms\"\n").await;
    let mut wire = connect(&gateway).await;
    wire.send(keyed_head("k", 8) + "x").await;
    let (head, body) = wire.response().await;
    assert!(status(&head) == 408 && body.contains("request-timeout"), "{head}{body}");
}

/// Each connection could hold its 8 MiB: 400 of them 3.3 GB.
#[tokio::test]
async fn bodies_for_which_there_is_no_room_are_refused_until_there_is() {
    const LARGE: usize = 700 << 10;
    let upstream = counting().await;
    let limits = "[limits]\nrequest_body = \"1 MiB\"\nmemory = { requests = \"1 MiB\" }\n";
    let gateway = entire(upstream.address, limits).await;
    let mut first = connect(&gateway).await;
    first.send(keyed_head("first", LARGE)).await;
    first.send(vec![b'x'; LARGE - 1]).await;
    until(&gateway, "semel_request_bodies_bytes", |held| held >= LARGE as u64 - 1).await;
    // Announced: refused before any of it has come.
    let mut second = connect(&gateway).await;
    second.send(keyed_head("second", LARGE)).await;
    let (head, body) = second.response().await;
    assert!(status(&head) == 503 && body.contains("urn:semel:problem:too-many-bodies"), "{head}{body}");
    assert_eq!((field(&head, "retry-after"), field(&head, "idempotency-status")), (Some("1"), Some("rejected")));
    assert!(second.rest().await.is_empty(), "the rest of its body is not waited for");
    // Not announced: refused when it is too much.
    let mut third = connect(&gateway).await;
    third
        .send("POST /orders HTTP/1.1\r\nhost: a\r\nidempotency-key: third\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    third
        .try_send([format!("{LARGE:x}\r\n").into_bytes(), vec![b'x'; LARGE], b"\r\n0\r\n\r\n".to_vec()].concat())
        .await;
    let (head, body) = third.response().await;
    assert!(status(&head) == 503 && body.contains("too-many-bodies"), "{head}{body}");
    // Small ones and what nobody guards go on.
    assert_eq!(connect(&gateway).await.ask(&keyed("small", &"x".repeat(10_000))).await.1, "10000");
    let unguarded = format!("POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: {LARGE}\r\n\r\n{}", "x".repeat(LARGE));
    assert_eq!(connect(&gateway).await.ask(&unguarded).await.1, LARGE.to_string());
    first.send("x").await;
    assert_eq!(first.response().await.1, LARGE.to_string());
    until(&gateway, "semel_request_bodies_bytes", |held| held == 0).await;
    let (head, body) = connect(&gateway).await.ask(&keyed("second", &"x".repeat(LARGE))).await;
    assert_eq!((status(&head), body), (200, LARGE.to_string()));
    assert_eq!(metric(&gateway, "semel_request_bodies_refused_total").await, 2);
}

/// The upstream's whole time ran on while the reader took nothing: the answer was cut, and its outcome became unknown.
#[tokio::test]
async fn a_slow_reader_of_a_long_answer_does_not_use_up_the_upstream_s_time() {
    const LENGTH: usize = 24 << 20;
    let upstream = Upstream::start(|_, mut wire| async move {
        while wire.head().await.is_some() {
            wire.body(3).await;
            wire.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n")).await;
            let _ = wire.stream.write_all(&vec![b'y'; LENGTH]).await;
        }
    })
    .await;
    let small = "[limits]\nresponse_body = \"64 KiB\"\n[upstream.shop.timeout]\nwhole = \"8s\"\nfirst_byte = \"8s\"\n";
    let gateway = entire(upstream.address, small).await;
    let mut wire = connect(&gateway).await;
    wire.send(keyed("k", "tea")).await;
    let head = wire.head().await.unwrap();
    assert_eq!((status(&head), field(&head, "idempotency-status")), (200, Some("fresh")), "{head}");
    // More than lies between service and client has to be left, and the rest takes a fraction of the time.
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(wire.body(LENGTH).await.len(), LENGTH, "all of it");
    let (head, body) = connect(&gateway).await.ask(&keyed("k", "tea")).await;
    assert!(status(&head) == 409 && body.contains("outcome-unavailable"), "{head}{body}");
}

use std::time::Duration;

use crate::peers::{GET, GUARDED_GET, Gateway, SOON, Upstream, status};

#[tokio::test]
async fn connections_are_kept_on_both_sides() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::before(upstream.address);
    let (mut one, mut two) = (gateway.connect().await, gateway.connect().await);
    for _ in 0..20 {
        assert_eq!(status(&one.ask(GET).await.0), 200);
        assert_eq!(status(&two.ask(GUARDED_GET).await.0), 200);
    }
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn the_last_connection_used_is_the_next_one_taken() {
    let upstream = Upstream::start(|n, mut wire| async move {
        while wire.head().await.is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            wire.answer("200 OK", &n.to_string()).await;
        }
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let (mut one, mut two) = (gateway.connect().await, gateway.connect().await);
    one.send(GET).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    two.send(GET).await;
    let (first, second) = (one.response().await.1, two.response().await.1);
    assert_ne!(first, second);
    assert_eq!(one.ask(GET).await.1, second);
    assert_eq!(upstream.seen(), 2);
}

#[tokio::test]
async fn a_connection_unused_for_too_long_is_closed_by_us() {
    let (closed, mut seen) = tokio::sync::mpsc::channel(1);
    let upstream = Upstream::start(move |_, mut wire| {
        let closed = closed.clone();
        async move {
            wire.head().await;
            wire.answer("200 OK", "").await;
            if wire.head().await.is_none() {
                let _ = closed.send(()).await;
            }
        }
    })
    .await;
    let gateway = Gateway::with(upstream.address, |_, f| f.pool.idle_timeout = SOON);
    assert_eq!(status(&gateway.connect().await.ask(GET).await.0), 200);
    tokio::time::timeout(Duration::from_secs(3), seen.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_guarded_request_takes_no_connection_that_rested_longer_than_reuse_idle() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::with(upstream.address, |_, f| f.pool.reuse_idle = SOON);
    let mut wire = gateway.connect().await;
    wire.ask(GET).await;
    tokio::time::sleep(SOON * 2).await;
    wire.ask(GET).await;
    assert_eq!(upstream.seen(), 1, "an unguarded one does");
    tokio::time::sleep(SOON * 2).await;
    wire.ask(GUARDED_GET).await;
    assert_eq!(upstream.seen(), 2);
}

#[tokio::test]
async fn a_connection_whose_end_was_seen_is_not_used() {
    let upstream = Upstream::start(|n, mut wire| async move {
        wire.head().await;
        wire.answer("200 OK", &n.to_string()).await;
        // Dropping it closes it: kept alive by the answer, ended by the upstream.
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    for n in 0..10 {
        let request = if n % 2 == 0 { GET } else { GUARDED_GET };
        assert_eq!(wire.ask(request).await.1, n.to_string());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_upstream_s_wish_to_close_is_followed_and_not_passed_on() {
    let upstream = Upstream::start(|n, mut wire| async move {
        wire.head().await;
        wire.send(format!("HTTP/1.1 200 OK\r\nconnection: close, x-a\r\nx-a: 1\r\ncontent-length: 1\r\n\r\n{n}")).await;
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    for n in 0..3 {
        let (head, body) = wire.ask(GET).await;
        assert_eq!(body, n.to_string());
        assert!(!head.contains("connection") && !head.contains("x-a"), "{head}");
    }
}

#[tokio::test]
async fn bytes_nobody_asked_for_end_a_kept_connection() {
    let upstream = Upstream::start(|n, mut wire| async move {
        wire.head().await;
        wire.answer("200 OK", &n.to_string()).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        wire.answer("200 OK", "smuggled").await;
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    assert_eq!(wire.ask(GET).await.1, "0");
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(wire.ask(GET).await.1, "1");
}

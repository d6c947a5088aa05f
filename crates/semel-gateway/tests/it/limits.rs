use std::time::Duration;

use crate::peers::{GET, Gateway, PATIENCE, SOON, Upstream, status};

#[tokio::test]
async fn a_flood_of_fields_is_answered_431() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    let mut many = String::from("GET / HTTP/1.1\r\nhost: a\r\n");
    (0..200).for_each(|n| many.push_str(&format!("x-{n}: 1\r\n")));
    wire.try_send(many + "\r\n").await;
    assert_eq!(status(&wire.head().await.unwrap()), 431);

    let mut wire = gateway.connect().await;
    let large = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(200 * 1024));
    wire.try_send(large).await;
    assert_eq!(status(&wire.head().await.unwrap()), 431);

    // A head that never ends is cut at the same size.
    let mut wire = gateway.connect().await;
    wire.send("GET / HTTP/1.1\r\nhost: a\r\n").await;
    for _ in 0..10_000 {
        if !wire.try_send("x: 0123456789012345678901234567890123456789\r\n").await {
            break;
        }
    }
    assert_eq!(wire.head().await.map_or(431, |head| status(&head)), 431);
    assert_eq!(upstream.seen(), 0);
}

#[tokio::test]
async fn a_head_just_under_the_limit_passes() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::before(upstream.address);
    let large = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(60 * 1024));
    assert_eq!(status(&gateway.connect().await.ask(&large).await.0), 200);
}

#[tokio::test]
async fn a_long_target_is_answered_414() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::with(upstream.address, |s, _| s.max_head = 256 * 1024);
    let large = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "y".repeat(100 * 1024));
    let mut wire = gateway.connect().await;
    wire.try_send(large).await;
    assert_eq!(status(&wire.head().await.unwrap()), 414);
}

#[tokio::test]
async fn a_head_that_comes_too_slowly_is_answered_408() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::with(upstream.address, |s, _| s.head_timeout = SOON);
    let mut wire = gateway.connect().await;
    let trickle = async {
        for byte in GET.bytes() {
            if !wire.try_send([byte]).await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        wire.head().await
    };
    let head = tokio::time::timeout(PATIENCE, trickle).await.unwrap();
    assert_eq!(head.map_or(408, |head| status(&head)), 408);
    assert_eq!(upstream.seen(), 0);
}

#[tokio::test]
async fn a_client_that_says_nothing_is_closed_in_silence() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::with(upstream.address, |s, _| (s.head_timeout, s.keep_alive) = (SOON, SOON));
    assert!(gateway.connect().await.rest().await.is_empty());
    let mut kept = gateway.connect().await;
    assert_eq!(status(&kept.ask(GET).await.0), 200);
    assert!(kept.rest().await.is_empty());
}

#[tokio::test]
async fn a_slow_upstream_is_not_the_client_s_fault() {
    let upstream = Upstream::start(|_, mut wire| async move {
        while wire.head().await.is_some() {
            tokio::time::sleep(SOON * 3).await;
            wire.answer("200 OK", "").await;
        }
    })
    .await;
    let gateway = Gateway::with(upstream.address, |s, _| {
        (s.head_timeout, s.keep_alive, s.body_idle, s.write_idle) = (SOON, SOON, SOON, SOON);
    });
    assert_eq!(status(&gateway.connect().await.ask(GET).await.0), 200);
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_cut() {
    let (cut, mut seen) = tokio::sync::mpsc::channel(1);
    let upstream = Upstream::start(move |_, mut wire| {
        let cut = cut.clone();
        async move {
            wire.head().await;
            wire.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n").await;
            while tokio::io::AsyncWriteExt::write_all(&mut wire.stream, &[1; 65536]).await.is_ok() {}
            let _ = cut.send(()).await;
        }
    })
    .await;
    let gateway = Gateway::with(upstream.address, |s, _| s.write_idle = SOON);
    let mut wire = gateway.connect().await;
    wire.send(GET).await;
    tokio::time::timeout(PATIENCE, seen.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn one_connection_too_many_is_answered_503() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::with(upstream.address, |s, _| s.max_connections = 2);
    let (mut one, mut two) = (gateway.connect().await, gateway.connect().await);
    assert_eq!((status(&one.ask(GET).await.0), status(&two.ask(GET).await.0)), (200, 200));
    let (head, body) = gateway.connect().await.response().await;
    assert!(status(&head) == 503 && body.contains("overloaded"), "{head}{body}");
    drop(one);
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut again = gateway.connect().await;
        if again.try_send(GET).await && again.head().await.is_some_and(|head| status(&head) == 200) {
            return;
        }
    }
    panic!("a freed place is not given away");
}

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{io::AsyncWriteExt, time::sleep};

use crate::peers::{GET, Gateway, PATIENCE, SOON, Upstream, field, status};

const PIECE: usize = 64 * 1024;
const PIECES: usize = 512;

#[tokio::test]
async fn a_large_upload_flows_through() {
    let upstream = Upstream::start(|_, mut wire| async move {
        let head = wire.head().await.unwrap();
        let mut left: usize = field(&head, "content-length").unwrap().parse().unwrap();
        while left > 0 {
            let take = left.min(PIECE);
            assert!(wire.body(take).await.iter().all(|b| *b == 7));
            left -= take;
        }
        wire.answer("200 OK", "whole").await;
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    wire.send(format!("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", PIECE * PIECES)).await;
    for _ in 0..PIECES {
        wire.send([7; PIECE]).await;
    }
    assert_eq!(wire.response().await.1, "whole");
}

#[tokio::test]
async fn a_large_download_flows_through() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.head().await;
        wire.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", PIECE * PIECES)).await;
        for _ in 0..PIECES {
            wire.send([9; PIECE]).await;
        }
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    wire.send(GET).await;
    wire.head().await.unwrap();
    for _ in 0..PIECES {
        assert!(wire.body(PIECE).await.iter().all(|b| *b == 9));
    }
}

/// Neither way is more read than the other side takes: what is in flight fits into sockets and one buffer.
#[tokio::test]
async fn a_slow_reader_holds_the_writer_back() {
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    let upstream = Upstream::start(move |_, mut wire| {
        let count = count.clone();
        async move {
            wire.head().await;
            wire.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n").await;
            while wire.stream.write_all(&[1; PIECE]).await.is_ok() {
                count.fetch_add(PIECE, Ordering::SeqCst);
            }
        }
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    wire.send(GET).await;
    wire.head().await.unwrap();
    sleep(SOON * 2).await;
    let stopped = written.load(Ordering::SeqCst);
    sleep(SOON).await;
    assert_eq!(written.load(Ordering::SeqCst), stopped);
    assert!(stopped < 32 << 20, "{stopped} bytes in flight");
}

#[tokio::test]
async fn chunks_pass_both_ways_and_what_trails_them_comes_back() {
    let upstream = Upstream::start(|_, mut wire| async move {
        let head = wire.head().await.unwrap();
        assert_eq!(field(&head, "transfer-encoding"), Some("chunked"));
        assert_eq!(field(&head, "te"), Some("trailers"));
        let mut body = String::new();
        while !body.ends_with("\r\n\r\n") {
            body.push_str(std::str::from_utf8(&wire.body(1).await).unwrap());
        }
        assert!(body.contains("hello") && body.ends_with("0\r\n\r\n"), "{body}");
        wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n").await;
        wire.send("3\r\nabc\r\n2\r\nde\r\n0\r\nx-sum: 2\r\n\r\n").await;
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    wire.send(
        "POST / HTTP/1.1\r\nhost: a\r\nte: trailers\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n",
    )
    .await;
    let head = wire.head().await.unwrap();
    assert_eq!((status(&head), field(&head, "transfer-encoding")), (200, Some("chunked")));
    let mut body = Vec::new();
    while !body.ends_with(b"\r\n\r\n") {
        body.extend(wire.body(1).await);
    }
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains("abc") && body.contains("de") && body.ends_with("0\r\nx-sum: 2\r\n\r\n"), "{body}");
}

#[tokio::test]
async fn a_body_on_a_get_passes() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.head().await;
        assert_eq!(wire.body(13).await, b"3\r\nabc\r\n0\r\n\r\n");
        wire.answer("200 OK", "").await;
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let request = "GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    assert_eq!(status(&gateway.connect().await.ask(request).await.0), 200);
}

#[tokio::test]
async fn answers_without_a_body_stay_as_they_are() {
    let upstream = Upstream::start(|_, mut wire| async move {
        while let Some(head) = wire.head().await {
            if head.starts_with("HEAD") {
                wire.send("HTTP/1.1 200 OK\r\ncontent-length: 77\r\netag: \"1\"\r\n\r\n").await;
            } else if head.contains("/204") {
                wire.send("HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n").await;
            } else {
                wire.send("HTTP/1.1 304 Not Modified\r\netag: \"1\"\r\n\r\n").await;
            }
        }
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    wire.send("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let head = wire.head().await.unwrap();
    assert_eq!((field(&head, "content-length"), field(&head, "etag")), (Some("77"), Some("\"1\"")));
    wire.send("GET /204 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let head = wire.head().await.unwrap();
    assert_eq!((status(&head), field(&head, "content-length"), field(&head, "x-a")), (204, None, Some("1")));
    wire.send("GET /304 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let head = wire.head().await.unwrap();
    assert_eq!((status(&head), field(&head, "etag")), (304, Some("\"1\"")));
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_framed_anew() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.head().await;
        wire.send("HTTP/1.0 200 OK\r\n\r\nold style").await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    wire.send(GET).await;
    let head = wire.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && field(&head, "transfer-encoding") == Some("chunked"), "{head}");
    assert_eq!(wire.body(19).await, b"9\r\nold style\r\n0\r\n\r\n");
}

#[tokio::test]
async fn expect_is_answered_here_and_not_passed_on() {
    let upstream = Upstream::start(|_, mut wire| async move {
        let head = wire.head().await.unwrap();
        assert_eq!(field(&head, "expect"), None);
        wire.body(3).await;
        wire.send("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n").await;
        wire.answer("200 OK", "done").await;
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    wire.send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n").await;
    assert_eq!(status(&wire.head().await.unwrap()), 100);
    // 103 is not passed on.
    assert_eq!(wire.ask("abc").await.1, "done");
}

#[tokio::test]
async fn a_body_that_breaks_off_or_stalls_is_the_client_s_fault() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::with(upstream.address, |s, _| s.body_idle = SOON);
    let mut wire = gateway.connect().await;
    wire.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n").await;
    let (head, body) = wire.response().await;
    assert!(status(&head) == 400 && body.contains("request-incomplete"), "{head}{body}");
    let mut wire = gateway.connect().await;
    wire.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab").await;
    let (head, body) = wire.response().await;
    assert!(status(&head) == 408 && body.contains("request-timeout"), "{head}{body}");
    assert!(tokio::time::timeout(PATIENCE, wire.rest()).await.unwrap().is_empty());
}

//! Messages that two readers could understand differently. Each is refused clearly, or goes on in one reading only.

use crate::peers::{Gateway, Upstream, field, status};

/// Refused: nothing reaches the upstream, and the connection is closed after the answer.
#[tokio::test]
async fn ambiguous_requests_are_refused() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::before(upstream.address);
    let tail = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    for (request, expected) in [
        ("POST / HTTP/1.1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a@b\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost : a\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\n host: a\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\nx: 1\r\n folded\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length : 5\r\n\r\n12345", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n123456", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5, 6\r\n\r\n123456", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +5\r\n\r\n12345", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -5\r\n\r\n12345", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0x5\r\n\r\n12345", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: \r\n\r\n12345", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999999999999999\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity, chunked\r\n\r\n0\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            501,
        ),
        ("POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\nx: a\rb: 1\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\nno colon\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\n: empty\r\n\r\n", 400),
        ("POST  / HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("POST / a HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("PO ST / HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("POST / HTTP/1.2\r\nhost: a\r\n\r\n", 400),
        ("POST / HTTP/2.0\r\nhost: a\r\n\r\n", 400),
        ("POST example.com:80 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    ] {
        let mut wire = gateway.connect().await;
        wire.send(format!("{request}{tail}")).await;
        let head = wire.head().await.unwrap_or_else(|| panic!("no answer to {request:?}"));
        assert_eq!(status(&head), expected, "{request:?}: {head}");
        let rest = String::from_utf8(wire.rest().await).unwrap();
        assert!(!rest.contains("\r\n"), "{request:?}: the connection went on: {rest}");
    }
    assert_eq!(upstream.seen(), 0);
}

/// RFC 9112, 6.1: the coding counts, the length is dropped, the connection ends. Nothing of two readings goes on.
#[tokio::test]
async fn a_length_beside_a_coding_is_dropped_and_the_connection_ends() {
    let upstream = Upstream::start(|_, mut wire| async move {
        while let Some(head) = wire.head().await {
            assert_eq!(wire.body(5).await, b"0\r\n\r\n");
            wire.answer("200 OK", &head).await;
        }
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    for fields in
        ["content-length: 40\r\ntransfer-encoding: chunked\r\n", "transfer-encoding: chunked\r\ncontent-length: 40\r\n"]
    {
        let mut wire = gateway.connect().await;
        let (_, seen) = wire
            .ask(&format!(
                "POST / HTTP/1.1\r\nhost: a\r\n{fields}\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
            ))
            .await;
        assert_eq!((field(&seen, "transfer-encoding"), field(&seen, "content-length")), (Some("chunked"), None));
        assert!(wire.rest().await.is_empty(), "what follows is no request");
    }
}

#[tokio::test]
async fn equal_lengths_and_bare_line_feeds_go_on_in_one_reading() {
    let upstream = Upstream::start(|_, mut wire| async move {
        while let Some(head) = wire.head().await {
            wire.body(3).await;
            wire.answer("200 OK", &head).await;
        }
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let request = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc";
    let (_, seen) = gateway.connect().await.ask(request).await;
    assert_eq!(seen.matches("content-length").count(), 1, "{seen}");

    let (_, seen) = gateway.connect().await.ask("POST / HTTP/1.1\nhost: a\nx: 1\ncontent-length: 3\n\nabc").await;
    assert!(seen.replace("\r\n", "").lines().count() == 1, "no bare line feed is left: {seen:?}");
    assert_eq!((field(&seen, "x"), field(&seen, "content-length")), (Some("1"), Some("3")));
}

#[tokio::test]
async fn malformed_chunks_never_reach_the_upstream_as_a_whole_message() {
    for chunks in [
        "zz\r\nabc\r\n0\r\n\r\n",
        "-1\r\na\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nab\r\n0\r\n\r\n",
        "3 3\r\nabc\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        "3;a\nb\r\nabc\r\n0\r\n\r\n",
        "3\nabc\n0\n\n",
    ] {
        let (whole, mut seen) = tokio::sync::mpsc::channel(1);
        let upstream = Upstream::start(move |_, mut wire| {
            let whole = whole.clone();
            async move {
                let _ = whole.send(String::from_utf8_lossy(&wire.rest().await).into_owned()).await;
            }
        })
        .await;
        let gateway = Gateway::before(upstream.address);
        let mut wire = gateway.connect().await;
        wire.send(format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunks}")).await;
        let head = wire.head().await.unwrap_or_else(|| panic!("no answer to {chunks:?}"));
        assert_eq!(status(&head), 400, "{chunks:?}: {head}");
        let got = tokio::time::timeout(crate::peers::PATIENCE, seen.recv()).await.unwrap().unwrap();
        assert!(!got.ends_with("0\r\n\r\n"), "{chunks:?}: {got}");
    }
}

#[tokio::test]
async fn an_answer_with_two_lengths_is_not_passed_on() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.head().await;
        wire.send("HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd").await;
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    assert_eq!(status(&gateway.connect().await.ask(crate::peers::GET).await.0), 502);
}

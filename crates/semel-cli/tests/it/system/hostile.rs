//! Requests nobody should send: clear answers, bounded memory, and nothing ambiguous reaches the service. That nothing
//! panics is looked at where each gateway ends.

use std::time::Duration;

use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{
    client::{Ask, exchange, read},
    gateway::{Gateway, Setup},
    together,
    upstream::Upstream,
};

async fn shop(more: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), "memory").with(more).start();
    (upstream, gateway)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_cap_is_refused_and_never_silently_unguarded() {
    let rule = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\nrequest_body = \"100 KiB\"\n";
    let (upstream, gateway) = shop(rule).await;
    let over = Ask::post("/orders").key("k").body(vec![b'x'; 100 * 1024 + 1]);
    let answer = over.send(gateway.http).await;
    assert_eq!((answer.status, answer.problem().as_str()), (413, "request-too-large"), "{answer:?}");
    let mut chunked =
        b"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..20 {
        chunked.extend_from_slice(format!("{:x}\r\n{}\r\n", 10_000, "y".repeat(10_000)).as_bytes());
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    let answer = exchange(gateway.http, &chunked).await.expect("an answer");
    assert_eq!(answer.status, 413, "{answer:?}");
    assert_eq!(upstream.count(), 0);
    let exact = Ask::post("/orders").key("k").body(vec![b'x'; 100 * 1024]).send(gateway.http).await;
    assert_eq!(exact.status, 200, "the cap itself fits: {exact:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_of_many_clients_do_not_pile_up() {
    let (upstream, gateway) = shop("").await;
    let (http, before) = (gateway.http, gateway.resident());
    for round in 0..4 {
        let answers = together(16, move |i| {
            Box::pin(async move {
                Ask::post("/slow/1").key(&format!("b{round}-{i}")).body(vec![b'x'; 4 << 20]).send(http).await.status
            })
        })
        .await;
        assert!(answers.iter().all(|s| *s == 201), "{answers:?}");
    }
    assert_eq!(upstream.count(), 64);
    let grown = gateway.resident().saturating_sub(before);
    // 256 MiB went through; sixteen at once are 64 MiB, each held at most twice (read and written).
    assert!(grown < 200 << 20, "{grown} bytes more are resident");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_fields_is_answered_431() {
    let (upstream, gateway) = shop("").await;
    for flood in
        [format!("X-Long: {}\r\n", "x".repeat(100_000)), (0..500).map(|i| format!("X-{i}: y\r\n")).collect::<String>()]
    {
        let request = format!("POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\n{flood}\r\n");
        let answer = exchange(gateway.http, request.as_bytes()).await.expect("an answer");
        assert_eq!(answer.status, 431, "{answer:?}");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_are_sent_away_and_others_served_meanwhile() {
    let limits = "[limits]\nheader_timeout = \"400ms\"\nbody_idle = \"400ms\"\n";
    let (upstream, gateway) = shop(limits).await;
    let mut slow_heads = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(gateway.http).await.unwrap();
        stream.write_all(b"POST /orders HTTP/1.1\r\nHo").await.unwrap();
        slow_heads.push(stream);
    }
    let served = Ask::post("/orders").key("quick").send(gateway.http).await;
    assert_eq!(served.status, 200);
    let mut slow_body = TcpStream::connect(gateway.http).await.unwrap();
    slow_body
        .write_all(b"POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: slow\r\nContent-Length: 10\r\n\r\nabc")
        .await
        .unwrap();
    for stream in slow_heads.iter_mut().take(3).chain([&mut slow_body]) {
        // Told so or closed, and within bounds.
        match tokio::time::timeout(Duration::from_secs(10), read(stream, false)).await.expect("it ends") {
            Ok(answer) if answer.status == 400 => assert_eq!(answer.problem(), "request-incomplete", "{answer:?}"),
            Ok(answer) => assert_eq!(answer.status, 408, "{answer:?}"),
            Err(closed) => assert!(closed.contains("closed") || closed.contains("reset"), "{closed}"),
        }
    }
    assert_eq!(upstream.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_requests_are_refused_and_never_forwarded() {
    let (upstream, gateway) = shop("").await;
    let head = "POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\n";
    let chunk = "5\r\nhello\r\n0\r\n\r\n";
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let attempts = [
        ("two lengths", format!("{head}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello{smuggled}")),
        ("a list of lengths", format!("{head}Content-Length: 5, 6\r\n\r\nhello{smuggled}")),
        ("a signed length", format!("{head}Content-Length: +5\r\n\r\nhello{smuggled}")),
        ("a length in hex", format!("{head}Content-Length: 0x5\r\n\r\nhello{smuggled}")),
        ("a bad chunk size", format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n")),
        (
            "a huge chunk size",
            format!("{head}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff0\r\nhello\r\n0\r\n\r\n"),
        ),
        ("chunked not last", format!("{head}Transfer-Encoding: chunked, identity\r\n\r\n{chunk}")),
        ("an unknown coding", format!("{head}Transfer-Encoding: xchunked\r\n\r\n{chunk}")),
        ("a space before the colon", format!("{head}Content-Length : 5\r\n\r\nhello")),
        ("a folded field", format!("{head}X-A: b\r\n c\r\nContent-Length: 5\r\n\r\nhello")),
        ("a bare CR in a field", format!("{head}X-A: b\rX-B: c\r\nContent-Length: 5\r\n\r\nhello")),
        ("a NUL in a field", format!("{head}X-A: b\0c\r\nContent-Length: 5\r\n\r\nhello")),
        ("no version", "POST /orders\r\nHost: a\r\n\r\n".to_owned()),
        ("a space in the target", "POST /or ders HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
    ];
    for (what, request) in attempts {
        match exchange(gateway.http, request.as_bytes()).await {
            Ok(answer) => assert!((400..=431).contains(&answer.status) || answer.status == 501, "{what}: {answer:?}"),
            Err(closed) => assert!(closed.contains("closed") || closed.contains("reset"), "{what}: {closed}"),
        }
        assert_eq!(upstream.count(), 0, "{what}: reached the service");
    }
    // Both framings: the standard lets chunked win, and the connection end with the answer. The service sees exactly one
    // request, framed one way, and nothing of what comes behind it.
    let both = format!("{head}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{smuggled}");
    let mut stream = TcpStream::connect(gateway.http).await.unwrap();
    stream.write_all(both.as_bytes()).await.unwrap();
    let answer = read(&mut stream, false).await.expect("an answer");
    assert_eq!((answer.status, answer.idempotency_status()), (200, "fresh"), "{answer:?}");
    assert_eq!(answer.field("connection"), Some("close"), "{answer:?}");
    // Ended or reset, since there are bytes that nobody read.
    assert!(read(&mut stream, false).await.is_err(), "nothing is answered after it");
    let effects = upstream.effects("k");
    assert_eq!((effects.len(), upstream.count()), (1, 1), "it arrived, and nothing else did");
    let framings = [effects[0].header("content-length"), effects[0].header("transfer-encoding")];
    assert_eq!(framings.iter().flatten().count(), 1, "one framing: {}", effects[0].head);
    assert_eq!(effects[0].body, b"hello");
    let fine = Ask::post("/orders").key("after").send(gateway.http).await;
    assert_eq!(fine.status, 200, "the gateway lives");
    assert_eq!(upstream.count(), 2, "and no request without a key came before it");
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_fields_from_a_client_never_reach_the_service() {
    let (upstream, gateway) = shop("").await;
    for key in [Some("k"), None] {
        let mut ask = Ask::post("/orders")
            .field("Semel-Identity", "http:x:k:00")
            .field("Semel-Fence", "99999999999999999")
            .field("Semel-Attempt", "7");
        if let Some(key) = key {
            ask = ask.key(key);
        }
        assert_eq!(ask.send(gateway.http).await.status, 200);
    }
    let guarded = &upstream.effects("k")[0];
    assert_eq!(guarded.header("semel-attempt"), Some("1"));
    assert_ne!(guarded.header("semel-fence"), Some("99999999999999999"));
    assert!(guarded.header("semel-identity").is_some_and(|i| i.starts_with("http:")), "{}", guarded.head);
    let passed = &upstream.effects("")[0];
    assert_eq!((passed.header("semel-identity"), passed.header("semel-fence")), (None, None), "{}", passed.head);
}

use crate::peers::{GET, Gateway, Upstream, field, status};

#[tokio::test]
async fn the_upstream_learns_who_asked_and_where() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    let (_, seen) = wire.ask("GET /a?b=c HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\n\r\n").await;
    assert!(seen.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{seen}");
    for (name, value) in [
        ("host", "shop.example"),
        ("accept", "*/*"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-proto", "http"),
    ] {
        assert_eq!(field(&seen, name), Some(value), "{seen}");
    }
    let id = field(&seen, "x-request-id").unwrap().to_owned();
    let (_, again) = wire.ask(GET).await;
    assert_ne!(field(&again, "x-request-id"), Some(id.as_str()));
    let (_, named) = wire.ask("GET / HTTP/1.1\r\nhost: a\r\nx-request-id: mine\r\n\r\n").await;
    assert_eq!(field(&named, "x-request-id"), Some("mine"));
}

#[tokio::test]
async fn a_target_with_a_host_is_sent_as_a_path_under_that_host() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::before(upstream.address);
    let (_, seen) = gateway.connect().await.ask("GET http://real.example/p?q HTTP/1.1\r\nhost: other\r\n\r\n").await;
    assert!(seen.starts_with("GET /p?q HTTP/1.1\r\n") && field(&seen, "host") == Some("real.example"), "{seen}");
    let (_, seen) = gateway.connect().await.ask("OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(seen.starts_with("OPTIONS * HTTP/1.1\r\n"), "{seen}");
}

#[tokio::test]
async fn fields_of_the_client_s_connection_stay_here() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::before(upstream.address);
    let (head, seen) = gateway
        .connect()
        .await
        .ask(
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, x-mine, x-forwarded-for\r\nx-mine: 1\r\n\
             keep-alive: timeout=5\r\nproxy-connection: keep-alive\r\nproxy-authorization: Basic eA==\r\n\
             authorization: Basic eQ==\r\nte: gzip\r\nupgrade: h2c\r\n\r\n",
        )
        .await;
    assert_eq!(status(&head), 200);
    for gone in ["connection", "x-mine", "keep-alive", "proxy-connection", "proxy-authorization", "te", "upgrade"] {
        assert_eq!(field(&seen, gone), None, "{seen}");
    }
    assert_eq!(field(&seen, "authorization"), Some("Basic eQ=="));
    // Naming our field does not remove it: theirs went before ours came.
    assert_eq!(field(&seen, "x-forwarded-for"), Some("127.0.0.1"));
}

#[tokio::test]
async fn an_answer_passes_as_it_is() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.head().await;
        wire.send(
            "HTTP/1.1 299 Odd Reason\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nx-list: 1, 2\r\nserver: old/1\r\n\
             date: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-length: 3\r\nkeep-alive: timeout=5\r\n\r\n\0\u{1}\n",
        )
        .await;
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let (head, body) = gateway.connect().await.ask(GET).await;
    // All that is added is the name the gateway gave the request.
    let (before, named) = head.split_once("x-request-id: ").expect("the request's name");
    let (id, after) = named.split_once("\r\n").expect("the line's end");
    assert_eq!(id.len(), 32, "{head}");
    assert_eq!(
        (format!("{before}{after}").as_str(), body.as_str()),
        (
            "HTTP/1.1 299 Odd Reason\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nx-list: 1, 2\r\nserver: old/1\r\n\
             date: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-length: 3\r\n\r\n",
            "\0\u{1}\n"
        )
    );
}

#[tokio::test]
async fn an_old_client_is_served_in_its_own_version() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    let (head, seen) = wire.ask("GET /old HTTP/1.0\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.0 200"), "{head}");
    assert!(seen.starts_with("GET /old HTTP/1.1\r\n"), "{seen}");
    assert_eq!(field(&seen, "host"), Some(upstream.address.to_string().as_str()));
    assert!(wire.rest().await.is_empty());
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    let all: String = (0..20).map(|n| format!("GET /{n} HTTP/1.1\r\nhost: a\r\n\r\n")).collect();
    wire.send(all).await;
    for n in 0..20 {
        assert!(wire.response().await.1.starts_with(&format!("GET /{n} ")));
    }
}

#[tokio::test]
async fn nobody_is_connected_to_elsewhere() {
    let upstream = Upstream::echo_heads().await;
    let gateway = Gateway::before(upstream.address);
    let (head, body) = gateway.connect().await.ask("CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\n").await;
    assert!(status(&head) == 501 && body.contains("not-implemented"), "{head}{body}");
    assert_eq!(upstream.seen(), 0);
}

#[tokio::test]
async fn several_cores_and_one_shared_runtime_serve_alike() {
    use semel_gateway::serve::Runtime;
    let three = std::num::NonZeroUsize::new(3).unwrap();
    for runtime in [Runtime::PerCore(three), Runtime::Shared(three)] {
        let upstream = Upstream::echo_heads().await;
        let gateway = Gateway::with(upstream.address, |s, _| s.runtime = runtime);
        for _ in 0..30 {
            assert_eq!(status(&gateway.connect().await.ask(GET).await.0), 200);
        }
        assert!(upstream.seen() <= 30);
    }
}

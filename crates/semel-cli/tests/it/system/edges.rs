//! Requests at the edge of what a rule is about: other forms of a target, other spellings of a path, fields taken away,
//! gateways that lead back to themselves. Whatever the service could take for a guarded request is guarded or refused.

use super::{
    client::{Answer, Ask, exchange},
    gateway::{Gateway, Setup},
    upstream::Upstream,
};

async fn shop(more: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), "memory").with(more).start();
    (upstream, gateway)
}

fn refused(answer: &Answer) -> (u16, String) {
    (answer.status, answer.problem())
}

const BAD: (u16, &str) = (400, "bad-request");

const ORDERS: &str = "[[rule]]\nname = \"submit\"\nmatch = \"POST /orders\"\n";

/// Two copies, whatever the form of their target: at most one effect.
#[tokio::test(flavor = "multi_thread")]
async fn no_form_of_a_target_is_a_way_around_the_guard() {
    for rules in ["", "[[rule]]\nname = \"all\"\nmatch = \"* /*\"\n"] {
        let (upstream, gateway) = shop(rules).await;
        for method in ["POST", "PUT", "PATCH", "DELETE", "PURGE", "GET"] {
            for _ in 0..2 {
                let answer = Ask::new(method, "*").key("star").body("").send(gateway.http).await;
                assert_eq!(refused(&answer), (400, "bad-request".into()), "{method} *: {answer:?}");
            }
        }
        for (form, expected) in
            [("shop.test:80", 400), ("shop.test", 400), ("orders", 400), ("ftp://shop.test/orders", 400)]
        {
            let answer = Ask::post(form).key("form").send(gateway.http).await;
            assert_eq!(answer.status, expected, "{form}: {answer:?}");
        }
        let answer = Ask::new("CONNECT", "shop.test:80").key("c").body("").send(gateway.http).await;
        assert_eq!(answer.status, 501, "{answer:?}");
        assert_eq!(upstream.count(), 0);
        for (key, form) in [("a", "http://shop.test"), ("b", "http://shop.test?x=1"), ("c", "http://shop.test/orders")]
        {
            for status in ["fresh", "replayed"] {
                let answer = Ask::post(form).key(key).send(gateway.http).await;
                assert_eq!((answer.status, answer.idempotency_status()), (200, status), "{form}: {answer:?}");
            }
        }
        assert!(upstream.effects("b")[0].head.starts_with("POST /?x=1 HTTP/1.1\r\n"), "{:?}", upstream.effects("b"));
        assert_eq!(upstream.count(), 3);
        let answer = Ask::new("OPTIONS", "*").body("").send(gateway.http).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

const SPELLINGS: &[&str] = &[
    "//orders",
    "/./orders",
    "/x/../orders",
    "/../orders",
    "/x/%2e%2E/orders",
    "/%2e/orders",
    "/orders/.",
    "/orders/x/..",
    "/orders;x=1",
    "/orders;",
    "/x;a/..;b/orders",
    "/%2Forders",
    "/x%2f..%2Forders",
    "/x%2f%2e%2e%2forders",
    "/%252e/orders",
    "/x%255c..%255corders",
    "/\\orders",
    "/x\\..\\orders",
    "/%5corders",
    "/a//../orders",
    "/orders/",
    "/orders//",
    "/orders%2F",
    "/Orders",
    "/ORDERS/",
    "//oRDERS/.",
    "/orders%0A",
    "/orders%0a/",
    "/orders%0D%0A",
    "/orders%00",
    "/orders%09",
    "/ord%0Aers",
    "/orders%1F",
    "/orders%7F",
    "/orders%250A",
    "/orders%C2%85",
    "/orders%E2%80%A8",
    "/orders%20",
    "/orders%20/",
    "/%20orders",
    "/orders%C2%A0",
    "/orders.",
    "/orders%2E",
    "/orders..",
    "/orders%20.",
    "/orders%2e%20/",
    "/x/..%20/orders.",
];

/// Paths of a framework that matches line by line, or ends a text at a NUL; nobody can say what else they mean.
const RIDDLES: &[&str] = &["/x%0A/orders", "/orders%00.json", "/%01", "/a%0Ab/c"];

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_guarded_path_passes_it_by() {
    let (upstream, gateway) = shop(ORDERS).await;
    for path in SPELLINGS.iter().chain(RIDDLES) {
        for path in [(*path).to_owned(), format!("{path}?a=1"), format!("http://shop.test{path}")] {
            let keyed = Ask::post(&path).key("k").send(gateway.http).await;
            assert_eq!(refused(&keyed), (BAD.0, BAD.1.into()), "{path}: {keyed:?}");
            assert_eq!(keyed.idempotency_status(), "rejected", "{path}: {keyed:?}");
            // The rule wants a key: that, too, holds for each spelling.
            let bare = Ask::post(&path).send(gateway.http).await;
            assert_eq!(refused(&bare), (BAD.0, BAD.1.into()), "{path}: {bare:?}");
        }
    }
    assert_eq!(upstream.count(), 0);
    // One that the rule knows is the same question.
    for (path, status) in [("/orders", "fresh"), ("/%6frders", "replayed"), ("/%6Frder%73", "replayed")] {
        let answer = Ask::post(path).key("k").send(gateway.http).await;
        assert_eq!((answer.status, answer.idempotency_status()), (200, status), "{path}: {answer:?}");
    }
    assert_eq!(upstream.count(), 1);
    assert_eq!(gateway.metric("semel_unguarded_total{rule=\"\",why=\"no-rule\"}").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_method_passes_a_rule_by() {
    let (upstream, gateway) = shop(ORDERS).await;
    for method in ["post", "pOST", "Post"] {
        for path in ["/orders", "//orders", "/Orders"] {
            let answer = Ask::new(method, path).body("").send(gateway.http).await;
            assert_eq!(refused(&answer), (BAD.0, BAD.1.into()), "{method} {path}: {answer:?}");
        }
    }
    assert_eq!(upstream.count(), 0);
    // Without rules a key guards every method but the safe ones: a copy in another spelling is refused, not run.
    let (upstream, gateway) = shop("").await;
    for (method, status) in [("POST", 200), ("post", 422), ("pOST", 422)] {
        let answer = Ask::new(method, "/orders").key("k").body("").send(gateway.http).await;
        assert_eq!(answer.status, status, "{method}: {answer:?}");
    }
    assert_eq!(upstream.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_spelling_of_a_guarded_path_passes() {
    let (upstream, gateway) = shop(ORDERS).await;
    for path in [
        "/elsewhere",
        "/orders/7",
        "/orders/x/../7",
        "/a%2Fb",
        "/a;b=1",
        "//x",
        "/caf%C3%A9",
        "/orders.json",
        "/.orders",
        "/or%20ders",
    ] {
        let bare = Ask::post(path).send(gateway.http).await;
        assert_eq!((bare.status, bare.idempotency_status()), (200, ""), "{path}: {bare:?}");
        // A key that nobody keeps is told so.
        let keyed = Ask::post(path).key("k").send(gateway.http).await;
        assert_eq!((keyed.status, keyed.idempotency_status()), (200, "bypassed"), "{path}: {keyed:?}");
    }
    // Where no rule wants a key, nobody is stopped for what a path may mean.
    assert_eq!(Ask::new("DELETE", "/a%0Ab").body("").send(gateway.http).await.status, 200);
    // Nor does a safe method have an effect to guard, or one that the rule lets pass without a key.
    assert_eq!(Ask::new("GET", "//orders").body("").send(gateway.http).await.status, 200);
    assert_eq!(Ask::new("DELETE", "//orders").body("").send(gateway.http).await.status, 200);
    assert_eq!(upstream.effects("").len(), 10 + 3);
    let deleted = Ask::new("DELETE", "//orders").body("").key("k").send(gateway.http).await;
    assert_eq!(refused(&deleted), (BAD.0, BAD.1.into()), "{deleted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_lets_pass_lends_its_path_to_no_other() {
    let rules = "[[rule]]\nname = \"open\"\nmatch = \"* /open/*\"\nmode = \"off\"\n\
                 [[rule]]\nname = \"perhaps\"\nmatch = \"* /perhaps/*\"\nmissing = \"optional\"\n\
                 [[rule]]\nname = \"submit\"\nmatch = \"POST /orders/{id}\"\n\
                 [[rule]]\nname = \"slash\"\nmatch = \"POST /orders/{id}/\"\nmode = \"off\"\n";
    let (upstream, gateway) = shop(rules).await;
    for path in ["/open/../orders/7", "/open/..%2forders/7", "/open//../../orders/7"] {
        for ask in [Ask::post(path), Ask::post(path).key("k")] {
            let answer = ask.send(gateway.http).await;
            assert_eq!(refused(&answer), (BAD.0, BAD.1.into()), "{path}: {answer:?}");
        }
    }
    // With a key it is guarded by the rule of its own spelling; without one it would have passed a rule that wants one.
    let answer = Ask::post("/perhaps/../orders/7").send(gateway.http).await;
    assert_eq!(refused(&answer), (BAD.0, BAD.1.into()), "{answer:?}");
    let answer = Ask::post("/perhaps/../orders/7").key("k").send(gateway.http).await;
    assert_eq!((answer.status, answer.idempotency_status()), (200, "fresh"), "{answer:?}");
    assert_eq!(upstream.count(), 1);
    // A spelling that a service may well tell apart passes where a rule of its own says so.
    for path in ["/orders/7/", "/open/a//b", "/open/./x"] {
        assert_eq!(Ask::post(path).send(gateway.http).await.status, 200, "{path}");
    }
}

/// Where one rule is about both spellings, one key has one effect.
#[tokio::test(flavor = "multi_thread")]
async fn two_spellings_under_one_rule_and_one_key_have_one_effect() {
    for rule in [
        "",
        "[[rule]]\nname = \"all\"\nmatch = \"* /*\"\n",
        "[[rule]]\nname = \"all\"\nmatch = \"* /*\"\nper_route = true\n",
    ] {
        let (upstream, gateway) = shop(rule).await;
        let first = Ask::post("/orders").key("k").send(gateway.http).await;
        assert_eq!((first.status, first.idempotency_status()), (200, "fresh"), "{first:?}");
        for path in SPELLINGS {
            let other = Ask::post(path).key("k").send(gateway.http).await;
            assert_eq!(refused(&other), (422, "key-reused".into()), "{rule}{path}: {other:?}");
        }
        assert_eq!(upstream.count(), 1, "{rule}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_field_that_is_read_here_can_be_taken_away() {
    let more = "[principal]\nheader = \"X-User\"\n[[rule]]\nname = \"all\"\nmatch = \"* /*\"\nmissing = \"optional\"\n\
                key = [\"Idempotency-Key\", \"X-Key\"]\ncredentials = [\"X-Token\"]\nretry_id = [\"X-Try\"]\n";
    let (upstream, gateway) = shop(more).await;
    for name in ["Idempotency-Key", "x-key", "X-USER", "x-token", "X-Try", "Content-Type", "content-encoding", "Cookie"]
    {
        for line in [name.to_owned(), format!("close, {name}"), format!("{name} ,keep-alive")] {
            let answer = Ask::post("/orders")
                .key("k")
                .field("X-User", "ann")
                .field("Connection", &line)
                .send(gateway.http)
                .await;
            assert_eq!(refused(&answer), (BAD.0, BAD.1.into()), "{line}: {answer:?}");
        }
    }
    let twice = Ask::post("/orders").key("k").field("Connection", "close").field("Connection", "Idempotency-Key");
    assert_eq!(refused(&twice.send(gateway.http).await), (BAD.0, BAD.1.into()));
    assert_eq!(upstream.count(), 0);
    let other = Ask::post("/orders").key("k").field("X-User", "ann").field("X-Mine", "1").field("Connection", "X-Mine");
    assert_eq!(other.send(gateway.http).await.status, 200);
    assert_eq!(upstream.effects("k")[0].header("x-mine"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_of_a_content_type_counts() {
    let (upstream, gateway) = shop("").await;
    let ask = |more: &[&str]| {
        let ask = Ask::post("/orders").key("k");
        more.iter().fold(ask, |ask, kind| ask.field("Content-Type", kind))
    };
    assert_eq!(ask(&[]).send(gateway.http).await.status, 200);
    for more in [&["text/plain"][..], &["application/json"], &["text/plain", "text/html"]] {
        let other = ask(more).send(gateway.http).await;
        assert_eq!(refused(&other), (422, "key-reused".into()), "{more:?}: {other:?}");
    }
    assert_eq!(upstream.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_of_a_request_id_counts() {
    let (upstream, gateway) = shop("[[rule]]\nname = \"all\"\nmatch = \"/*\"\non_duplicate = \"reject\"\n").await;
    let click = |ids: &[&str]| ids.iter().fold(Ask::post("/orders").key("k"), |ask, id| ask.field("X-Request-Id", id));
    assert_eq!(click(&["one"]).send(gateway.http).await.status, 200);
    for other in [&["one", "two"][..], &["two", "one"], &["two"], &[]] {
        let second = click(other).send(gateway.http).await;
        assert_eq!(refused(&second), (409, "duplicate".into()), "{other:?}: {second:?}");
    }
    assert_eq!(click(&["one"]).send(gateway.http).await.status, 200);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_answered_with_the_reason() {
    let (upstream, gateway) = shop("").await;
    let post = "POST /orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\n";
    let many: String = (0..500).map(|i| format!("X-{i}: y\r\n")).collect();
    for (what, request, status, name, words) in [
        (
            "2^64-1",
            format!("{post}Content-Length: 18446744073709551615\r\n\r\nabc"),
            413,
            "request-too-large",
            "nothing was run",
        ),
        (
            "2^64-2",
            format!("{post}Content-Length: 18446744073709551614\r\n\r\n"),
            413,
            "request-too-large",
            "nothing was run",
        ),
        ("2^64", format!("{post}Content-Length: 18446744073709551616\r\n\r\n"), 400, "bad-request", "Content-Length"),
        (
            "two lengths",
            format!("{post}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
            400,
            "bad-request",
            "Content-Length",
        ),
        ("a long field", format!("{post}X: {}\r\n\r\n", "x".repeat(100_000)), 431, "head-too-large", "head"),
        ("many fields", format!("{post}{many}\r\n"), 431, "head-too-large", "head"),
        ("no version", "POST /orders\r\nHost: a\r\n\r\n".to_owned(), 400, "bad-request", "HTTP/1.1"),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_owned(), 505, "http-version", "HTTP/1.1"),
    ] {
        let answer = exchange(gateway.http, request.as_bytes()).await.unwrap_or_else(|why| panic!("{what}: {why}"));
        assert_eq!(refused(&answer), (status, name.to_owned()), "{what}: {answer:?}");
        assert!(answer.text().contains(words), "{what}: {answer:?}");
        assert_eq!(answer.field("connection"), Some("close"), "{what}: {answer:?}");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_its_own_upstream_does_not_start() {
    for (listen, upstream) in [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "0.0.0.0"),
        ("0.0.0.0", "127.0.0.1"),
        ("0.0.0.0", "127.1.2.3"),
        ("[::]", "[::1]"),
        ("[::]", "127.0.0.1"),
    ] {
        if listen.starts_with('[') && std::net::TcpListener::bind("[::1]:0").is_err() {
            continue;
        }
        let mut said = String::new();
        // Between the look for a free port and the start somebody else may take it.
        for _ in 0..20 {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let (listen, upstream) = (format!("{listen}:{free}"), format!("http://{upstream}:{free}"));
            let args = ["gateway", "--store", "memory", "--admin", "127.0.0.1:0"];
            let ended = crate::semel::run(&[&args[..], &["--listen", &listen, "--upstream", &upstream]].concat()).await;
            assert_eq!(ended.code, 3, "{listen} before {upstream}: {ended:?}");
            said = ended.err;
            if !said.contains("another process listens there") {
                break;
            }
        }
        assert!(said.contains("its own upstream") && said.contains(upstream), "{listen} before {upstream}: {said}");
    }
}

/// A proxy that sends everything back to where it came from.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_back_again_and_again_is_answered_508() {
    let relay = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = Setup::new(&format!("http://{}", relay.local_addr().unwrap()), "memory").start();
    let http = gateway.http;
    let passes = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&passes);
    tokio::spawn(async move {
        while let Ok((mut inward, _)) = relay.accept().await {
            if count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 100 {
                return;
            }
            tokio::spawn(async move {
                let mut onward = tokio::net::TcpStream::connect(http).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut inward, &mut onward).await;
            });
        }
    });
    for ask in [Ask::new("GET", "/x").body(""), Ask::post("/x")] {
        let answer = ask.send(http).await;
        assert_eq!(refused(&answer), (508, "loop-detected".into()), "{answer:?}");
    }
    assert!(passes.load(std::sync::atomic::Ordering::SeqCst) <= 40, "{passes:?}");
    gateway.says("leads back").await;
}

/// What came through another proxy is marked, so that a loop is seen; what a client sent itself costs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_from_a_proxy_says_that_it_passed_here() {
    let (upstream, gateway) = shop("").await;
    Ask::post("/orders").key("direct").send(gateway.http).await;
    assert_eq!(upstream.effects("direct")[0].header("via"), None);
    let from_proxy = Ask::post("/orders").key("proxied").field("X-Forwarded-For", "10.0.0.1").field("Via", "1.1 edge");
    assert_eq!(from_proxy.send(gateway.http).await.status, 200);
    let head = upstream.effects("proxied")[0].head.clone();
    assert!(head.contains("via: 1.1 edge\r\n") && head.contains("via: 1.1 semel-"), "{head}");
    // Its name is no secret, and a few passes are no loop.
    let own = head.lines().find_map(|l| l.strip_prefix("via: 1.1 semel-")).unwrap().to_owned();
    let again = Ask::post("/orders").key("again").field("Via", &format!("1.1 semel-{own}, 1.0 x, 1.1 semel-{own}"));
    assert_eq!(again.send(gateway.http).await.status, 200);
}

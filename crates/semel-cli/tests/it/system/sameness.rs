//! When two requests are one, and when they must not be.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    client::{Answer, Ask, exchange, read},
    gateway::{Gateway, Setup},
    upstream::{TELLING, Upstream},
};

async fn shop(rule: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), "memory").with(rule).start();
    (upstream, gateway)
}

/// Neither its body nor a field that is its own, whatever it is called.
fn tells_nothing_of(first: &Answer, other: &Answer) {
    let told: Vec<_> = TELLING.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert!(
        told.len() == 5 && told.iter().all(|name| first.field(name).is_some()),
        "the first one has them: {first:?}"
    );
    let text = other.text();
    assert!(!text.contains("order\"") && !text.contains("of-ann"), "nothing of the first answer: {other:?}");
    assert!(!other.fields.iter().any(|(_, value)| value.contains("of-ann")), "nor of its fields: {other:?}");
    assert!(!["location", "etag", "x-kept", "link"].iter().any(|name| other.field(name).is_some()), "{other:?}");
}

const BY_USER: &str = "[principal]\nheader = \"X-User\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_with_another_question_is_refused_and_nothing_leaks() {
    let (upstream, gateway) = shop("").await;
    let first = Ask::post("/telling?a=1").key("k").body("{\"secret\":1}").send(gateway.http).await;
    assert_eq!((first.status, first.idempotency_status()), (201, "fresh"));
    let others = [
        Ask::post("/telling?a=1").key("k").body("{\"secret\":2}"),
        Ask::post("/telling?a=1").key("k").body(""),
        Ask::post("/telling/x?a=1").key("k").body("{\"secret\":1}"),
        Ask::post("/telling?a=2").key("k").body("{\"secret\":1}"),
        Ask::post("/telling").key("k").body("{\"secret\":1}"),
        Ask::new("PUT", "/telling?a=1").key("k").body("{\"secret\":1}"),
        Ask::new("PATCH", "/telling?a=1").key("k").body("{\"secret\":1}"),
        Ask::new("DELETE", "/telling?a=1").key("k").body("{\"secret\":1}"),
    ];
    for other in others {
        let answer = other.send(gateway.http).await;
        assert_eq!((answer.status, answer.problem().as_str()), (422, "key-reused"), "{other:?}: {answer:?}");
        tells_nothing_of(&first, &answer);
        assert_eq!(answer.field("idempotency-error-source"), Some("guard"));
    }
    assert_eq!(upstream.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_principals_with_one_key_are_two_intents() {
    let (upstream, gateway) = shop(BY_USER).await;
    let ask = |user: &str| Ask::post("/orders").key("k").field("X-User", user);
    let (ann, ben) = (ask("ann").send(gateway.http).await, ask("ben").send(gateway.http).await);
    assert_eq!((ann.idempotency_status(), ben.idempotency_status()), ("fresh", "fresh"));
    assert_ne!(ann.body, ben.body);
    assert_eq!(ask("ann").send(gateway.http).await.body, ann.body);
    assert_eq!(ask("ben").send(gateway.http).await.body, ben.body);
    assert_eq!(upstream.count(), 2);
    let nobody = Ask::post("/orders").key("k").send(gateway.http).await;
    assert_eq!((nobody.status, nobody.problem().as_str()), (403, "principal-missing"), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_no_configuration_other_credentials_get_no_stored_byte() {
    let (upstream, gateway) = shop("").await;
    let ask = Ask::post("/telling").key("k");
    let first = ask.clone().field("Authorization", "Bearer ann").send(gateway.http).await;
    assert_eq!(first.status, 201);
    for other in [
        ask.clone().field("Authorization", "Bearer ben"),
        ask.clone().field("Cookie", "session=1"),
        ask.clone().field("Authorization", "Bearer ann").field("Cookie", "session=1"),
        ask.clone(),
    ] {
        let answer = other.send(gateway.http).await;
        assert_eq!((answer.status, answer.problem().as_str()), (409, "duplicate"), "{answer:?}");
        tells_nothing_of(&first, &answer);
    }
    assert_eq!(upstream.count(), 1, "a rotated token never causes a second run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quoted_key_and_a_bare_one_are_one_key() {
    let (upstream, gateway) = shop("").await;
    let forms = ["\"abc\"", "abc", "\"abc\";v=1", " abc "];
    for form in forms {
        let answer = Ask::post("/orders").key(form).send(gateway.http).await;
        assert_eq!(answer.status, 200, "{form}: {answer:?}");
    }
    assert_eq!(upstream.count(), 1);
    let twice = Ask::post("/orders").key("abc").key("\"abc\"").send(gateway.http).await;
    assert_eq!(
        (twice.status, twice.field("idempotent-replayed")),
        (200, Some("true")),
        "equal twice is one: {twice:?}"
    );
    let unequal = Ask::post("/orders").key("abc").key("abd").send(gateway.http).await;
    assert_eq!((unequal.status, unequal.problem().as_str()), (400, "key-invalid"), "{unequal:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn how_a_request_is_framed_does_not_make_it_another() {
    let (upstream, gateway) = shop("").await;
    let fields = "Host: shop.test\r\nIdempotency-Key: framed\r\n";
    let forms = [
        format!("POST /orders HTTP/1.1\r\n{fields}Content-Length: 5\r\n\r\nhello"),
        format!(
            "POST /orders HTTP/1.1\r\n{fields}Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n"
        ),
        format!("POST http://shop.test/orders HTTP/1.1\r\n{fields}Content-Length: 5\r\n\r\nhello"),
        format!("POST /orders HTTP/1.0\r\n{fields}Content-Length: 5\r\n\r\nhello"),
        format!("POST /orders HTTP/1.1\r\n{fields}Connection: close\r\nContent-Length: 5\r\n\r\nhello"),
    ];
    let mut bodies = Vec::new();
    for form in &forms {
        let answer = exchange(gateway.http, form.as_bytes()).await.unwrap();
        assert_eq!(answer.status, 200, "{form}: {answer:?}");
        bodies.push(answer.body);
    }
    assert!(bodies.iter().all(|b| *b == bodies[0]));
    // Two at once on one connection, and a third that waits to be told to go on.
    let mut stream = TcpStream::connect(gateway.http).await.unwrap();
    stream.write_all(forms[0].repeat(2).as_bytes()).await.unwrap();
    let mut seen = String::new();
    while seen.matches("idempotent-replayed: true").count() < 2 || seen.matches("{\"order\"").count() < 2 {
        more(&mut stream, &mut seen).await;
    }
    seen.clear();
    let head = format!("POST /orders HTTP/1.1\r\n{fields}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    while !seen.ends_with("\r\n\r\n") {
        more(&mut stream, &mut seen).await;
    }
    assert!(seen.starts_with("HTTP/1.1 100"), "{seen}");
    stream.write_all(b"hello").await.unwrap();
    assert_eq!(read(&mut stream, false).await.unwrap().body, bodies[0]);
    assert_eq!(upstream.count(), 1);
}

async fn more(stream: &mut TcpStream, seen: &mut String) {
    let mut piece = [0; 4096];
    let n = stream.read(&mut piece).await.unwrap();
    assert!(n > 0, "closed after {seen}");
    seen.push_str(&String::from_utf8_lossy(&piece[..n]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_none_is_refused() {
    let (upstream, gateway) = shop("").await;
    let long = "x".repeat(300);
    let longer = "x".repeat(10_000);
    for bad in ["", "\"\"", "schlüssel", "a b", "a, b", "\"open", &long, &longer] {
        let answer = Ask::post("/orders").key(bad).send(gateway.http).await;
        assert_eq!((answer.status, answer.problem().as_str()), (400, "key-invalid"), "{bad:.20}: {answer:?}");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_carries_no_key_or_is_safe_passes() {
    let (upstream, gateway) = shop("").await;
    for _ in 0..2 {
        assert_eq!(Ask::post("/orders").send(gateway.http).await.status, 200);
        assert_eq!(Ask::new("GET", "/orders").body("").key("k").send(gateway.http).await.status, 200);
        let head = Ask::new("HEAD", "/big/1000").body("").key("k").send(gateway.http).await;
        assert_eq!((head.status, head.field("content-length")), (200, Some("1000")), "{head:?}");
    }
    assert_eq!(upstream.count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn under_reject_a_networks_retry_gets_the_answer_and_a_second_click_does_not() {
    let rule = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\non_duplicate = \"reject\"\n";
    let (upstream, gateway) = shop(rule).await;
    let click = |id: &str| Ask::post("/slow/200").key("form").field("X-Request-Id", id);
    let (a, b, c) = tokio::join!(
        async { click("one").send(gateway.http).await },
        async { click("one").send(gateway.http).await },
        async { click("one").send(gateway.http).await }
    );
    assert!(a.status == 201 && a.body == b.body && b.body == c.body, "one click, three copies: {a:?} {b:?} {c:?}");
    let second = click("two").send(gateway.http).await;
    assert_eq!((second.status, second.problem().as_str()), (409, "duplicate"), "{second:?}");
    assert_eq!(upstream.effects("form").len(), 1);
}

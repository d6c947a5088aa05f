//! A replay is the answer again: same status, same kept fields in order, same bytes.

use super::{
    client::{Answer, Ask},
    gateway::{Gateway, Setup},
    upstream::{GZIP, Upstream, every_byte, pattern},
};

async fn twice(path: &str) -> Vec<(Answer, Answer)> {
    let mut pairs = Vec::new();
    for store in ["memory", "embedded"] {
        let upstream = Upstream::start().await;
        let gateway = Setup::new(&upstream.url(), store).start();
        pairs.push(pair(&gateway, path).await);
        assert_eq!(upstream.count(), 1, "{store} {path}: one effect");
    }
    pairs
}

async fn pair(gateway: &Gateway, path: &str) -> (Answer, Answer) {
    let ask = Ask::post(path).key("again");
    let first = ask.send(gateway.http).await;
    let second = ask.send(gateway.http).await;
    assert_eq!(first.idempotency_status(), "fresh", "{path}: {first:?}");
    assert_eq!(second.idempotency_status(), "replayed", "{path}: {:?}", second.fields);
    assert_eq!(second.field("idempotent-replayed"), Some("true"));
    assert_eq!(first.field("idempotent-replayed"), None);
    assert!(second.field("idempotency-expires").is_some());
    assert_eq!((first.status, &first.body), (second.status, &second.body), "{path}");
    (first, second)
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_not_replayed_and_other_fields_are() {
    for (first, second) in twice("/cookies").await {
        assert_eq!(first.all("set-cookie"), ["a=1", "b=2"]);
        assert!(second.all("set-cookie").is_empty());
        assert_eq!(second.field("x-kept"), Some("yes"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_keep_their_commas_and_their_order() {
    for (_, second) in twice("/commas").await {
        assert_eq!(second.all("x-list"), ["a, b,c", "\"d,e\""]);
        assert_eq!(second.field("etag"), Some("\"v1,2\""));
        assert_eq!(second.field("link"), Some("</a>; rel=next"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_answer_and_a_redirect_are_replayed() {
    for (_, second) in twice("/empty").await {
        assert_eq!((second.status, second.field("x-kept")), (204, Some("yes")));
        assert_eq!(second.field("content-length"), None);
    }
    for (_, second) in twice("/other").await {
        assert_eq!((second.status, second.field("location")), (303, Some("/orders/7?a=b")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_replayed_as_they_were() {
    for (_, second) in twice("/gzip").await {
        assert_eq!((second.field("content-encoding"), second.body.as_slice()), (Some("gzip"), GZIP));
    }
    for (_, second) in twice("/binary").await {
        assert!(second.body == every_byte(10_000), "{second:?}");
    }
    for path in ["/big/4194304", "/chunked/50000"] {
        for (_, second) in twice(path).await {
            let n = path.rsplit('/').next().unwrap().parse().unwrap();
            assert!(second.body == pattern(n), "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_over_the_cap_is_passed_on_and_never_run_again() {
    for (store, path) in [("memory", "/big/300000"), ("embedded", "/chunked/300000")] {
        let upstream = Upstream::start().await;
        let rule = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\nresponse_body = \"100 KiB\"\n";
        let gateway = Setup::new(&upstream.url(), store).with(rule).start();
        let ask = Ask::post(path).key("large");
        let first = ask.send(gateway.http).await;
        assert!(first.status == 200 && first.body == pattern(300_000), "{store}: all of it, untouched");
        for _ in 0..3 {
            let again = ask.send(gateway.http).await;
            assert_eq!((again.status, again.problem().as_str()), (409, "outcome-unavailable"), "{again:?}");
            assert!(again.text().contains("200"), "with the original status: {}", again.text());
        }
        assert_eq!(upstream.count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_survive_a_restart_of_the_embedded_store() {
    let upstream = Upstream::start().await;
    let setup = Setup::new(&upstream.url(), "embedded");
    let ask = Ask::post("/commas").key("kept");
    let gateway = setup.start();
    let first = ask.send(gateway.http).await;
    gateway.terminate();
    drop(gateway);
    let gateway = setup.start();
    let again = ask.send(gateway.http).await;
    assert_eq!((again.status, again.body), (200, first.body));
    assert_eq!(upstream.count(), 1);
}

//! What becomes of what the service did: the outcome table, end to end.

use std::{net::SocketAddr, time::Duration};

use super::{
    client::Ask,
    gateway::{Gateway, Setup},
    together,
    upstream::Upstream,
};

async fn shop(rule: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), "memory").with(rule).start();
    (upstream, gateway)
}

fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_refuses_connections_frees_the_key_and_the_retry_runs() {
    let addr = free_address();
    let gateway = Setup::new(&format!("http://{addr}"), "memory").start();
    let ask = Ask::post("/slow/1").key("later");
    for _ in 0..3 {
        let refused = ask.send(gateway.http).await;
        assert_eq!((refused.status, refused.problem().as_str()), (502, "upstream-unreachable"), "{refused:?}");
        assert_eq!(refused.idempotency_status(), "rejected", "nothing was run: {refused:?}");
        assert_eq!(refused.json()["identity"].as_str().map(str::len), Some(16), "{refused:?}");
    }
    let upstream = Upstream::on(addr).await;
    let ran = ask.send(gateway.http).await;
    assert_eq!((ran.status, ran.idempotency_status()), (201, "fresh"), "{ran:?}");
    assert_eq!(upstream.effects("later")[0].header("semel-attempt"), Some("1"), "what was not sent does not count");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_dies_after_reading_leaves_an_unknown() {
    let (upstream, gateway) = shop("").await;
    for path in ["/die", "/cut", "/cut-chunked"] {
        let ask = Ask::post(path).key(path.trim_start_matches('/'));
        let first = ask.try_send(gateway.http).await;
        if let Ok(answer) = &first {
            assert_eq!(answer.status, 502, "{path}: {answer:?}");
        }
        for _ in 0..3 {
            let again = ask.send(gateway.http).await;
            assert_eq!((again.status, again.problem().as_str()), (409, "outcome-unknown"), "{path}: {again:?}");
            // Whoever is asked about it finds it in the log by what the caller was told, and the key is not there.
            let identity = again.json()["identity"].as_str().unwrap().to_owned();
            // The log comes by a pipe of its own, later than the answer at times.
            gateway.says(&format!("\"rule\":\"default\",\"identity\":\"{identity}")).await;
            let lines = gateway.said();
            let line = lines.lines().find(|l| l.contains("outcome unknown: ") && l.contains(&identity));
            assert!(line.is_some_and(|l| l.contains("\"rule\":\"default\"")), "{path}: {lines}");
            assert!(again.field("x-request-id").is_some_and(|id| id.len() == 32), "{again:?}");
        }
        assert_eq!(upstream.effects(path.trim_start_matches('/')).len(), 1, "{path}: not run again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_status_becomes_what_the_table_says() {
    let (upstream, gateway) = shop("").await;
    let kept = [200, 201, 202, 301, 303, 307, 400, 404, 405, 410, 415, 422];
    let released = [401, 403, 407, 409, 421, 423, 425, 429];
    let unknown = [408, 500, 501, 502, 503, 504, 507];
    for status in kept.into_iter().chain(released).chain(unknown) {
        let key = format!("s{status}");
        let ask = Ask::post(&format!("/status/{status}")).key(&key);
        let first = ask.send(gateway.http).await;
        let became = if unknown.contains(&status) { "unknown" } else { "fresh" };
        assert_eq!((first.status, first.idempotency_status()), (status, became), "{first:?}");
        let second = ask.send(gateway.http).await;
        let effects = upstream.effects(&key).len();
        if kept.contains(&status) {
            assert_eq!((second.status, effects), (status, 1), "{status} is kept: {second:?}");
            assert_eq!((&second.body, second.field("idempotent-replayed")), (&first.body, Some("true")));
        } else if released.contains(&status) {
            assert_eq!((second.status, effects), (status, 2), "{status} is released: {second:?}");
        } else {
            assert_eq!((second.status, effects), (409, 1), "{status} is unknown: {second:?}");
            assert_eq!(second.problem(), "outcome-unknown");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relaxed_rule_releases_what_a_strict_one_calls_unknown() {
    let rule = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\nstrictness = \"relaxed\"\n";
    let (upstream, gateway) = shop(rule).await;
    for path in ["/status/500", "/status/503", "/die-once"] {
        let key = path.replace('/', "-");
        let ask = Ask::post(path).key(&key);
        let _ = ask.try_send(gateway.http).await;
        let _ = ask.send(gateway.http).await;
        assert_eq!(upstream.effects(&key).len(), 2, "{path} ran again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_may_say_itself_what_became_of_it() {
    let (upstream, gateway) = shop("").await;
    for (said, effects, status) in [("keep", 1, 500), ("release", 2, 500), ("unknown", 1, 409)] {
        let ask = Ask::post(&format!("/says/{said}")).key(said);
        let first = ask.send(gateway.http).await;
        assert_eq!(first.field("semel-outcome"), None, "it is for the guard alone");
        let second = ask.send(gateway.http).await;
        assert_eq!((second.status, upstream.effects(said).len()), (status, effects), "{said}: {second:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_slower_than_the_lease_is_carried_by_renewals() {
    // Renewed after a second each time: a machine that is busy for two more of them loses nothing.
    let rule = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\nlease = \"3s\"\non_in_flight = { wait = \"25s\" }\n";
    let (upstream, gateway) = shop(rule).await;
    let http = gateway.http;
    // Copies come before its end and after it.
    let answers = together(20, move |i| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(250 * i as u64)).await;
            Ask::post("/slow/7000").key("slow").send(http).await
        })
    })
    .await;
    assert_eq!(upstream.effects("slow").len(), 1);
    for answer in &answers {
        assert_eq!((answer.status, &answer.body), (201, &answers[0].body), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_slower_than_its_time_out_leaves_an_unknown() {
    let upstream = Upstream::start().await;
    // It never answers, so that only this time-out can end it; and there is time enough to connect.
    let slow = "[upstream.shop.timeout]\nconnect = \"20s\"\nfirst_byte = \"300ms\"\nwhole = \"20s\"\n";
    let gateway = Setup::new(&upstream.url(), "memory").with(slow).start();
    let ask = Ask::post("/hang-once").key("late");
    let first = ask.send(gateway.http).await;
    assert_eq!((first.status, first.problem().as_str()), (504, "upstream-timeout"), "{first:?}");
    let second = ask.send(gateway.http).await;
    assert_eq!((second.status, second.problem().as_str()), (409, "outcome-unknown"), "{second:?}");
    upstream.reached("late").await;
    assert_eq!(upstream.effects("late").len(), 1, "not run again");
}

//! Start, health, metrics, drain, upgrades, and the neighbours: `prove`, `demo`, `check`.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    client::{Ask, read},
    gateway::Setup,
    upstream::Upstream,
};
use crate::semel::{command, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_finishes_what_runs_and_ends_cleanly() {
    for store in ["memory", "embedded"] {
        let upstream = Upstream::start().await;
        let mut gateway = Setup::new(&upstream.url(), store).start();
        let http = gateway.http;
        let mut idle = TcpStream::connect(http).await.unwrap();
        let running = tokio::spawn(async move { Ask::post("/slow/700").key("running").send(http).await });
        upstream.reached("running").await;
        gateway.terminate();
        let answer = running.await.unwrap();
        assert_eq!((answer.status, answer.idempotency_status()), (201, "fresh"), "{store}: {answer:?}");
        let status = gateway.ended(Duration::from_secs(10));
        assert!(status.success(), "{store}: {status}: {}", gateway.said());
        assert!(TcpStream::connect(http).await.is_err(), "{store}: nobody listens any more");
        assert!(read(&mut idle, false).await.is_err(), "{store}: an idle connection does not hold the drain");
    }
}

/// A terminal that closes sends a hangup, often more than one: by the kernel and by the shell.
#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_drains_and_another_one_cuts_nothing() {
    let upstream = Upstream::start().await;
    let mut gateway = Setup::new(&upstream.url(), "memory").start();
    let http = gateway.http;
    let running = tokio::spawn(async move { Ask::post("/slow/700").key("running").send(http).await });
    upstream.reached("running").await;
    gateway.hang_up();
    gateway.says("asked to stop").await;
    gateway.hang_up();
    let answer = running.await.unwrap();
    assert_eq!((answer.status, answer.idempotency_status()), (201, "fresh"), "{answer:?}");
    let status = gateway.ended(Duration::from_secs(10));
    assert!(status.success(), "{status}: {}", gateway.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_at_its_deadline_whatever_still_runs() {
    let upstream = Upstream::start().await;
    let mut gateway = Setup::new(&upstream.url(), "memory").with("[drain]\ndeadline = \"500ms\"\n").start();
    let http = gateway.http;
    let running = tokio::spawn(async move { Ask::post("/slow/20000").key("stuck").try_send(http).await });
    upstream.reached("stuck").await;
    gateway.terminate();
    gateway.ended(Duration::from_secs(8));
    assert!(running.await.unwrap().is_err(), "the client is cut, not answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_sigterm_ends_it_at_once_and_what_ran_is_unknown() {
    let upstream = Upstream::start().await;
    let setup = Setup::new(&upstream.url(), "embedded");
    let mut gateway = setup.start();
    let http = gateway.http;
    let running = tokio::spawn(async move { Ask::post("/slow/20000").key("stuck").try_send(http).await });
    upstream.reached("stuck").await;
    gateway.terminate();
    // It drains: asked once, it stays as long as something runs.
    gateway.says("asked to stop").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!running.is_finished(), "the drain waits for what runs");
    gateway.terminate();
    let status = gateway.ended(Duration::from_secs(8));
    assert_eq!(status.code(), Some(3), "not a clean end: {}", gateway.said());
    assert!(gateway.said().contains("unknown"), "it says what that means: {}", gateway.said());
    assert!(running.await.unwrap().is_err());
    let gateway = setup.start();
    let again = Ask::post("/slow/20000").key("stuck").send(gateway.http).await;
    assert_eq!((again.status, again.problem().as_str()), (409, "outcome-unknown"), "{again:?}");
    assert_eq!(upstream.effects("stuck").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_readiness_and_metrics_say_what_is() {
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), "memory").start();
    for _ in 0..3 {
        Ask::post("/orders").key("m").send(gateway.http).await;
    }
    Ask::post("/orders").key("m").body("other").send(gateway.http).await;
    Ask::post("/orders").send(gateway.http).await;
    assert_eq!(gateway.admin_get("/healthz").await.status, 200);
    let ready = gateway.admin_get("/readyz").await;
    assert_eq!(ready.status, 200, "{}", ready.text());
    let text = gateway.admin_get("/metrics").await.text();
    let sum = |outcome: &str| -> f64 {
        text.lines()
            .filter(|l| l.starts_with("semel_requests_total{") && l.contains(&format!("outcome=\"{outcome}\"")))
            .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };
    assert_eq!((sum("fresh"), sum("replayed")), (1.0, 2.0), "{text}");
    assert!(text.contains("semel_claim_seconds"), "{text}");
    assert_eq!(gateway.metric("semel_inflight").await, 0.0);
}

/// A rule for everything, that wants a key.
const KEYED: &str = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\nmissing = \"required\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_passes_and_is_never_guarded() {
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), "memory").with(KEYED).start();
    // With a key, with the same key once more, and without one.
    for key in ["Idempotency-Key: k\r\n", "Idempotency-Key: k\r\n", ""] {
        let mut stream = TcpStream::connect(gateway.http).await.unwrap();
        let head = format!("GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n{key}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = read(&mut stream, false).await.unwrap();
        assert_eq!((answer.status, answer.idempotency_status()), (101, ""), "{answer:?}");
        for word in ["hello", "again"] {
            stream.write_all(word.as_bytes()).await.unwrap();
            let mut back = [0; 5];
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(back, word.as_bytes());
        }
    }
    let reached = upstream.effects("k");
    assert_eq!((reached.len(), upstream.effects("").len()), (2, 1), "each one is a connection of its own");
    assert!(reached.iter().all(|effect| effect.header("semel-identity").is_none()), "{reached:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_to_upgrade_is_no_way_around_the_guard() {
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), "memory").with(KEYED).start();
    let offer = Ask::post("/orders").field("Connection", "Upgrade").field("Upgrade", "echo");
    let nameless = offer.send(gateway.http).await;
    assert_eq!((nameless.status, nameless.problem().as_str()), (400, "key-missing"), "{nameless:?}");
    let (first, again) = (offer.clone().key("k").send(gateway.http).await, offer.key("k").send(gateway.http).await);
    assert_eq!((first.status, first.idempotency_status()), (200, "fresh"), "{first:?}");
    assert_eq!((again.status, again.idempotency_status()), (200, "replayed"), "{again:?}");
    assert_eq!(upstream.count(), 1);
    assert_eq!(upstream.effects("k")[0].header("upgrade"), None, "{:?}", upstream.effects("k"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_gateway_on_one_directory_is_told_so() {
    let upstream = Upstream::start().await;
    let setup = Setup::new(&upstream.url(), "embedded");
    let _first = setup.start();
    let Err(said) = setup.try_start() else { panic!("two processes on one directory") };
    assert!(said.contains("3"), "exit code 3: {said}");
    assert!(said.contains("data") && said.contains("another process"), "what and where: {said}");
}

#[test]
fn a_bad_file_is_refused_with_line_column_and_a_suggestion() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("semel.toml");
    std::fs::write(&file, "[upstream.shop]\nurls = [\"http://127.0.0.1:1\"]\n\n[[rule]]\nnam = \"x\"\n").unwrap();
    for (subcommand, code) in [(["gateway", "-c"].as_slice(), 2), (&["check"], 1)] {
        let output = command(subcommand).arg(&file).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains("semel.toml:5:1") && said.contains("name"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prove_finds_the_bare_service_unsafe_and_the_guarded_one_safe() {
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), "embedded").start();
    let through = format!("http://{}/slow/50", gateway.http);
    let bare = format!("{}/slow/50", upstream.url());
    for (url, code) in [(&through, 0), (&bare, 1)] {
        let ended = run(&["prove", url, "--rounds", "5", "--concurrency", "50", "--ramp", "0s", "--altered"]).await;
        assert_eq!(ended.code, code, "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_shows_the_problem_and_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0";
    let place = dir.path().to_str().unwrap();
    let ended = run(&["demo", "--exit", "--dir", place, "--listen", any, "--admin", any, "--service", any]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("1 ran, 99 "), "{}", ended.out);
    assert!(dir.path().join("orders.db").is_file(), "a real database");
}

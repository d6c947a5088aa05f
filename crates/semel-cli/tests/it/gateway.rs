//! `semel gateway` as a user meets it: the binary in front of a service that guards nothing.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::endpoints::Endpoint;
use crate::semel::{Ended, command, run, run_command};

/// A gateway on free ports; killed when dropped.
struct Gateway {
    child: Child,
    errors: BufReader<std::process::ChildStderr>,
    said: String,
    http: String,
    admin: String,
}

impl Gateway {
    fn start(dir: &TempDir, args: &[&str]) -> Self {
        let mut all = vec!["gateway", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        all.extend(args);
        let mut command = command(&all);
        command.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary was just built");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut said = String::new();
        while !said.contains("  stop ") && !said.contains("\"serving\"") {
            assert!(errors.read_line(&mut said).expect("text") > 0, "it ended: {said}");
        }
        let after = |begin: &str| {
            let (_, rest) = said.split_once(begin).unwrap_or_else(|| panic!("no {begin} in {said}"));
            rest.chars().take_while(|c| !c.is_whitespace() && *c != '"').collect::<String>()
        };
        let (http, admin) = match said.contains("\"serving\"") {
            true => (after("\"http\":\""), after("\"admin\":\"")),
            false => (after("requests   http://"), after("admin      http://")),
        };
        Self { child, errors, said, http, admin }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for its end; its code and what else it said.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.errors.read_to_string(&mut rest).expect("text");
        (self.child.wait().expect("it ends").code(), rest)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn prove(gateway: &Gateway, upstream: &Endpoint, more: &[&str]) -> Ended {
    let url = format!("http://{}/unprotected", gateway.http);
    let count = upstream.url("/count");
    let mut args =
        vec!["prove", &url, "--count-url", &count, "--rounds", "3", "--concurrency", "30", "--ramp", "100ms", "--json"];
    args.extend(more);
    run(&args).await
}

async fn get(at: &str, path: &str) -> String {
    exchange(at, &format!("GET {path} HTTP/1.1")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_only_an_upstream_a_storm_has_one_effect_on_either_store() {
    for store in ["memory", "embedded"] {
        let (dir, upstream) = (TempDir::new().expect("a directory"), Endpoint::start().await);
        let gateway = Gateway::start(&dir, &["--upstream", &upstream.url(""), "--store", store]);
        let ended = prove(&gateway, &upstream, &["--altered"]).await;
        assert_eq!(ended.code, 0, "{store}: {ended:?}");
        let metrics = get(&gateway.admin, "/metrics").await;
        assert!(metrics.contains("semel_requests_total{rule=\"default\",outcome=\"fresh\"} 4\n"), "{metrics}");
        assert!(get(&gateway.admin, "/readyz").await.ends_with("{\"notes\":[],\"ready\":true,\"reasons\":[]}"));
        gateway.signal(Signal::TERM);
        let (code, rest) = gateway.end();
        assert_eq!(code, Some(0), "{rest}");
        assert!(rest.contains("stopped cut=0 abandoned=0"), "{rest}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_guards_what_it_names_and_lets_the_rest_pass() {
    let (dir, upstream) = (TempDir::new().expect("a directory"), Endpoint::start().await);
    let file = format!(
        "[upstream.shop]\nurls = [\"{}\"]\n[principal]\nshared = true\n[store]\nurl = \"memory\"\n[log]\nformat = \"json\"\n\
         [[rule]]\nname = \"once\"\nmatch = \"POST /unprotected\"\non_in_flight = \"reject\"\n",
        upstream.url("")
    );
    std::fs::write(dir.path().join("semel.toml"), file).expect("a file");
    let gateway = Gateway::start(&dir, &["-c", "semel.toml"]);
    assert!(gateway.said.lines().all(|line| line.starts_with('{')), "not JSON: {}", gateway.said);
    let ended = prove(&gateway, &upstream, &[]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(upstream.effects(), 4);
    assert!(get(&gateway.http, "/count").await.starts_with("HTTP/1.1 200 OK\r\n"));
    gateway.signal(Signal::INT);
    assert_eq!(gateway.end().0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_replayed_after_kill_9() {
    let (dir, upstream) = (TempDir::new().expect("a directory"), Endpoint::start().await);
    let args = ["--upstream", &upstream.url("")];
    let gateway = Gateway::start(&dir, &args);
    let first = post(&gateway.http, "k1").await;
    assert!(first.starts_with("HTTP/1.1 201") && first.contains("idempotency-status: fresh"), "{first}");
    gateway.signal(Signal::KILL);
    assert_eq!(gateway.end().0, None);
    let gateway = Gateway::start(&dir, &args);
    let second = post(&gateway.http, "k1").await;
    assert!(second.starts_with("HTTP/1.1 201") && second.contains("idempotent-replayed: true"), "{second}");
    let body = |answer: &str| answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    assert_eq!(body(&first), body(&second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_to_the_upstream_of_their_rule_whatever_the_method() {
    let dir = TempDir::new().expect("a directory");
    let (shop, other) = (Endpoint::start().await, Endpoint::start().await);
    let file = format!(
        "[upstream.other]\nurls = [\"{}\"]\n[upstream.shop]\nurls = [\"{}\"]\n[principal]\nshared = true\n[store]\nurl = \"memory\"\n\
         [defaults]\nupstream = \"other\"\n[[rule]]\nname = \"shop\"\nmatch = \"* /unprotected\"\nupstream = \"shop\"\n\
         [[rule]]\nname = \"count\"\nmatch = \"* /count\"\nmode = \"off\"\nupstream = \"shop\"\n",
        other.url(""),
        shop.url("")
    );
    std::fs::write(dir.path().join("semel.toml"), file).expect("a file");
    let gateway = Gateway::start(&dir, &["-c", "semel.toml"]);
    assert!(post(&gateway.http, "k1").await.starts_with("HTTP/1.1 201"));
    assert_eq!((shop.effects(), other.effects()), (1, 0));
    assert!(get(&gateway.http, "/count").await.contains('1'));
    // `*` with a required key: no method is a way around it.
    let answer = exchange(&gateway.http, "PURGE /unprotected HTTP/1.1\r\ncontent-length: 0").await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("key-missing"), "{answer}");
    assert!(exchange(&gateway.http, "POST /broken HTTP/1.1\r\ncontent-length: 0").await.starts_with("HTTP/1.1 400"));
    let metrics = get(&gateway.admin, "/metrics").await;
    assert!(metrics.contains("semel_unguarded_total{rule=\"\",why=\"no-rule\"} 1\n"), "{metrics}");
}

async fn post(at: &str, key: &str) -> String {
    exchange(at, &format!("POST /unprotected HTTP/1.1\r\nidempotency-key: {key}\r\ncontent-length: 0")).await
}

/// One request without a body, on a connection of its own.
async fn exchange(at: &str, head: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut socket = tokio::net::TcpStream::connect(at).await.expect("it listens");
    let request = format!("{head}\r\nhost: shop.test\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.expect("it answers");
    answer
}

#[tokio::test]
async fn a_configuration_that_cannot_be_ends_in_2_with_all_its_problems() {
    let ended = run(&["gateway", "--upstream", "https://example.com", "--admin", "0.0.0.0:9090"]).await;
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(
        ended.err.starts_with("error: the configuration cannot be used:\n\n--admin or SEMEL_ADMIN: error: "),
        "{}",
        ended.err
    );
    assert!(
        ended.err.contains("--upstream or SEMEL_UPSTREAM: error: the value wants TLS: `https://example.com`\n"),
        "{}",
        ended.err
    );
    let ended = run(&["gateway", "-c", "nowhere.toml"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{ended:?}");
}

#[tokio::test]
async fn a_taken_address_or_directory_ends_in_3_with_the_cure() {
    let dir = TempDir::new().expect("a directory");
    let gateway = Gateway::start(&dir, &["--upstream", "http://127.0.0.1:9", "--data-dir", "d"]);
    let free = ["gateway", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut second = command(&[&free[..], &["--data-dir", "d"]].concat());
    second.current_dir(dir.path());
    let ended = run_command(second).await;
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.err.contains("is in use by another process"), "{}", ended.err);
    let mut doctor = command(&["doctor", "--upstream", "http://127.0.0.1:9", "--data-dir", "d"]);
    doctor.current_dir(dir.path());
    let ended = run_command(doctor).await;
    let pid = gateway.child.id();
    assert!(ended.out.contains(&format!("note    store: the gateway (pid {pid}) has it open\n")), "{}", ended.out);
    assert!(!ended.out.contains("directory of its own"), "{}", ended.out);
    assert!(ended.out.ends_with("; the store was not tried.\n"), "{}", ended.out);
    let ended =
        run(&["gateway", "--upstream", "http://127.0.0.1:9", "--store", "memory", "--listen", &gateway.http]).await;
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.err.contains("another process listens there"), "{}", ended.err);
    // Neither leaves a store behind.
    for (taken, word) in [("--listen", "another process listens there"), ("--admin", "is in use by another process")] {
        let (other, at) = if taken == "--listen" { ("--admin", &gateway.http) } else { ("--listen", &gateway.admin) };
        let flags = ["gateway", "--upstream", "http://127.0.0.1:9", "--data-dir", "e", taken, at, other, "127.0.0.1:0"];
        let mut third = command(&flags);
        third.current_dir(dir.path());
        let ended = run_command(third).await;
        assert!(ended.code == 3 && ended.err.contains(word), "{ended:?}");
        assert!(!dir.path().join("e").exists(), "{taken}");
    }
}

#[tokio::test]
async fn every_flag_is_in_the_book() {
    let page = include_str!("../../../../docs/gateway.md");
    let help = run(&["gateway", "--help"]).await.out;
    let words = help.split_whitespace().map(|word| word.trim_end_matches([',', '.']));
    let flags: Vec<&str> = words.filter(|word| word.starts_with("--") && *word != "--help").collect();
    assert!(flags.contains(&"--upstream") && flags.contains(&"--config"), "{flags:?} of {help}");
    let missing: Vec<_> = flags.iter().filter(|flag| !page.contains(**flag)).collect();
    assert!(missing.is_empty(), "docs/gateway.md says nothing of {missing:?}");
}

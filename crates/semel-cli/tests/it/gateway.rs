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
    errors: Option<BufReader<std::process::ChildStderr>>,
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
        Self::of(command.spawn().expect("the binary was just built"))
    }

    fn of(mut child: Child) -> Self {
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
        Self { child, errors: Some(errors), said, http, admin }
    }

    /// One whose log nobody can read: the system says where it listens, and the address with `/healthz` is the admin's.
    #[cfg(target_os = "linux")]
    async fn unheard(child: Child) -> Self {
        let mut gateway = Self { child, errors: None, said: String::new(), http: String::new(), admin: String::new() };
        for _ in 0..1_000 {
            let ended = gateway.child.try_wait().expect("a child can be asked");
            assert_eq!(ended, None, "it ended at its start");
            let ports = listening(gateway.child.id());
            for port in &ports {
                let at = format!("127.0.0.1:{port}");
                match asked_for_health(&at) {
                    Some(true) => gateway.admin = at,
                    Some(false) => gateway.http = at,
                    None => {}
                }
            }
            if !gateway.admin.is_empty() && !gateway.http.is_empty() {
                return gateway;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("it does not listen");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it runs");
    }

    /// Waits for its end; its code and what else it said.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        if let Some(errors) = &mut self.errors {
            errors.read_to_string(&mut rest).expect("text");
        }
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

/// The ports on which a process listens.
#[cfg(target_os = "linux")]
fn listening(pid: u32) -> Vec<u16> {
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let sockets: Vec<String> = links.filter_map(|link| link.to_str().map(str::to_owned)).collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let ports = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_theirs = fields.get(3) == Some(&"0A") && sockets.contains(&format!("socket:[{}]", fields.get(9)?));
        is_theirs.then(|| u16::from_str_radix(fields[1].rsplit(':').next()?, 16).ok())?
    });
    ports.collect()
}

/// Whether the gateway's admin side is there, or its other side; nothing where neither has answered.
#[cfg(target_os = "linux")]
fn asked_for_health(at: &str) -> Option<bool> {
    use std::io::Write as _;
    let mut socket = std::net::TcpStream::connect(at).ok()?;
    // Of the two only the gateway's front refuses a request without a host in this way.
    socket.write_all(b"POST /healthz HTTP/1.1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).ok()?;
    (!answer.is_empty()).then(|| !answer.contains("There is no Host field"))
}

async fn prove(gateway: &Gateway, upstream: &Endpoint, more: &[&str]) -> Ended {
    let url = format!("http://{}/unprotected", gateway.http);
    let count = upstream.url("/count");
    let mut args =
        vec!["prove", &url, "--count-url", &count, "--rounds", "3", "--concurrency", "30", "--ramp", "100ms", "--json"];
    args.extend(more);
    run(&args).await
}

/// A service that reads each request and breaks off: two lines of the gateway's log for each.
fn breaking_off() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().take(8) {
            let mut bytes = [0; 4096];
            let _ = stream.expect("a connection").read(&mut bytes);
        }
    });
    url
}

/// The subscriber told a line that it could not write to the same standard error, and panicked over that: in the middle
/// of a panic the process aborted, and every request with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_whose_reader_has_gone_ends_nothing() {
    for format in ["text", "json"] {
        let dir = TempDir::new().expect("a directory");
        let mut gateway = Gateway::start(&dir, &["--upstream", &breaking_off(), "--log-format", format]);
        gateway.errors = None;
        for key in ["a", "b", "c"] {
            let answer = post(&gateway.http, key).await;
            assert!(answer.starts_with("HTTP/1.1 502"), "{format}: {answer}");
            assert!(answer.contains("upstream-broken"), "{format}: {answer}");
        }
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.end().0, Some(0), "{format}");
    }
}

/// `/dev/full` stands for a disk without room. Nothing of the log can be written from the first line on.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_on_a_full_disk_stops_neither_the_start_nor_the_gateway() {
    for format in ["text", "json"] {
        let dir = TempDir::new().expect("a directory");
        let (upstream, full) = (breaking_off(), std::fs::File::options().write(true).open("/dev/full"));
        let flags = ["gateway", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &upstream];
        let mut command = command(&[&flags[..], &["--log-format", format]].concat());
        command.current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(full.expect("Linux has it"));
        let mut gateway = Gateway::unheard(command.spawn().expect("the binary was just built")).await;
        for _ in 0..1_000 {
            if get(&gateway.admin, "/readyz").await.starts_with("HTTP/1.1 200") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        for key in ["a", "b"] {
            let answer = post(&gateway.http, key).await;
            assert!(answer.starts_with("HTTP/1.1 502"), "{format}: {answer}");
        }
        assert_eq!(gateway.child.try_wait().expect("a child can be asked"), None, "{format}: it runs on");
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.end().0, Some(0), "{format}");
    }
}

/// `nohup` and a shell's `trap '' HUP` say that a hangup is no reason to end.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hangup_that_the_starter_ignores_is_ignored() {
    let (dir, upstream) = (TempDir::new().expect("a directory"), Endpoint::start().await);
    let url = upstream.url("");
    let semel = command(&["gateway", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &url]);
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(semel.get_program()).args(semel.get_args());
    shell.env_clear().current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let gateway = Gateway::of(shell.spawn().expect("there is a shell"));
    gateway.signal(Signal::HUP);
    for key in ["a", "b"] {
        assert!(post(&gateway.http, key).await.starts_with("HTTP/1.1 201"));
    }
    gateway.signal(Signal::TERM);
    let (code, rest) = gateway.end();
    assert_eq!((code, rest.matches("asked to stop").count()), (Some(0), 1), "{rest}");
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

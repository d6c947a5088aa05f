//! What the gateway says: at its start what it promises, in its logs nothing of anybody's.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    time::Duration,
};

use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{client::Ask, gateway::Setup, upstream::Upstream};
use crate::semel::command;

/// What a start with these flags says before it serves.
fn summary(flags: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let args = ["gateway", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut command = command(&[&args, flags].concat());
    let mut child = command
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok) {
        said.push_str(&line);
        said.push('\n');
        if line.trim_start().starts_with("stop ") {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    said
}

#[test]
fn the_start_says_in_plain_words_what_is_promised_and_what_is_not() {
    // Lines break at the terminal's width: the words count, not where they stand.
    let flat = |args: &[&str]| summary(args).split_whitespace().collect::<Vec<_>>().join(" ");
    let embedded = flat(&[]);
    for words in [
        "any unsafe method that carries",
        "on disk in /",
        "/semel-data promise",
        "survives kill -9",
        "survive a power cut",
        "two gateways with one each do not see each other",
        "exactly once only where the service honours the key",
        "share one key space",
    ] {
        assert!(embedded.contains(words), "{words}: {embedded}");
    }
    let memory = flat(&["--store", "memory"]);
    for words in ["in memory, at most", "while this process lives", "every key is forgotten, and a retry runs again"] {
        assert!(memory.contains(words), "{words}: {memory}");
    }
    assert!(!memory.contains("kill -9") && !memory.contains("power cut"), "no more than it can keep: {memory}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_no_body_and_no_credential_is_logged() {
    for level in ["info", "debug"] {
        let upstream = Upstream::start().await;
        let gateway = Setup::new(&upstream.url(), "embedded").level(level).start();
        let (key, body) = ("payment-of-mrs-smith-0815", "{\"iban\":\"DE02120300000000202051\"}");
        let ask = |path: &str, key: &str| {
            Ask::post(path)
                .key(key)
                .body(body)
                .field("Authorization", "Bearer hush-hush")
                .field("Cookie", "sid=hush-hush")
        };
        for path in ["/orders", "/orders", "/status/503", "/die", "/cut", "/big/9000000"] {
            let _ = ask(path, &format!("{key}{path}")).try_send(gateway.http).await;
        }
        // Refusals of every kind: another question, no key, too long a key, half a request, no HTTP at all.
        let _ = ask("/orders", &format!("{key}/status/503")).try_send(gateway.http).await;
        let _ = ask("/orders", &format!("{key} with spaces")).try_send(gateway.http).await;
        let _ = ask("/orders", &key.repeat(20)).try_send(gateway.http).await;
        for cut in [ask("/orders", key).bytes().len() - 3, 40] {
            let mut stream = TcpStream::connect(gateway.http).await.unwrap();
            stream.write_all(&ask("/orders", key).bytes()[..cut]).await.unwrap();
        }
        let mut stream = TcpStream::connect(gateway.http).await.unwrap();
        stream.write_all(format!("{key}\r\n{body}\r\n\r\n").as_bytes()).await.unwrap();
        drop(stream);
        // There is a log; and some time for whatever else may come.
        gateway.says("upstream broke off").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let said = gateway.said();
        for secret in ["mrs-smith", "iban", "DE02120300000000202051", "hush-hush"] {
            assert!(!said.contains(secret), "{level}: {secret} is in the log: {said}");
        }
        for line in said.lines() {
            assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "not JSON: {line}");
        }
    }
}

//! `semel check` as a user meets it.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::semel::{Ended, command, run_command};

const GOOD: &str = "\
[upstream.orders]
urls = [\"http://127.0.0.1:3000\"]
[principal]
header = \"X-User\"
[[rule]]
name = \"submit\"
match = \"POST /orders\"
";

async fn check(dir: &TempDir, args: &[&str]) -> Ended {
    let mut all = vec!["check"];
    all.extend(args);
    let mut command = command(&all);
    command.current_dir(dir.path());
    run_command(command).await
}

fn dir_with(text: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a directory");
    let file = dir.path().join("semel.toml");
    std::fs::write(&file, text).expect("a file");
    (dir, file)
}

#[tokio::test]
async fn a_good_file_is_explained_and_passes() {
    let (dir, _) = dir_with(GOOD);
    let ended = check(&dir, &[]).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, "file: ./semel.toml\n"), "{ended:?}");
    assert!(
        ended.out.contains("1. submit (line 5)\n   POST /orders to `orders` at http://127.0.0.1:3000.\n"),
        "{}",
        ended.out
    );
    assert!(ended.out.ends_with("semel.toml: nothing to object to.\n"), "{}", ended.out);
}

#[tokio::test]
async fn an_error_is_told_with_its_place_and_ends_in_1() {
    let (dir, _) = dir_with(&format!("{GOOD}tll = \"1h\"\ntakeover = true\n"));
    let ended = check(&dir, &["semel.toml"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (1, ""), "{ended:?}");
    assert!(ended.out.starts_with("semel.toml:8:1: error: unknown key `rule.tll`\n"), "{}", ended.out);
    assert!(ended.out.contains("  fix: did you mean `ttl`?\n"), "{}", ended.out);
    assert!(
        ended.out.contains("semel.toml:9:12: error: rule `submit`: `takeover` without `upstream_idempotent`\n"),
        "{}",
        ended.out
    );
    assert!(ended.out.ends_with("semel.toml: 2 errors; the gateway would not start.\n"), "{}", ended.out);
}

#[tokio::test]
async fn a_warning_is_a_finding_and_a_note_is_none() {
    let (dir, _) = dir_with(&format!("{GOOD}key = \"X-Request-Id\"\n"));
    let ended = check(&dir, &[]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.out.ends_with("semel.toml: 1 warning.\n"), "{}", ended.out);
    let (dir, _) = dir_with(&format!("{GOOD}preset = \"payment\"\n"));
    let ended = check(&dir, &[]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.ends_with("semel.toml: 2 notes.\n"), "{}", ended.out);
}

#[tokio::test]
async fn without_a_file_the_flags_alone_are_checked() {
    let dir = TempDir::new().expect("a directory");
    let ended = check(&dir, &["--upstream", "http://127.0.0.1:3000"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.starts_with("No rules: any unsafe method that carries a key is guarded"), "{}", ended.out);
    let ended = check(&dir, &[]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(
        ended.out.starts_with("error: no upstream: there is nothing to put the gateway in front of\n"),
        "{}",
        ended.out
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_a_usage_error() {
    let (dir, file) = dir_with("");
    let ended = check(&dir, &["nowhere.toml"]).await;
    assert_eq!(ended.code, 2, "{ended:?}");
    assert_eq!(ended.err, "error: nowhere.toml is not there; name the configuration file, or leave it out\n");
    std::fs::write(&file, b"name = \"\xff\"").expect("a file");
    let ended = check(&dir, &[]).await;
    assert_eq!(
        (ended.code, ended.err.as_str()),
        (2, "error: semel.toml is no UTF-8 text (byte 8); save it as UTF-8\n"),
        "{ended:?}"
    );
    let ended = check(&dir, &["--nonsense"]).await;
    assert_eq!(ended.code, 2, "{ended:?}");
}

/// Read to its end it fills the machine's memory.
#[tokio::test]
async fn a_file_that_never_ends_is_a_usage_error() {
    let (dir, _) = dir_with(GOOD);
    let ended = check(&dir, &["/dev/zero"]).await;
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.err.contains("/dev/zero: it has more than 4194304 bytes, which is the limit here"), "{ended:?}");
}

#[tokio::test]
async fn json_carries_findings_and_values_with_their_origin() {
    let (dir, _) = dir_with(&format!("{GOOD}ttl = \"2min\"\n"));
    let ended = check(&dir, &["--json"]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let json = ended.json();
    assert_eq!(json["findings"][0]["severity"], "warning");
    assert_eq!((&json["findings"][0]["line"], &json["findings"][0]["column"]), (&8.into(), &7.into()));
    assert_eq!(json["rules"][0]["name"], "submit");
    assert_eq!(json["rules"][0]["settings"]["ttl"]["value"], "2min");
    assert_eq!(json["rules"][0]["settings"]["ttl"]["from"], "line 8");
    assert_eq!(json["rules"][0]["settings"]["lease"]["from"], "default");
}

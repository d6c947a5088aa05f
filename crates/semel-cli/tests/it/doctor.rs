//! `semel doctor` as a user meets it.

use semel_testkit::servers::redis::{Redis, Setup};
use tempfile::TempDir;

use crate::endpoints::Endpoint;
use crate::semel::{Ended, command, run_command};

async fn doctor(dir: &TempDir, args: &[&str]) -> Ended {
    let mut all = vec!["doctor"];
    all.extend(args);
    let mut command = command(&all);
    command.current_dir(dir.path());
    run_command(command).await
}

fn file(dir: &TempDir, upstream: &str, store: &str) {
    let text = format!(
        "[upstream.shop]\nurls = [\"{upstream}\"]\n[principal]\nheader = \"X-User\"\n[store]\nurl = \"{store}\"\n\
         [[rule]]\nname = \"submit\"\nmatch = \"POST /orders\"\n"
    );
    std::fs::write(dir.path().join("semel.toml"), text).expect("a file");
}

#[tokio::test]
async fn a_good_deployment_gets_a_round_trip_and_six_questions() {
    let (dir, upstream) = (TempDir::new().expect("a directory"), Endpoint::start().await);
    file(&dir, &upstream.url(""), "memory");
    let ended = doctor(&dir, &[]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("claim, completion and replay work"), "{}", ended.out);
    assert!(ended.out.contains("`shop` answers at"), "{}", ended.out);
    assert!(ended.out.contains("6. Is anyone watching the metrics?"), "{}", ended.out);
    assert!(ended.out.ends_with("nothing to object to.\n"), "{}", ended.out);
}

#[tokio::test]
async fn replicas_that_calls_wait_for_in_vain_are_told() {
    let (dir, upstream) = (TempDir::new().expect("a directory"), Endpoint::start().await);
    let server = Redis::start(&Setup::new()).await;
    file(&dir, &upstream.url(""), &format!("{}\"\nreplicas = 2\nprefix = \"semel", server.url()));
    let ended = doctor(&dir, &[]).await;
    assert!(ended.out.contains("calls wait for 2 replicas, and 0 are connected"), "{ended:?}");
    assert!(ended.out.contains("Start the missing replicas, or set replicas = 0"), "{ended:?}");
}

#[tokio::test]
async fn looking_makes_no_store() {
    let (dir, upstream) = (TempDir::new().expect("a directory"), Endpoint::start().await);
    file(&dir, &upstream.url(""), "embedded:data");
    let ended = doctor(&dir, &[]).await;
    assert!(ended.out.contains("data is not there yet"), "{}", ended.out);
    assert!(!dir.path().join("data").exists());
}

#[tokio::test]
async fn what_cannot_be_reached_is_told_with_its_cure() {
    let dir = TempDir::new().expect("a directory");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    file(&dir, &format!("http://{closed}"), "memory");
    let ended = doctor(&dir, &["--json"]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let json = ended.json();
    let finding = json["findings"].as_array().expect("findings").iter().find(|f| f["level"] == "error").expect("one");
    assert_eq!(finding["about"], "upstream");
    assert!(finding["what"].as_str().expect("words").contains("cannot be reached"), "{finding}");
    assert_eq!(finding["fix"], "start the service, or mend the address");
}

#[tokio::test]
async fn a_file_with_mistakes_is_told_and_nothing_is_tried() {
    let dir = TempDir::new().expect("a directory");
    std::fs::write(dir.path().join("semel.toml"), "[store]\nurl = \"disk\"\n").expect("a file");
    let ended = doctor(&dir, &[]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.out.contains("error   file line 2: `store.url` is no store: `disk`"), "{}", ended.out);
    assert!(!ended.out.contains("Six questions"), "{}", ended.out);
}

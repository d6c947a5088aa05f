//! `semel doctor` as a user meets it.

use semel_testkit::servers::SmallDisk;
use semel_testkit::servers::redis::{Redis, Setup};
use serde_json::Value;
use tempfile::TempDir;

use crate::endpoints::Endpoint;
use crate::semel::{Ended, command, run, run_command};
use crate::shared::{Shared, on_every_store};
use crate::system::gateway::Setup as GatewaySetup;
use crate::through::flat;

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
    assert!(flat(&ended.out).contains(&format!("{}/data holds 0 B, and ", dir.path().display())), "{}", ended.out);
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

on_every_store! {
    a_round_trip_is_made_and_leaves_nothing_behind
}

/// What a look at a store found.
async fn found(store: &str) -> (i32, Vec<Value>) {
    let (dir, upstream) = (TempDir::new().expect("a directory"), Endpoint::start().await);
    file(&dir, &upstream.url(""), store);
    let ended = doctor(&dir, &["--json"]).await;
    let all = ended.json()["findings"].as_array().expect("findings").clone();
    (ended.code, all.into_iter().filter(|found| found["about"] == "store").collect())
}

fn words<'f>(found: &'f Value, field: &str) -> &'f str {
    found[field].as_str().unwrap_or_default()
}

async fn a_round_trip_is_made_and_leaves_nothing_behind(server: &Shared) {
    let (_, found) = found(&server.url()).await;
    let says = |what: &str| found.iter().any(|found| words(found, "what").contains(what));
    assert!(says("claim, completion and replay work"), "{found:?}");
    assert!(says(" store answers and keeps "), "{found:?}");
    assert!(says("its clock and this machine's are "), "{found:?}");
    assert!(found.iter().all(|found| found["level"] != "error"), "{found:?}");
    let list = run(&["keys", "list", "--store", &server.url()]).await;
    assert_eq!((list.code, list.err.as_str()), (0, "no records\n"), "{list:?}");
}

/// A server whose clock is an hour ahead, for whoever asks it in this way.
async fn an_hour_apart(url: &str) {
    let (code, found) = found(url).await;
    let apart =
        found.iter().find(|found| words(found, "what").starts_with("its clock and this machine's are ")).expect("one");
    let ms = words(apart, "what").split(' ').find_map(|word| word.parse::<u64>().ok()).expect("how far");
    assert!((3_500_000..=3_700_000).contains(&ms), "{apart}");
    assert_eq!((code, words(apart, "level")), (1, "warning"), "{apart}");
    assert!(words(apart, "why").contains("a clock that leaps ends keys early"), "{apart}");
    assert_eq!(words(apart, "fix"), "keep both machines on time with NTP");
    assert!(found.iter().any(|found| words(found, "what").contains("claim, completion and replay work")), "{found:?}");
}

#[tokio::test]
async fn the_clock_of_a_postgres_that_is_apart_is_a_warning() {
    let server = Shared::postgres().await;
    server.sql(
        "CREATE SCHEMA ahead; CREATE FUNCTION ahead.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE \
         AS $$ SELECT pg_catalog.statement_timestamp() + interval '1 hour' $$",
    );
    an_hour_apart(&format!("{}?options[search_path]=ahead,pg_catalog,public", server.url())).await;
}

#[tokio::test]
async fn the_clock_of_a_mariadb_that_is_apart_is_a_warning() {
    let server = Shared::mariadb().await;
    // What is done at the beginning of each session, but for those of administrators.
    server.sql("CREATE USER gateway; GRANT ALL ON semel.* TO gateway");
    server.sql("SET GLOBAL init_connect = 'SET timestamp = UNIX_TIMESTAMP() + 3600'");
    an_hour_apart(&server.url().replace("root@", "gateway@")).await;
}

/// Without it two claims of one key are both granted, or none.
#[tokio::test]
async fn a_table_without_its_unique_index_is_an_error_and_refuses_the_start() {
    for (server, change) in [
        (Shared::postgres().await, "ALTER TABLE semel_record DROP CONSTRAINT semel_record_pkey"),
        (Shared::mariadb().await, "ALTER TABLE semel.semel_record DROP PRIMARY KEY"),
    ] {
        server.sql(change);
        let (code, found) = found(&server.url()).await;
        let error = found.iter().find(|found| found["level"] == "error").expect("one");
        assert_eq!(code, 1);
        let what = flat(words(error, "what"));
        assert!(what.contains("no unique index on semel_record (id)") && what.contains("ADD PRIMARY KEY"), "{what}");
        let Err(said) = GatewaySetup::new("http://127.0.0.1:9", &server.url()).try_start() else {
            panic!("it started");
        };
        assert!(said.contains("no unique index on semel_record (id)"), "{said}");
    }
}

/// A folder in memory, nearly full: what is there, what comes of it, and what to do.
#[tokio::test]
async fn the_disk_of_an_embedded_store_is_told_in_words() {
    let (dir, upstream, disk) = (TempDir::new().expect("a directory"), Endpoint::start().await, SmallDisk::mount(120));
    let data = disk.path().join("data");
    file(&dir, &upstream.url(""), &format!("embedded:{}", data.display()));
    let ended = doctor(&dir, &[]).await;
    let said = flat(&ended.out);
    assert_eq!(ended.code, 1, "{said}");
    assert!(
        said.contains(&format!("warning store: {} holds 0 B, and 120.0 MiB are free there", data.display())),
        "{said}"
    );
    assert!(said.contains("why: with less than 160.0 MiB new keys are refused (503 store-full)"), "{said}");
    assert!(said.contains(&format!("warning store: {} lies in memory (tmpfs)", data.display())), "{said}");
    assert!(!data.exists(), "looking made a store");

    let gateway = GatewaySetup::new(&upstream.url(""), "embedded").data(disk.path()).start();
    gateway.says("lies in memory (tmpfs)").await;
    let ended = doctor(&dir, &[]).await;
    let said = flat(&ended.out);
    assert!(said.contains("has it open") && said.contains(&format!("{} holds ", data.display())), "{said}");
    assert!(said.contains("lies in memory (tmpfs)"), "{said}");
}

#[tokio::test]
async fn payments_on_a_redis_that_forgets_are_an_error_until_it_is_cured() {
    let (dir, upstream) = (TempDir::new().expect("a directory"), Endpoint::start().await);
    let server = Redis::start(&Setup::new().maxmemory(100 << 20)).await;
    file(&dir, &upstream.url(""), &server.url());
    let text = std::fs::read_to_string(dir.path().join("semel.toml")).expect("it was written");
    std::fs::write(dir.path().join("semel.toml"), format!("{text}preset = \"payment\"\n")).expect("a file");
    let what = format!("{} takes no rule with preset payment, as `submit` (line 10) is", server.url());
    let told = async || {
        let ended = doctor(&dir, &["--json"]).await;
        let findings = ended.json()["findings"].as_array().expect("findings").clone();
        findings.into_iter().find(|finding| finding["what"].as_str().is_some_and(|words| words.starts_with(&what)))
    };
    let finding = told().await.expect("it is told");
    assert_eq!(finding["level"], "error");
    assert!(finding["fix"].as_str().is_some_and(|words| words.contains("CONFIG SET appendonly yes")), "{finding}");
    server.tell(&["CONFIG", "SET", "appendonly", "yes"]).await;
    assert_eq!(told().await, None);
}

//! `semel prove` gives the right verdict on endpoints whose fault is known.

use std::time::Duration;

use crate::endpoints::{Endpoint, SLOW, nobody};
use crate::semel::{Ended, command, run, run_command};

const FAST: [&str; 5] = ["--json", "--concurrency=20", "--ramp=5ms", "--settle=60ms", "--timeout=5s"];

async fn prove(url: &str, more: &[&str]) -> Ended {
    run(&[&["prove", url], &FAST[..], more].concat()).await
}

/// The verdict, the effects of each round, the exit code.
fn result(ended: &Ended) -> (String, Vec<Option<u64>>, i32) {
    let json = ended.json();
    let effects = json["effects"]["per_round"].as_array().expect("a list").iter().map(serde_json::Value::as_u64);
    (json["verdict"].as_str().expect("a word").to_owned(), effects.collect(), ended.code)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_safe_endpoint_is_safe_by_its_answers_and_by_its_count() {
    let shop = Endpoint::start().await;
    let by_answers = prove(&shop.url("/safe"), &["--rounds=3", "--altered"]).await;
    assert_eq!(result(&by_answers), ("safe".to_owned(), vec![Some(1); 3], 0), "{by_answers:?}");
    let count = shop.url("/count");
    let counted = prove(&shop.url("/safe"), &["--rounds=3", "--altered", "--count-url", &count]).await;
    assert_eq!(result(&counted), ("safe".to_owned(), vec![Some(1); 3], 0), "{counted:?}");
    assert_eq!(counted.json()["effects"]["source"], "count_url");
    for check in
        ["first_passes", "a_hundred_enter_once", "repeat_is_stopped", "altered_is_refused", "others_are_independent"]
    {
        assert_eq!((check, by_answers.check(check).as_str()), (check, "passed"));
        assert_eq!((check, counted.check(check).as_str()), (check, "passed"));
    }
    assert_eq!(counted.check("failure_frees"), "not_asked");
}

/// A figure of a kind of answer.
fn figure(ended: &Ended, class: &str, name: &str) -> u64 {
    ended.json()["classes"][class][name].as_u64().unwrap_or_else(|| panic!("{class} {name}: {ended:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn latencies_are_told_for_each_kind_of_answer_apart() {
    let shop = Endpoint::start().await;
    let ended = prove(&shop.url("/slow"), &["--rounds=3"]).await;
    assert_eq!(result(&ended), ("safe".to_owned(), vec![Some(1); 3], 0), "{ended:?}");
    for (class, count) in [("executed", 3), ("rejected", 3 * 19)] {
        let [told, mean, p50, p99, max] =
            ["count", "mean_us", "p50_us", "p99_us", "max_us"].map(|name| figure(&ended, class, name));
        assert_eq!(told, count, "{class}: {ended:?}");
        assert!(0 < p50 && p50 <= p99 && p99 <= max, "{class}: {ended:?}");
        assert!(0 < mean && mean <= max, "{class}: {ended:?}");
    }
    // Kept to three figures, so that they may say a thousandth less.
    let least = u64::try_from(SLOW.as_micros()).expect("it is short") * 999 / 1_000;
    for name in ["mean_us", "p50_us", "p99_us", "max_us"] {
        assert!(figure(&ended, "executed", name) >= least, "{name}: what runs takes {SLOW:?}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_racy_endpoint_is_caught_with_round_and_key() {
    let shop = Endpoint::start().await;
    let ended = prove(&shop.url("/racy"), &["--rounds=2"]).await;
    let (verdict, effects, code) = result(&ended);
    assert_eq!((verdict.as_str(), code), ("unsafe", 1), "{ended:?}");
    assert!(effects.iter().all(|effects| effects.is_some_and(|count| count > 1)), "{ended:?}");
    let found = &ended.json()["findings"][0];
    assert_eq!((found["round"].as_u64(), found["check"].as_str()), (Some(1), Some("a_hundred_enter_once")));
    assert!(found["key"].as_str().unwrap().starts_with("prove-"));
    // One after the other it looks right: only the storm shows the race.
    assert_eq!(ended.check("repeat_is_stopped"), "passed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_runs_twice_has_two_effects() {
    let shop = Endpoint::start().await;
    let ended = prove(&shop.url("/twice"), &[]).await;
    assert_eq!(result(&ended), ("unsafe".to_owned(), vec![Some(2)], 1), "{ended:?}");
    assert_eq!(ended.json()["classes"]["rejected"]["count"], 18);
    assert!(ended.json()["words"].as_str().unwrap().contains("up to 2 effects"));
}

#[tokio::test(flavor = "multi_thread")]
async fn different_answers_to_one_key_are_a_finding_even_with_one_effect() {
    let shop = Endpoint::start().await;
    let ended = prove(&shop.url("/differing"), &["--count-url", &shop.url("/count")]).await;
    assert_eq!(result(&ended), ("unsafe".to_owned(), vec![Some(1)], 1), "{ended:?}");
    assert!(ended.json()["findings"][0]["what"].as_str().unwrap().contains("different 2xx answers"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_answers_that_say_nothing_are_never_called_safe() {
    let shop = Endpoint::start().await;
    let ended = prove(&shop.url("/mute"), &["--rounds=2"]).await;
    assert_eq!(result(&ended), ("undecided".to_owned(), vec![None; 2], 1), "{ended:?}");
    assert!(ended.json()["words"].as_str().unwrap().contains("--count-url"));
    let counted =
        prove(&shop.url("/mute"), &["--count-url", &shop.url("/count"), "--count-pointer=/effects/total"]).await;
    // The 20 of the storm and the repeat.
    assert_eq!(result(&counted), ("unsafe".to_owned(), vec![Some(21)], 1), "{counted:?}");
    assert_eq!(counted.check("repeat_is_stopped"), "failed");
    let marked = prove(&shop.url("/marked"), &["--rounds=2"]).await;
    assert_eq!(result(&marked), ("safe".to_owned(), vec![Some(1); 2], 0), "{marked:?}");
    assert_eq!(marked.json()["classes"]["replayed"]["count"], 38);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_refuses_connections_cannot_be_judged() {
    let ended = prove(&nobody().await, &["--rounds=3"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (3, ""), "{ended:?}");
    assert!(ended.err.contains("cannot connect") && ended.err.contains("Is it running"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_hangs_or_cuts_its_answers_cannot_be_judged() {
    let hanging = Endpoint::hanging().await;
    let ended = prove(&hanging.url("/orders"), &["--timeout=300ms", "--rounds=50"]).await;
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.err.contains("not one of 20 copies got an answer") && ended.err.contains("in time"), "{ended:?}");
    let cutting = Endpoint::cutting().await;
    let ended = prove(&cutting.url("/orders"), &[]).await;
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.err.contains("the connection broke"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_fails_every_time_has_no_effect() {
    let shop = Endpoint::start().await;
    let ended = prove(&shop.url("/broken"), &[]).await;
    assert_eq!(result(&ended), ("unsafe".to_owned(), vec![Some(0)], 1), "{ended:?}");
    assert_eq!(ended.check("first_passes"), "failed");
    assert!(ended.json()["findings"][0]["what"].as_str().unwrap().contains("20 × 400"), "{ended:?}");
    assert_eq!(ended.json()["classes"]["rejected"]["answers"], serde_json::json!({"400": 20}));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_told_by_status_and_name_and_a_wrong_path_is_asked_about() {
    let shop = Endpoint::start().await;
    let page = run(&["prove", &shop.url("/nowhere"), "--concurrency=5", "--ramp=0"]).await;
    assert!(page.out.contains("5 × 404\n") && page.out.contains("is the path of the URL right?"), "{}", page.out);
    let page = run(&["prove", &shop.url("/unreachable"), "--concurrency=5", "--ramp=0"]).await;
    assert!(page.out.contains("5 × 502 upstream-unreachable\n"), "{}", page.out);
    assert!(page.out.contains("is the service running?"), "{}", page.out);
    let page = run(&["prove", &shop.url("/twice"), "--concurrency=5", "--ramp=0"]).await;
    assert!(page.out.contains("3 × 409\n") && !page.out.contains("Every answer"), "{}", page.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_hang_up_do_not_hide_what_they_caused() {
    let shop = Endpoint::start().await;
    let all_gone = ["--disconnect=1", "--disconnect-within=5ms"];
    let safe = prove(&shop.url("/safe"), &[&all_gone[..], &["--count-url", &shop.url("/count")]].concat()).await;
    assert_eq!(result(&safe), ("safe".to_owned(), vec![Some(1)], 0), "{safe:?}");
    // The first copy at least: it is answered later than it leaves.
    assert!(safe.json()["classes"]["hung_up"]["count"].as_u64().unwrap() > 0, "{safe:?}");
    // No copy of the storm saw an answer: the repeat gets it.
    let by_answers = prove(&shop.url("/safe"), &all_gone).await;
    assert_eq!(result(&by_answers).0, "safe", "{by_answers:?}");
    assert!(by_answers.json()["notes"].to_string().contains("--count-url"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_body_must_not_get_the_stored_answer() {
    let shop = Endpoint::start().await;
    let ended = prove(&shop.url("/leaky"), &["--altered"]).await;
    assert_eq!((ended.check("altered_is_refused").as_str(), ended.code), ("failed", 1), "{ended:?}");
    assert!(ended.json()["findings"][0]["what"].as_str().unwrap().contains("stored answer"));
    let own = prove(&shop.url("/unprotected"), &["--concurrency=1", "--altered=other"]).await;
    assert_eq!(own.check("altered_is_refused"), "failed", "{own:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_must_run_by_itself() {
    let shop = Endpoint::start().await;
    let ended = prove(&shop.url("/deaf"), &[]).await;
    assert_eq!((ended.check("others_are_independent").as_str(), ended.code), ("failed", 1), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_frees_the_key_or_does_not() {
    let shop = Endpoint::start().await;
    let frees = prove(&shop.url("/sticky"), &["--failing-header=Fail: free"]).await;
    assert_eq!((frees.check("failure_frees").as_str(), frees.code), ("passed", 0), "{frees:?}");
    let keeps = prove(&shop.url("/sticky"), &["--failing-header=Fail: keep"]).await;
    assert_eq!((keeps.check("failure_frees").as_str(), keeps.code), ("failed", 1), "{keeps:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_direct_load_is_shown_and_not_judged() {
    let shop = Endpoint::start().await;
    let (direct, count) = (shop.url("/unprotected"), shop.url("/count"));
    let ended = prove(&shop.url("/safe"), &["--direct", &direct, "--count-url", &count, "--rounds=2"]).await;
    assert_eq!(result(&ended), ("safe".to_owned(), vec![Some(1); 2], 0), "{ended:?}");
    assert_eq!(ended.json()["direct"]["effects"]["per_round"], serde_json::json!([20, 20]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_can_be_named_by_a_member_that_is_there() {
    let shop = Endpoint::start().await;
    let named = prove(&shop.url("/racy"), &["--effect-pointer=/id", "--rounds=2"]).await;
    assert_eq!(result(&named).0, "unsafe");
    let missing = prove(&shop.url("/mute"), &["--effect-pointer=/order_id"]).await;
    assert_eq!(result(&missing).0, "undecided", "a name that is not there tells nothing: {missing:?}");
    assert!(missing.json()["notes"][0].as_str().unwrap().starts_with("20 of the 2xx answers lack"), "{missing:?}");
    let keyless = prove(&shop.url("/unprotected"), &["--no-key", "--concurrency=1"]).await;
    assert_eq!(keyless.check("others_are_independent"), "not_asked");
    assert_eq!(keyless.check("repeat_is_stopped"), "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flag_can_come_from_the_environment() {
    let shop = Endpoint::start().await;
    let mut command = command(&["prove"]);
    command
        .env("SEMEL_PROVE_URL", shop.url("/safe"))
        .env("SEMEL_PROVE_JSON", "true")
        .env("SEMEL_PROVE_CONCURRENCY", "7")
        .env("SEMEL_PROVE_RAMP", "0")
        .env("SEMEL_PROVE_HEADER", "A: 1\nB: 2")
        .env("SEMEL_PROVE_NO_KEY", "false")
        .env("SEMEL_PROVE_SEED", "42");
    let ended = run_command(command).await;
    assert_eq!((ended.code, ended.json()["concurrency"].as_u64()), (0, Some(7)), "{ended:?}");
    assert_eq!(ended.json()["seed"], 42);
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_mistakes_end_with_two_and_say_the_way_out() {
    for (args, said) in [
        (vec!["prove", "shop/orders"], "whole URL"),
        (vec!["prove", "http://127.0.0.1:1/", "--header", "nonsense"], "Name: value"),
        (vec!["prove", "http://127.0.0.1:1/", "--disconnect", "2"], "between 0.0 and 1.0"),
        (vec!["prove", "http://127.0.0.1:1/", "--rounds", "x"], "a whole number from 1 to 1000000"),
        (vec!["prove", "http://127.0.0.1:1/", "--ramp", "soon"], "write it like \"10s\""),
        (vec!["prove", "http://127.0.0.1:1/", "--body-file", "/does/not/exist"], "--body-file"),
        (vec!["prove"], "Usage"),
    ] {
        let ended = run(&args).await;
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{args:?}: {ended:?}");
        assert!(ended.err.contains(said), "{args:?}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_run_with_what_was_seen() {
    let shop = Endpoint::start().await;
    let mut command =
        command(&["prove", &shop.url("/safe"), "--rounds=100000", "--concurrency=5", "--ramp=0", "--json"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let child = command.spawn().expect("the binary was just built");
    let id = rustix::process::Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    for _ in 0..3_000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if shop.effects() > 2 {
            break;
        }
    }
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = tokio::task::spawn_blocking(|| child.wait_with_output()).await.unwrap().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), json["verdict"].as_str()), (Some(3), Some("unfinished")), "{json}");
    assert!(json["rounds"]["run"].as_u64().unwrap() > 0 && json["findings"] == serde_json::json!([]), "{json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_for_people_fits_and_has_no_escapes_when_piped() {
    let shop = Endpoint::start().await;
    let ended =
        run(&["prove", &shop.url("/racy"), "--concurrency=20", "--ramp=0", "--direct", &shop.url("/mute")]).await;
    assert_eq!(ended.code, 1);
    assert!(ended.out.contains("NOT safe") && ended.out.contains("WRONG a_hundred_enter_once"), "{}", ended.out);
    assert!(!ended.out.contains('\x1b') && ended.err.is_empty(), "{ended:?}");
    assert!(ended.out.lines().all(|line| line.chars().count() <= 80), "{}", ended.out);
}

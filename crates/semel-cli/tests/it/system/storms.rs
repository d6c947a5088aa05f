//! Storms of copies: one effect per key, every time.

use std::collections::BTreeSet;

use super::{
    alone,
    client::{Answer, Ask},
    gateway::Setup,
    rounds, together,
    upstream::Upstream,
};
use crate::semel::run;

const COPIES: usize = 100;

/// Rounds of a hundred copies each; the answers of each round are handed to `judge`, which says how many were refused.
/// Returns the sum.
async fn storm(store: &'static str, rule: &str, rounds: usize, judge: fn(&[Answer]) -> usize) -> usize {
    let _alone = alone().await;
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), store).with(rule).start();
    let mut refused = 0;
    for round in 0..rounds {
        let key = format!("storm-{round}");
        let ask = Ask::post("/slow/20").key(&key);
        let http = gateway.http;
        let answers = together(COPIES, move |_| {
            let ask = ask.clone();
            Box::pin(async move { ask.send(http).await })
        })
        .await;
        assert_eq!(upstream.effects(&key).len(), 1, "round {round}: one effect");
        let fresh = answers.iter().filter(|a| a.idempotency_status() == "fresh").count();
        assert_eq!(fresh, 1, "round {round}: {:?} {}", distinct(&answers), gateway.said());
        refused += judge(&answers);
    }
    assert_eq!(upstream.count(), rounds, "nothing ran beside the keys");
    refused
}

/// The kinds of answers, each once.
fn distinct(answers: &[Answer]) -> BTreeSet<(u16, &str, String)> {
    answers.iter().map(|a| (a.status, a.idempotency_status(), a.problem())).collect()
}

fn all_get_the_one_answer(answers: &[Answer]) -> usize {
    for answer in answers {
        assert_eq!((answer.status, &answer.body), (201, &answers[0].body), "{answer:?}");
    }
    0
}

fn one_runs_and_the_others_are_refused_or_replayed(answers: &[Answer]) -> usize {
    let fresh = answers.iter().find(|a| a.idempotency_status() == "fresh").expect("one ran");
    for answer in answers {
        match answer.status {
            201 => assert_eq!(answer.body, fresh.body),
            409 => assert_eq!(answer.problem(), "in-flight", "{answer:?}"),
            other => panic!("{other}: {answer:?}"),
        }
    }
    answers.iter().filter(|a| a.status == 409).count()
}

const WAIT: &str = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\non_in_flight = { wait = \"20s\" }\n";
const REJECT: &str = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\non_in_flight = \"reject\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_copies_have_one_effect_and_one_answer_on_memory() {
    storm("memory", WAIT, rounds(200), all_get_the_one_answer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_copies_have_one_effect_and_one_answer_on_the_embedded_store() {
    storm("embedded", WAIT, rounds(200), all_get_the_one_answer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_reject_a_hundred_copies_have_one_effect_on_memory() {
    let refused = storm("memory", REJECT, rounds(200), one_runs_and_the_others_are_refused_or_replayed).await;
    assert!(refused > 0, "somebody met it in flight");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_reject_a_hundred_copies_have_one_effect_on_the_embedded_store() {
    let refused = storm("embedded", REJECT, rounds(200), one_runs_and_the_others_are_refused_or_replayed).await;
    assert!(refused > 0, "somebody met it in flight");
}

/// The same from outside: what a user would run, with the service's own count as the witness.
#[tokio::test(flavor = "multi_thread")]
async fn prove_counts_one_effect_per_key_in_two_hundred_rounds_of_a_hundred() {
    let _alone = alone().await;
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), "embedded").start();
    let (url, count) = (format!("http://{}/slow/20", gateway.http), format!("{}/count", upstream.url()));
    let n = rounds(200).to_string();
    let ended = run(&["prove", &url, "--count-url", &count, "--rounds", &n, "--ramp", "0", "--json"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let json = ended.json();
    assert_eq!(
        (&json["verdict"], &json["concurrency"], &json["effects"]["most"]),
        (&"safe".into(), &100.into(), &1.into())
    );
    assert_eq!(upstream.count(), rounds(200) + 1, "one for each round, and the one that must run");
}

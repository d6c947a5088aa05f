//! Storms of copies: one effect per key, every time.

use super::{
    client::{Answer, Ask},
    gateway::Setup,
    rounds, together,
    upstream::Upstream,
};

const COPIES: usize = 100;

/// Rounds of a hundred copies each; the answers of each round are handed to `judge`.
async fn storm(store: &'static str, rule: &str, rounds: usize, judge: fn(&[Answer])) {
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), store).with(rule).start();
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
        judge(&answers);
    }
    assert_eq!(upstream.count(), rounds, "nothing ran beside the keys");
}

fn all_get_the_one_answer(answers: &[Answer]) {
    assert_eq!(answers.iter().filter(|a| a.idempotency_status() == "fresh").count(), 1, "{answers:?}");
    for answer in answers {
        assert_eq!((answer.status, &answer.body), (201, &answers[0].body), "{answer:?}");
    }
}

fn one_runs_and_the_others_are_refused_or_replayed(answers: &[Answer]) {
    let fresh: Vec<_> = answers.iter().filter(|a| a.idempotency_status() == "fresh").collect();
    assert_eq!(fresh.len(), 1, "{answers:?}");
    for answer in answers {
        match answer.status {
            201 => assert_eq!(answer.body, fresh[0].body),
            409 => assert_eq!(answer.problem(), "in-flight", "{answer:?}"),
            other => panic!("{other}: {answer:?}"),
        }
    }
    assert!(answers.iter().any(|a| a.status == 409), "somebody met it in flight");
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
    storm("memory", REJECT, rounds(200), one_runs_and_the_others_are_refused_or_replayed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_reject_a_hundred_copies_have_one_effect_on_the_embedded_store() {
    storm("embedded", REJECT, rounds(200), one_runs_and_the_others_are_refused_or_replayed).await;
}

//! kill -9 with requests in flight, and a start on the same directory.

use std::time::Duration;

use super::{
    alone,
    client::Ask,
    gateway::{Gateway, Setup},
    rounds, together,
    upstream::Upstream,
};

const STRICT: &str = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\n";

/// Fires a handful of requests of which some finish and some are under way, then kills the gateway.
async fn fire_and_kill(gateway: Gateway, upstream: &Upstream, round: usize) -> Vec<(String, bool)> {
    let http = gateway.http;
    let done = format!("done-{round}");
    let answer = Ask::post("/slow/0").key(&done).send(http).await;
    assert_eq!(answer.status, 201);
    let clients = tokio::spawn(together(4, move |i| {
        Box::pin(async move {
            let key = format!("open-{round}-{i}");
            let answered = Ask::post(&format!("/slow/{}", 5 * i)).key(&key).try_send(http).await;
            (key, answered.is_ok_and(|a| a.status == 201))
        })
    }));
    upstream.reached(&format!("open-{round}-3")).await;
    // Sweeps over the moments between "the service has it" and "the answer is out".
    tokio::time::sleep(Duration::from_micros(300 * (round as u64 % 50))).await;
    gateway.kill();
    let mut keys = clients.await.unwrap();
    keys.push((done, true));
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_finished_requests_replay_and_interrupted_ones_are_unknown_at_once() {
    let _alone = alone().await;
    let upstream = Upstream::start().await;
    let setup = Setup::new(&upstream.url(), "embedded").with(STRICT);
    let (mut replayed, mut unknown) = (0, 0);
    let mut gateway = setup.start();
    for round in 0..rounds(200) {
        let keys = fire_and_kill(gateway, &upstream, round).await;
        gateway = setup.start();
        for (i, (key, answered)) in keys.iter().enumerate() {
            let target = if i == 4 { "/slow/0".into() } else { format!("/slow/{}", 5 * i) };
            let effects_before = upstream.effects(key).len();
            let retry = Ask::post(&target).key(key).send(gateway.http).await;
            match (retry.status, retry.problem().as_str()) {
                (201, _) if retry.field("idempotent-replayed") == Some("true") => replayed += 1,
                // It never got as far as its claim.
                (201, _) => assert_eq!(effects_before, 0, "{round} {key}: ran a second time"),
                (409, "outcome-unknown") => {
                    assert!(!answered, "{round} {key}: was answered, so it must replay");
                    unknown += 1;
                }
                _ => panic!("{round} {key}: {retry:?}"),
            }
            assert!(upstream.effects(key).len() <= 1, "{round} {key}: never two effects under strict");
        }
    }
    gateway.says("the store holds outcomes that nobody can tell").await;
    assert!(replayed > 0 && unknown > 0, "both were seen: {replayed} replayed, {unknown} unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_an_interrupted_request_is_taken_over_where_the_rule_says_so() {
    let upstream = Upstream::start().await;
    let rule = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\nlease = \"500ms\"\ntakeover = true\nupstream_idempotent = true\n\
                settle_after = \"1s\"\non_in_flight = \"reject\"\n";
    let setup = Setup::new(&upstream.url(), "embedded").with(rule);
    // `settle_after` is never shorter than the upstream's whole time-out.
    let setup = setup.with("[upstream.shop.timeout]\nfirst_byte = \"1s\"\nwhole = \"1s\"\n");
    for round in 0..rounds(8) {
        let gateway = setup.start();
        let (http, key) = (gateway.http, format!("over-{round}"));
        let ask = Ask::post("/slow/300").key(&key);
        let client = {
            let ask = ask.clone();
            tokio::spawn(async move { ask.try_send(http).await.is_ok() })
        };
        upstream.reached(&key).await;
        gateway.kill();
        assert!(!client.await.unwrap(), "the client got no answer");
        let gateway = setup.start();
        let early = ask.send(gateway.http).await;
        assert_eq!((early.status, early.problem().as_str()), (409, "in-flight"), "not before settle_after: {early:?}");
        let mut late = early;
        for _ in 0..100 {
            if late.status == 201 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            // Many ask at once when it may be taken over: one of them gets it.
            let (ask, http) = (ask.clone(), gateway.http);
            let answers = together(10, move |_| {
                let ask = ask.clone();
                Box::pin(async move { ask.send(http).await })
            });
            for answer in answers.await {
                match answer.status {
                    201 => late = answer,
                    _ => assert_eq!((answer.status, answer.problem().as_str()), (409, "in-flight"), "{answer:?}"),
                }
            }
        }
        assert_eq!(late.status, 201, "{late:?}");
        let effects = upstream.effects(&key);
        assert_eq!(effects.len(), 2, "run again, once");
        let fence = |i: usize| effects[i].header("semel-fence").and_then(|f| f.parse::<u64>().ok()).unwrap();
        assert!(fence(1) > fence(0), "the second run has the higher fence");
        assert_eq!(effects[1].header("semel-attempt"), Some("2"));
        let again = ask.send(gateway.http).await;
        assert_eq!((again.status, again.body), (201, late.body), "and replayed from then on");
        assert_eq!(upstream.effects(&key).len(), 2);
    }
}

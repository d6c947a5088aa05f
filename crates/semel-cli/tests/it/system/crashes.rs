//! kill -9 with requests in flight, and a start on the same directory.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::{
    alone,
    client::{Answer, Ask},
    gateway::{Gateway, Setup},
    rounds, together,
    upstream::Upstream,
};

/// Nobody waits: who met a lease that is still alive would be told "in flight", which is not unknown at once.
const STRICT: &str = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\non_in_flight = \"reject\"\n";

/// A key, where it is asked for, and what a retry was told.
struct Retried {
    key: String,
    target: String,
    answer: Answer,
}

/// Fires a handful of requests of which some finish and some are under way, then kills the gateway. Returns keys, targets
/// and whether they were answered.
async fn fire_and_kill(gateway: Gateway, upstream: &Upstream, round: usize) -> Vec<(String, String, bool)> {
    let http = gateway.http;
    let done = format!("done-{round}");
    let answer = Ask::post("/slow/0").key(&done).send(http).await;
    assert_eq!(answer.status, 201);
    let clients = tokio::spawn(together(4, move |i| {
        Box::pin(async move {
            let (key, target) = (format!("open-{round}-{i}"), format!("/slow/{}", 5 * i));
            let answered = Ask::post(&target).key(&key).try_send(http).await;
            (key, target, answered.is_ok_and(|a| a.status == 201))
        })
    }));
    upstream.reached(&format!("open-{round}-3")).await;
    // Sweeps over the moments between "the service has it" and "the answer is out".
    tokio::time::sleep(Duration::from_micros(300 * (round as u64 % 50))).await;
    gateway.kill();
    let mut keys = clients.await.unwrap();
    keys.push((done, "/slow/0".into(), true));
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_finished_requests_replay_and_interrupted_ones_are_unknown_at_once() {
    let _alone = alone().await;
    let upstream = Upstream::start().await;
    let setup = Setup::new(&upstream.url(), "embedded").with(STRICT);
    let (wanted, mut round, mut retried) = (rounds(200), 0, Vec::new());
    let (mut replayed, mut unknown) = (0, 0);
    let mut gateway = setup.start();
    // Where a kill comes is the machine's affair: it goes on until both were seen.
    while round < wanted || replayed == 0 || unknown == 0 {
        assert!(round < 5 * wanted, "both are to be seen: {replayed} replayed, {unknown} unknown");
        let keys = fire_and_kill(gateway, &upstream, round).await;
        gateway = setup.start();
        for (key, target, answered) in keys {
            let effects_before = upstream.effects(&key).len();
            let answer = Ask::post(&target).key(&key).send(gateway.http).await;
            match (answer.status, answer.problem().as_str()) {
                (201, _) if answer.field("idempotent-replayed") == Some("true") => replayed += 1,
                // It never got as far as its claim.
                (201, _) => assert_eq!(effects_before, 0, "{round} {key}: ran a second time"),
                (409, "outcome-unknown") => {
                    assert!(!answered, "{round} {key}: was answered, so it must replay");
                    unknown += 1;
                }
                _ => panic!("{round} {key}: {answer:?}"),
            }
            assert!(upstream.effects(&key).len() <= 1, "{round} {key}: never two effects under strict");
            retried.push(Retried { key, target, answer });
        }
        round += 1;
    }
    gateway.says("the store holds outcomes that nobody can tell").await;
    // Whatever came to them since: every key still has its one answer.
    gateway.kill();
    let gateway = setup.start();
    for Retried { key, target, answer } in &retried {
        let last = Ask::post(target).key(key).send(gateway.http).await;
        assert_eq!((last.status, last.problem()), (answer.status, answer.problem()), "{key}: {last:?}");
        assert!(last.status == 409 || last.body == answer.body, "{key}: {last:?} after {answer:?}");
        assert!(upstream.effects(key).len() <= 1, "{key}: never two effects under strict");
    }
}

/// How many gateways are killed side by side: most of a round is waiting.
const LANES: usize = 16;

/// Of each lane.
const ROUNDS: usize = 13;

/// In flight at each kill.
const KEYS: usize = 4;

const SETTLE_AFTER: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_interrupted_requests_are_taken_over_where_the_rule_says_so() {
    let _alone = alone().await;
    let upstream = Upstream::start().await;
    let lanes = {
        let upstream = upstream.clone();
        together(LANES, move |lane| Box::pin(takeovers(upstream.clone(), lane))).await
    };
    let kills = lanes.into_iter().sum::<usize>();
    assert!(kills >= LANES * rounds(ROUNDS), "{kills} kills found what to interrupt");
}

/// Kills one gateway again and again. Returns how many kills met work in flight.
async fn takeovers(upstream: Upstream, lane: usize) -> usize {
    let rule = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\ntakeover = true\nupstream_idempotent = true\n\
                settle_after = \"2s\"\non_in_flight = \"reject\"\n";
    // `settle_after` is never shorter than the upstream's whole time-out.
    let setup = Setup::new(&upstream.url(), "embedded").with(rule);
    let setup = setup.with("[upstream.shop.timeout]\nfirst_byte = \"2s\"\nwhole = \"2s\"\n");
    let (wanted, mut kills, mut over) = (rounds(ROUNDS), 0, Vec::new());
    let mut gateway = setup.start();
    for round in 0..3 * wanted {
        if kills == wanted {
            break;
        }
        let names: Vec<_> = (0..KEYS).map(|key| format!("over-{lane}-{round}-{key}")).collect();
        let http = gateway.http;
        let clients = {
            let names = names.clone();
            tokio::spawn(together(KEYS, move |key| {
                let ask = Ask::post("/hang-once").key(&names[key]);
                Box::pin(async move { ask.try_send(http).await.is_ok() })
            }))
        };
        for name in &names {
            upstream.reached(name).await;
        }
        gateway.kill();
        // A machine that is very busy may let the time-out come before the kill: that one is told, not interrupted.
        let told = clients.await.unwrap();
        let interrupted: Vec<_> = names.into_iter().zip(told).filter(|(_, told)| !told).map(|(name, _)| name).collect();
        kills += usize::from(!interrupted.is_empty());
        // Not later than the store's opening, from which the time counts.
        let opened = Instant::now();
        gateway = setup.start();
        for name in interrupted {
            let first = taken_over(&gateway, &name).await;
            let effects = upstream.effects(&name);
            assert_eq!(effects.len(), 2, "{name}: run again, once");
            let waited = effects[1].at.duration_since(opened);
            assert!(waited >= SETTLE_AFTER, "{name}: run again {waited:?} after the start");
            let fence = |i: usize| effects[i].header("semel-fence").and_then(|f| f.parse::<u64>().ok()).unwrap();
            assert!(fence(1) > fence(0), "{name}: the second run has the higher fence");
            assert_eq!(effects[1].header("semel-attempt"), Some("2"), "{name}");
            over.push((name, first));
        }
    }
    for (name, first) in &over {
        let again = Ask::post("/hang-once").key(name).send(gateway.http).await;
        assert_eq!((again.status, &again.body), (200, &first.body), "{name}: replayed from then on: {again:?}");
        assert_eq!(upstream.effects(name).len(), 2, "{name}");
    }
    kills
}

/// Asks, from the start on and many at once, until one of them gets it.
async fn taken_over(gateway: &Gateway, name: &str) -> Answer {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        let (ask, http) = (Ask::post("/hang-once").key(name), gateway.http);
        let answers = together(3, move |_| {
            let ask = ask.clone();
            Box::pin(async move { ask.send(http).await })
        });
        let answers = answers.await;
        let (over, rest): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
        for answer in rest {
            assert_eq!((answer.status, answer.problem().as_str()), (409, "in-flight"), "{name}: {answer:?}");
        }
        let bodies: BTreeSet<_> = over.iter().map(|answer| answer.body.as_slice()).collect();
        assert!(bodies.len() <= 1, "{name}: {over:?}");
        if let Some(answer) = over.into_iter().next() {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    panic!("{name}: not taken over in a minute: {}", gateway.said());
}

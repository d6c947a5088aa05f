//! What a gateway tells of what happened to it, against what took place.

use std::time::Duration;

use semel_testkit::servers::{
    Postgres,
    redis::{Redis, Setup as Server},
};

use super::backing::migrate;
use crate::system::{
    alone,
    client::{Answer, Ask},
    gateway::{Gateway, Setup},
    together,
    upstream::Upstream,
};

const OPEN: &str = "[[rule]]\nname = \"orders\"\nmatch = \"/*\"\non_store_error = \"open\"\n";

const UNGUARDED: &str = "semel_unguarded_total{rule=\"orders\",why=\"store-down\"}";

/// All series of it.
async fn unguarded(gateway: &Gateway) -> f64 {
    let text = gateway.admin_get("/metrics").await.text();
    let series = text.lines().filter(|line| line.starts_with("semel_unguarded_total{"));
    series.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// While the store is away both gateways run what comes. Each says of its own runs that they were unguarded, and the service
/// sees as many without a fence.
#[tokio::test(flavor = "multi_thread")]
async fn what_ran_unguarded_is_counted_as_the_service_saw_it() {
    let _alone = alone().await;
    let (mut server, upstream) = (Redis::start(&Server::new().keeps()).await, Upstream::start().await);
    let setup = Setup::new(&upstream.url(), &server.url()).with(OPEN);
    let gateways = [setup.clone().start(), Setup::new(&upstream.url(), &server.url()).with(OPEN).start()];
    let mut asked = Vec::new();
    let mut told = [0_u32; 2];
    let mut ask = async |n: usize, key: String| {
        let status = Ask::post("/status/200").key(&key).send(gateways[n].http).await.idempotency_status().to_owned();
        asked.push(key);
        told[n] += u32::from(status == "bypassed");
        status
    };
    for n in [0, 1] {
        assert_eq!(ask(n, format!("before-{n}")).await, "fresh");
        assert_eq!(unguarded(&gateways[n]).await, 0.0);
    }
    server.kill();
    for n in 0..24 {
        // Of the last ones a copy comes to the other gateway, which has not heard of them.
        assert_eq!(ask(n % 2, format!("away-{n}")).await, "bypassed");
        if n >= 20 {
            assert_eq!(ask(1 - n % 2, format!("away-{n}")).await, "bypassed");
        }
    }
    server.start_again().await;
    for n in [0, 1] {
        // A second of the breaker's at most, and what comes meanwhile counts as well.
        for round in 0.. {
            if ask(n, format!("back-{n}-{round}")).await == "fresh" {
                break;
            }
            assert!(round < 600, "{}", gateways[n].said());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    asked.sort();
    asked.dedup();
    let effects: Vec<_> = asked.iter().flat_map(|key| upstream.effects(key)).collect();
    assert_eq!(effects.len(), upstream.count());
    let without = |name| effects.iter().filter(|effect| effect.header(name).is_none()).count();
    assert_eq!(without("semel-fence") + without("semel-unguarded"), effects.len(), "each has one of the two");
    assert_eq!(without("semel-fence"), (told[0] + told[1]) as usize, "the service saw what callers were told");
    for (gateway, told) in gateways.iter().zip(told) {
        assert_eq!((unguarded(gateway).await, gateway.metric(UNGUARDED).await), (told.into(), told.into()));
        assert!(told >= 14, "{told}");
    }
}

const LEASES: &str = "[[rule]]\nname = \"renewed\"\nmatch = \"/slow/4000\"\nlease = \"2s\"\n\
                      [[rule]]\nname = \"held\"\nmatch = \"/*\"\nlease = \"60s\"\n";

/// A shared store that somebody empties.
enum Store {
    Redis(Redis),
    Postgres(Postgres),
}

impl Store {
    fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Postgres(server) => server.url(),
        }
    }

    /// No record is left.
    async fn lose_all(&self) {
        match self {
            Self::Redis(server) => drop(server.tell(&["FLUSHALL"]).await),
            Self::Postgres(server) => drop(server.sql("DELETE FROM semel_record")),
        }
    }

    /// It crashes, and nothing of what it kept is there when it is back.
    async fn come_back_empty(&mut self) {
        match self {
            Self::Redis(server) => {
                server.kill();
                server.start_empty().await;
            }
            Self::Postgres(server) => {
                let empty = Postgres::start().await;
                migrate(&empty.url()).await;
                server.stop_at_once();
                server.start_on_data_of(empty).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_whose_redis_was_emptied_says_so_and_records_what_it_has_under_way() {
    let _alone = alone().await;
    tells_of_its_losses(Store::Redis(Redis::start(&Server::new().keeps()).await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_whose_postgres_was_emptied_says_so_and_records_what_it_has_under_way() {
    let _alone = alone().await;
    let server = Postgres::start().await;
    migrate(&server.url()).await;
    tells_of_its_losses(Store::Postgres(server)).await;
}

/// Somebody empties the store while two orders are under way; then it is restarted without what it kept.
async fn tells_of_its_losses(mut store: Store) {
    let upstream = Upstream::start().await;
    let setup = Setup::new(&upstream.url(), &store.url()).with(LEASES);
    let gateway = setup.of_store("timeout = \"10s\"\nlocal_ttl = \"1ms\"").start();
    let ask = |target: &'static str, key: &'static str| {
        let (ask, door) = (Ask::post(target).key(key), gateway.http);
        async move { ask.send(door).await }
    };
    let names = ["missing", "forgot", "restored", "lost"].map(|what| format!("semel_store_{what}_total"));
    let counted = async || {
        let mut values = Vec::new();
        for name in &names {
            values.push(gateway.metric(name).await);
        }
        values
    };
    let ready = async || gateway.admin_get("/readyz").await;
    assert_eq!(ask("/status/200", "done").await.idempotency_status(), "fresh");
    assert_eq!((counted().await, notes(&ready().await)), (vec![0.0; 4], Vec::new()));

    let under_way = together(2, {
        let door = gateway.http;
        move |n| {
            let ask = [Ask::post("/slow/4000").key("renewed"), Ask::post("/slow/1500").key("held")][n].clone();
            Box::pin(async move { ask.send(door).await })
        }
    });
    let emptied = async {
        upstream.reached("renewed").await;
        upstream.reached("held").await;
        store.lose_all().await;
    };
    let (answers, ()) = tokio::join!(under_way, emptied);
    for answer in answers {
        assert_eq!((answer.status, answer.idempotency_status()), (201, "fresh"), "{answer:?}");
    }
    let &[missing, forgot, restored, _] = &counted().await[..] else { panic!("four were asked for") };
    // One was renewed, found no record, and claimed again; the other brought its outcome to where no claim was any more.
    assert!(missing >= 1.0, "{missing}");
    assert_eq!((forgot, restored), (1.0, 1.0));
    for (target, key) in [("/slow/4000", "renewed"), ("/slow/1500", "held")] {
        assert_eq!(ask(target, key).await.idempotency_status(), "replayed", "{key}");
        assert_eq!(upstream.effects(key).len(), 1, "{key}");
    }

    store.come_back_empty().await;
    // The connections that were open may take the first calls with them.
    for n in 0.. {
        let answer = ask("/status/200", "done").await;
        if !["store-unavailable", "in-flight"].contains(&answer.problem().as_str()) {
            assert_eq!(answer.idempotency_status(), "fresh", "it was forgotten: {answer:?}");
            break;
        }
        assert!(n < 600, "the store does not come back: {}", gateway.said());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(upstream.effects("done").len(), 2);
    for n in 0.. {
        if counted().await[3] >= 1.0 {
            break;
        }
        // The engine looks at the store's health by itself.
        assert!(n < 600, "nobody says that it was lost: {}", gateway.said());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let said = ready().await;
    assert_eq!(
        (said.status, notes(&said)),
        (200, vec!["store-lost".to_owned()]),
        "it serves, and says why one should look"
    );
    gateway.says("lost").await;
}

fn notes(ready: &Answer) -> Vec<String> {
    let json = ready.json();
    let notes = json["notes"].as_array().expect("notes");
    notes.iter().map(|note| note["what"].as_str().unwrap_or_else(|| panic!("{json}")).to_owned()).collect()
}

const WAIT: &str = "[[rule]]\nname = \"all\"\nmatch = \"/*\"\nlease = \"60s\"\non_in_flight = { wait = \"20s\" }\n";

/// Counted by the server: what it carried out for its clients that names a record.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_through_one_gateway_costs_three_commands_at_most_and_its_replays_none() {
    const COPIES: usize = 100;
    let _alone = alone().await;
    let (server, upstream) = (Redis::start(&Server::new()).await, Upstream::start().await);
    let gateway = Setup::new(&upstream.url(), &server.url())
        .with(WAIT)
        .of_store("timeout = \"10s\"\nlocal_ttl = \"60s\"")
        .start();
    let monitor = server.monitor().await;
    let storm = async |key: String| {
        let (ask, door) = (Ask::post("/slow/20").key(&key), gateway.http);
        let answers = together(COPIES, move |_| {
            let ask = ask.clone();
            Box::pin(async move { ask.send(door).await })
        });
        let answers = answers.await;
        assert!(answers.iter().all(|a| (a.status, &a.body) == (201, &answers[0].body)), "{answers:?}");
        assert_eq!(upstream.effects(&key).len(), 1, "{key}");
        let fresh = answers.iter().filter(|a| a.idempotency_status() == "fresh").count();
        let told = monitor.commands(&server).await;
        // A script that the server has not seen comes a second time with its text, once in the server's life.
        let is_call = |command: &String| command.contains(":k:") && !command.starts_with("\"EVAL\"");
        (fresh, told.into_iter().filter(is_call).collect::<Vec<_>>())
    };
    for round in 0..10 {
        let key = format!("storm-{round}");
        let (fresh, commands) = storm(key.clone()).await;
        let that_bring = |state: &str| commands.iter().filter(|command| command.contains(state)).count();
        // Claims and completions bring a record's head, which says what it becomes.
        let (claims, completions) = (that_bring(r"SML\x01\x01"), that_bring(r"SML\x01\x02"));
        assert_eq!((fresh, claims, completions), (1, 1, 1), "{commands:#?}");
        assert!(commands.len() <= 3, "a claim, a completion, and one look at most: {commands:#?}");
        let (fresh, commands) = storm(key).await;
        assert_eq!((fresh, commands), (0, Vec::new()), "replays ask nobody");
    }
}

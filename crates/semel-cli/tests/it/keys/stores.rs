//! `semel keys` on every store that gateways share, alone and beside a gateway that runs on it.

use std::time::Duration;

use semel_core::engine::{Engine, Verdict};
use semel_core::identity::{Identity, Kind, Namespace};
use semel_core::record::HEADER_LEN;
use semel_core::store::Filter;
use serde_json::json;

use super::{digits, receipt, record, semel_keys, store_of};
use crate::endpoints::Endpoint;
use crate::semel::Ended;
use crate::shared::{Shared, on_every_store};
use crate::system::client::{Answer, Ask};
use crate::system::gateway::Setup;

on_every_store! {
    records_are_looked_into_settled_and_removed
    what_people_change_counts_for_a_gateway_that_runs
    an_unknown_that_people_settle_is_settled_for_a_gateway_that_runs
}

async fn keys(server: &Shared, args: &[&str]) -> Ended {
    semel_keys(std::path::Path::new("/"), &[args, &["--store", &server.url()]].concat()).await
}

/// What `keys` says, once `is_so`; what happens meanwhile takes a server's time, not the test's.
async fn once(server: &Shared, args: &[&str], is_so: impl Fn(&Ended) -> bool) -> Ended {
    for _ in 0..600 {
        let ended = keys(server, args).await;
        if is_so(&ended) {
            return ended;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{args:?} never said so: {:?}", keys(server, args).await)
}

/// Three records of a gateway, and one of a consumer of messages; what they take, together.
struct Seeds {
    done: Identity,
    unknown: Identity,
    free: Identity,
    message: Identity,
    bytes: [u64; 2],
}

async fn seed(server: &Shared) -> Seeds {
    let store = store_of(&server.url()).await;
    let engine = Engine::builder(store.store.clone(), store.secret.clone()).build();
    let day = Duration::from_hours(20);
    let http = Namespace::http("gateway").expect("a name");
    let inbox = Namespace::inbox("mailer").expect("a name");
    let last = Some("the connection broke".into());
    let seeds = Seeds {
        done: record(&engine, (http, Kind::Key), "order-4711", Verdict::Keep(receipt()), day).await,
        unknown: record(&engine, (http, Kind::Key), "order-4712", Verdict::Unknown { last }, day).await,
        free: record(&engine, (http, Kind::Key), "order-4713", Verdict::Release { counts: true, answer: None }, day)
            .await,
        message: record(&engine, (inbox, Kind::Message), "mail-1", Verdict::Keep(receipt()), 3 * day).await,
        bytes: [0; 2],
    };
    let mut bytes = [0; 2];
    let mut after = None;
    loop {
        let page = store.store.list(&Filter::default(), after.as_ref(), 100).await.expect("the store works");
        for entry in page.entries {
            bytes[usize::from(entry.identity == seeds.message)] += (HEADER_LEN + entry.record.rest.len()) as u64;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    store.close();
    Seeds { bytes, ..seeds }
}

async fn records_are_looked_into_settled_and_removed(server: &Shared) {
    let seeds = seed(server).await;
    let all = [(seeds.done, "done"), (seeds.unknown, "unknown"), (seeds.free, "free"), (seeds.message, "done")];

    let ended = keys(server, &["list"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, "4 records\n"), "{ended:?}");
    for (identity, state) in &all {
        let line = ended.out.lines().find(|line| line.contains(&digits(identity))).expect("it is listed");
        assert!(line.starts_with(state) && line.contains("submit"), "{line}");
    }
    let narrow = keys(server, &["list", "--json", "--namespace", "http:gateway", "--state", "done"]).await;
    assert_eq!(narrow.json()["identity"], seeds.done.to_string(), "{narrow:?}");
    assert_eq!(keys(server, &["list", "--rule", "another"]).await.err, "no records\n");

    let shown = keys(server, &["show", &digits(&seeds.done), "--json"]).await;
    assert_eq!(shown.json()["outcome"]["body_kept"], true, "{shown:?}");
    let shown = keys(server, &["show", &digits(&seeds.unknown)]).await;
    assert!(shown.out.contains("last error  the connection broke"), "{shown:?}");

    let export = keys(server, &["export"]).await;
    assert_eq!((export.code, export.out.lines().count()), (0, 4), "{export:?}");
    assert!(!export.out.contains("receipt") && !export.out.contains("order-4711"), "{}", export.out);

    stats(server, &seeds).await;

    let [done, unknown, free] = [seeds.done, seeds.unknown, seeds.free].map(|id| digits(&id));
    let ended = keys(server, &["resolve", &unknown, "--completed", "--yes", "--reason", "seen in the ledger"]).await;
    assert!(ended.code == 0 && ended.err.contains("settled, under fence "), "{ended:?}");
    let shown = keys(server, &["show", &unknown]).await;
    assert!(shown.out.contains("done: copies are told that it is done, without the answer"), "{}", shown.out);
    let again = keys(server, &["resolve", &unknown, "--failed", "--yes"]).await;
    assert!(again.code == 2 && again.err.contains("it is done"), "{again:?}");
    for (digits, reason) in [(&done, "asked for by the customer"), (&free, "")] {
        let ended = keys(server, &["delete", digits, "--yes", "--reason", reason]).await;
        assert_eq!((ended.code, ended.err.lines().last()), (0, Some("deleted")), "{ended:?}");
        assert_eq!(keys(server, &["show", digits]).await.code, 1);
    }

    purge(server).await;

    let audit = keys(server, &["audit"]).await.out;
    let said: Vec<_> = audit.lines().map(|line| line.split_once("ada@").expect("who").1).collect();
    let [swept_again, swept, freed, deleted, settled] = &said[..] else { panic!("five deeds: {audit}") };
    assert!(swept_again.ends_with(" purge") && swept.ends_with(" purge (nightly)"), "{audit}");
    assert!(freed.ends_with(&format!(" delete {free}, which was free")), "{audit}");
    assert!(deleted.ends_with(&format!(" delete {done}, which was done (asked for by the customer)")), "{audit}");
    assert!(
        settled.ends_with(&format!(" resolve-completed {unknown}, which was unknown (seen in the ledger)")),
        "{audit}"
    );
    assert_eq!(keys(server, &["list"]).await.err, "2 records\n");
}

async fn stats(server: &Shared, seeds: &Seeds) {
    let group =
        |records: u64, bytes: u64, ends_in: [u64; 7]| json!({ "records": records, "bytes": bytes, "ends_in": ends_in });
    let [gateway, mailer] = seeds.bytes;
    let by = async |by| keys(server, &["stats", "--json", "--by", by]).await.json();
    let three = group(3, gateway, [0, 0, 0, 0, 3, 0, 0]);
    let one = group(1, mailer, [0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(by("namespace").await, json!({ "http:gateway": three, "inbox:mailer": one }));
    assert_eq!(by("kind").await, json!({ Kind::Key.name(): three, Kind::Message.name(): one }));
    let all = group(4, gateway + mailer, [0, 0, 0, 0, 3, 1, 0]);
    assert_eq!(by("rule").await, json!({ "submit": all }));
    let states = by("state").await;
    assert_eq!([&states["done"]["records"], &states["unknown"]["records"], &states["free"]["records"]], [2, 1, 1]);
    let words = keys(server, &["stats", "--by", "namespace"]).await.out;
    let row = words.lines().find(|line| line.starts_with("http:gateway")).expect("its row");
    assert!(row.ends_with("under 1d: 3"), "{words}");
}

/// What ended, and whose outcome nobody ever told, is removed and counted once.
async fn purge(server: &Shared) {
    let store = store_of(&server.url()).await;
    let engine = Engine::builder(store.store.clone(), store.secret.clone()).build();
    let place = (Namespace::http("gateway").expect("a name"), Kind::Key);
    record(&engine, place, "order-4714", Verdict::Unknown { last: None }, Duration::from_millis(500)).await;
    store.close();
    once(server, &["list", "--state", "unknown"], |ended| ended.err == "no records\n").await;
    let ended = keys(server, &["purge", "--yes", "--reason", "nightly"]).await;
    let told = "1 removed, 1 of them with an outcome that nobody ever told\n";
    assert_eq!((ended.code, ended.err.as_str()), (0, told), "{ended:?}");
    let ended = keys(server, &["purge", "--yes"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, "0 removed\n"), "{ended:?}");
}

/// A rule for everything, and a memory of outcomes that is short where nobody tells of changes.
fn gateway(upstream: &Endpoint, server: &Shared) -> Setup {
    let rule = "[[rule]]\nname = \"submit\"\nmatch = \"POST /unprotected\"\n";
    Setup::new(&upstream.url(""), &server.url()).of_store("timeout = \"10s\"\nlocal_ttl = \"1s\"").with(rule)
}

async fn until(gateway: std::net::SocketAddr, key: &str, is_so: impl Fn(&Answer) -> bool) -> Answer {
    for _ in 0..600 {
        let answer = Ask::post("/unprotected").key(key).send(gateway).await;
        if is_so(&answer) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{:?}", Ask::post("/unprotected").key(key).send(gateway).await)
}

async fn what_people_change_counts_for_a_gateway_that_runs(server: &Shared) {
    let upstream = Endpoint::start().await;
    let gateway = gateway(&upstream, server).start();
    let ask = Ask::post("/unprotected").key("order-4711");
    let (first, second) = (ask.send(gateway.http).await, ask.send(gateway.http).await);
    assert_eq!((first.status, upstream.effects()), (201, 1), "{first:?}");
    assert_eq!((second.idempotency_status(), second.text()), ("replayed", first.text()), "{second:?}");

    let listed = keys(server, &["list", "--json"]).await.json();
    assert_eq!((listed["state"].as_str(), listed["rule"].as_str()), (Some("done"), Some("submit")), "{listed}");
    let identity = listed["identity"].as_str().expect("it has one");
    let ended = keys(server, &["delete", identity, "--yes"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let again = until(gateway.http, "order-4711", |answer| answer.text() != first.text()).await;
    assert_eq!((again.status, upstream.effects()), (201, 2), "{again:?}");
    let ended = keys(server, &["purge", "--yes"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, "0 removed\n"), "{ended:?}");
    let last = ask.send(gateway.http).await;
    assert_eq!((last.idempotency_status(), upstream.effects()), ("replayed", 2), "{last:?}");
}

async fn an_unknown_that_people_settle_is_settled_for_a_gateway_that_runs(server: &Shared) {
    let upstream = Endpoint::cutting().await;
    let gateway = gateway(&upstream, server).start();
    let broken = Ask::post("/unprotected").key("order-4711").send(gateway.http).await;
    assert_eq!(broken.status, 502, "{broken:?}");
    let unknown = |ended: &Ended| ended.out.lines().count() == 1;
    let listed = once(server, &["list", "--state", "unknown", "--json"], unknown).await.json();
    let identity = listed["identity"].as_str().expect("it has one").to_owned();
    let copy = Ask::post("/unprotected").key("order-4711").send(gateway.http).await;
    assert_eq!((copy.status, copy.problem().as_str()), (409, "outcome-unknown"), "{copy:?}");

    let ended = keys(server, &["resolve", &identity, "--failed", "--yes"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    until(gateway.http, "order-4711", |answer| answer.status == 502).await;
    once(server, &["list", "--state", "unknown", "--json"], unknown).await;
    let ended = keys(server, &["resolve", &identity, "--completed", "--yes"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let told = until(gateway.http, "order-4711", |answer| answer.problem() != "outcome-unknown").await;
    assert_eq!((told.status, told.problem().as_str()), (409, "outcome-unavailable"), "{told:?}");
    let audit = keys(server, &["audit"]).await.out;
    assert_eq!(audit.lines().map(|line| line.contains("resolve-")).collect::<Vec<_>>(), [true, true], "{audit}");
}

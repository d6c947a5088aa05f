//! What is seen while something runs, after its time, or when a gateway has died.

use std::path::Path;
use std::time::Duration;

use semel_core::identity::{Display, Identity, Key, Kind, Namespace, Principal, PrincipalKind, Scope, Secret};
use tokio::time::timeout;

use super::bed::{Ask, Bed, File, answer, ask, keyless, rule, until};

/// This file, for whoever looks which settings it gives.
pub(super) const TEXT: &str = include_str!("under_way.rs");

/// Less than any default of what is waited for here, and far more than what is waited for takes.
const SOON: Duration = Duration::from_secs(5);

fn by(who: &str, key: &str) -> Ask {
    ask(key).with(&format!("X-User: {who}"))
}

/// Two rules and callers with names, under one limit.
async fn limited(tables: &'static str) -> Bed {
    let before = "[[rule]]\nname = \"other\"\nmatch = \"POST /other\"\non_in_flight = { wait = \"60s\" }";
    let rule = "on_in_flight = { wait = \"60s\" }";
    Bed::new(&File { principal: "header = \"X-User\"", tables, before, rule, ..File::default() }).await
}

#[tokio::test]
async fn a_copy_waits_or_is_refused_as_the_rule_says() {
    let bed = Bed::new(&rule("on_in_flight = \"reject\"\nlease = \"3s\"")).await;
    let mut first = bed.begin(ask("k")).await;
    let refused = timeout(SOON, bed.ask(&ask("k"))).await.expect("at once");
    assert_eq!(refused.short(), "409 rejected in-flight");
    let after: u64 = refused.field("retry-after").expect("a time").parse().unwrap();
    assert!(after <= 3, "within the lease: {after}");
    bed.open();
    assert_eq!(answer(&mut first).await.short(), "200 fresh");

    let bed = Bed::new(&rule("on_in_flight = { wait = \"50ms\" }")).await;
    let _first = bed.begin(ask("k")).await;
    let refused = timeout(SOON, bed.ask(&ask("k"))).await.expect("after its wait");
    assert_eq!(refused.short(), "409 rejected in-flight");

    // The presets that say so, over defaults that do not.
    let tables = "[defaults]\non_in_flight = \"reject\"";
    let bed = Bed::new(&File { tables, rule: "preset = \"internal\"", ..File::default() }).await;
    let _first = bed.begin(ask("k")).await;
    let mut copy = bed.send(&ask("k")).await;
    bed.waiting(1).await;
    bed.open();
    assert_eq!(answer(&mut copy).await.short(), "200 waited");
}

#[tokio::test]
async fn so_many_wait_for_a_key_for_a_caller_and_in_all() {
    for (tables, passes) in [
        ("[limits]\nwaiters = { key = 1 }", 2),
        ("[limits]\nwaiters = { scope = 1 }", 1),
        ("[limits]\nwaiters = { process = 1 }", 0),
    ] {
        let bed = limited(tables).await;
        let mut running = Vec::new();
        for (who, key) in [("ann", "a"), ("ann", "b"), ("bob", "c")] {
            running.push(bed.begin(by(who, key)).await);
        }
        let mut first = bed.send(&by("ann", "a")).await;
        bed.waiting(1).await;
        // Nearer and nearer to the first: at another caller's key, at another key, at the same one.
        for (n, (who, key)) in [("bob", "c"), ("ann", "b"), ("ann", "a")].into_iter().enumerate() {
            if n < passes {
                running.push(bed.send(&by(who, key)).await);
                bed.waiting(n + 2).await;
            } else {
                let refused = timeout(SOON, bed.ask(&by(who, key))).await.expect("at once");
                assert_eq!(refused.short(), "429 rejected too-many-waiters", "{tables}, {who} {key}");
            }
        }
        bed.open();
        assert_eq!(answer(&mut first).await.short(), "200 waited", "{tables}");
    }
}

#[tokio::test]
async fn so_many_run_for_a_rule_for_a_caller_and_in_all() {
    for (tables, passes) in [
        ("[limits]\nmax_running = { rule = 1 }", [true, true]),
        ("[limits]\nmax_running = { scope = 1 }", [true, false]),
        ("[limits]\nmax_running = { process = 1 }", [false, false]),
    ] {
        let bed = limited(tables).await;
        let mut first = bed.begin(by("ann", "a")).await;
        // Another rule for another caller, another rule for the same one, and the same of both.
        let asks = [by("bob", "b").at("/other"), by("ann", "b").at("/other"), by("ann", "c")];
        for (passes, ask) in passes.into_iter().chain([false]).zip(asks) {
            let wanted = if passes { "200 fresh" } else { "503 rejected too-many-running" };
            let got = timeout(SOON, bed.ask(&ask)).await.expect("at once");
            assert_eq!(got.short(), wanted, "{tables}");
        }
        bed.open();
        assert_eq!(answer(&mut first).await.short(), "200 fresh", "{tables}");
    }
}

#[tokio::test]
async fn a_clear_outcome_ends_after_ttl_and_an_unclear_one_after_unknown_ttl() {
    let (clear, unclear) = (ask("a"), ask("b").told("500"));
    for (settings, ends) in [
        ("ttl = \"50ms\"", true),
        ("ttl = \"50ms\"\nunknown_ttl = \"1h\"", false),
        ("ttl = \"50ms\"\nunknown_ttl = \"never\"", false),
        ("ttl = \"50ms\"\npreset = \"payment\"", false),
    ] {
        let bed = Bed::new(&rule(settings)).await;
        assert_eq!(bed.ask(&unclear).await.short(), "500 unknown");
        assert_eq!(bed.ask(&clear).await.short(), "200 fresh");
        let before = bed.effects();
        until("it runs again", async || bed.ask(&clear).await.short() == "200 fresh").await;
        assert_eq!(bed.effects(), before + 1);
        // It was settled before the other one.
        if ends {
            bed.ask_until(&unclear, "500 unknown").await;
        } else {
            assert_eq!(bed.ask(&unclear).await.short(), "409 unknown outcome-unknown", "{settings}");
        }
    }
}

#[tokio::test]
async fn one_intent_under_a_new_key_runs_once_its_window_is_over() {
    let settings = "suspect = \"reject\"\nsuspect_window = \"1s\"";
    let bed = Bed::new(&File { principal: "header = \"X-User\"", ..rule(settings) }).await;
    assert_eq!(bed.ask(&by("ann", "a")).await.short(), "200 fresh");
    bed.ask_until(&by("ann", "b"), "200 fresh").await;
    assert_eq!(bed.effects(), 2);
}

/// A client that takes nothing of its answer holds its key for half of `max_hold` at most, however long clients are given.
#[tokio::test]
async fn a_client_that_takes_nothing_holds_its_key_within_max_hold() {
    let settings = "on_in_flight = \"reject\"\nresponse_body = \"1 KiB\"\nlease = \"1s\"\nmax_hold = \"6s\"";
    let upstream = "timeout = { connect = \"6s\", first_byte = \"6s\", whole = \"6s\", silence = \"6s\" }";
    let tables = "[limits]\nwrite_idle = \"1h\"";
    let bed = Bed::new(&File { upstream, tables, rule: settings, ..File::default() }).await;
    // More than the buffers between the two take.
    let mut slow = bed.send(&ask("k").told("24576kib")).await;
    assert!(slow.head().await.expect("a head").starts_with("HTTP/1.1 200 "));
    bed.ask_until(&ask("k"), "409 rejected outcome-unavailable").await;
}

/// What a gateway that was killed just now leaves behind. What a note says of the journal is copied before the journal.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("a directory");
    let mut names: Vec<_> =
        std::fs::read_dir(from).expect("a store").map(|e| e.expect("an entry").file_name()).collect();
    names.sort_by_key(|name| name != "manifest");
    for name in names {
        let (from, to) = (from.join(&name), to.join(&name));
        match from.is_dir() {
            true => copy(&from, &to),
            false => _ = std::fs::copy(&from, &to).expect("a copy"),
        }
    }
}

fn embedded(dir: &Path, more: &str) -> String {
    format!("url = \"embedded:{}\"\n{more}", dir.display())
}

#[tokio::test]
async fn what_a_dead_gateway_left_is_taken_over_where_the_rule_says_so_and_after_its_time() {
    let takeover = "takeover = true\nupstream_idempotent = true\n";
    let (soon, late) = (format!("{takeover}settle_after = \"3s\""), format!("{takeover}settle_after = \"1h\""));
    let one = async |settings: &str, wanted: &str| {
        let dir = tempfile::tempdir().expect("a directory");
        let (lives, left) = (dir.path().join("lives"), dir.path().join("left"));
        let upstream = "timeout = { connect = \"3s\", first_byte = \"3s\", whole = \"3s\", silence = \"3s\" }";
        // The record goes by the rule it was made under; when it may be taken is the newcomer's.
        let made = if settings.is_empty() { "" } else { takeover };
        let dead = Bed::new(&File { store: &embedded(&lives, ""), rule: made, ..File::default() }).await;
        let _cut = dead.begin(ask("k")).await;
        copy(&lives, &left);
        let rule = format!("{settings}\non_in_flight = \"reject\"");
        let file = File { store: &embedded(&left, ""), upstream, rule: &rule, ..File::default() };
        let bed = dead.another(&file).await;
        bed.open();
        if wanted == "200 fresh" {
            bed.ask_until(&ask("k"), wanted).await;
            assert_eq!(bed.last("semel-attempt").as_deref(), Some("2"));
        } else {
            assert_eq!(bed.ask(&ask("k")).await.short(), wanted, "{settings}");
        }
    };
    tokio::join!(
        one("", "409 unknown outcome-unknown"),
        one(&late, "409 rejected in-flight"),
        one(&soon, "200 fresh"),
        one("preset = \"callback\"\nsettle_after = \"3s\"", "200 fresh"),
    );
}

#[tokio::test]
async fn the_store_is_as_durable_as_the_file_says() {
    for (more, label) in [("", "power"), ("durability = \"process\"", "process"), ("durability = \"power\"", "power")] {
        let dir = tempfile::tempdir().expect("a directory");
        let store = embedded(&dir.path().join("data"), more);
        let bed = Bed::new(&File { store: &store, ..File::default() }).await;
        let line = bed.metric("semel_store_info").await;
        assert!(line.contains(&format!("durability=\"{label}\"")), "{more}: {line}");
        assert_eq!(bed.ask(&ask("k")).await.short(), "200 fresh");
        assert_eq!(bed.ask(&ask("k")).await.short(), "200 replayed");
    }
}

/// The same value of the same field under the same secret is another caller as an API key: a digest of it is kept.
#[tokio::test]
async fn identities_are_made_of_namespace_secret_and_the_kind_of_principal() {
    let dir = tempfile::tempdir().expect("a directory");
    let identity = async |secret: &str, store: &str, principal: &str| {
        let path = dir.path().join(secret);
        std::fs::write(&path, format!("0123456789abcdef {secret}")).expect("a file");
        let root = format!("secret_file = \"{}\"", path.display());
        let bed = Bed::new(&File { root: &root, store, principal, ..File::default() }).await;
        assert_eq!(bed.ask(&ask("k").with("X-Who: ann")).await.short(), "200 fresh");
        bed.last("semel-identity").expect("an identity")
    };
    let (memory, header, api_key) = ("url = \"memory\"", "header = \"X-Who\"", "api_key = \"X-Who\"");
    let usual = identity("one", memory, header).await;
    let secret = Secret::from_material(b"0123456789abcdef one").expect("a secret");
    let (ann, key) = (Scope::of(Principal::new(PrincipalKind::Header, "ann")), Key::new("k", Display::Masked));
    let gateway = Namespace::http("gateway").expect("a name");
    assert_eq!(usual, Identity::new(&secret, Kind::Key, gateway, &ann, &key).to_string());
    assert!(usual.starts_with("http:gateway:k:"), "{usual}");
    assert_eq!(usual, identity("one", memory, header).await);
    assert_ne!(usual, identity("two", memory, header).await);
    assert_ne!(usual, identity("one", memory, api_key).await);
    assert_ne!(usual, identity("one", memory, "shared = true").await);
    let named = identity("one", "url = \"memory\"\nnamespace = \"shop\"", header).await;
    assert!(named.starts_with("http:shop:k:"), "{named}");
}

#[tokio::test]
async fn the_methods_that_a_rule_lists_need_a_key_and_others_are_guarded_with_one() {
    let before = "[[rule]]\nname = \"listed\"\nmatch = \"/listed\"\nmethods = [\"PUT\"]";
    let bed = Bed::new(&File { before, ..File::default() }).await;
    let listed = |ask: Ask, method| ask.at("/listed").by(method);
    assert_eq!(bed.ask(&listed(keyless(), "PUT")).await.short(), "400 rejected key-missing");
    assert_eq!(bed.ask(&listed(keyless(), "DELETE")).await.short(), "200 bypassed");
    assert_eq!(bed.ask(&listed(ask("k"), "DELETE")).await.short(), "200 fresh");
    assert_eq!(bed.ask(&listed(ask("k"), "DELETE")).await.short(), "200 replayed");
}

/// Not a setting, but numbers that only a gateway put together can show: each upstream of the file has its own.
#[tokio::test]
async fn what_goes_wrong_towards_an_upstream_is_counted_under_its_name() {
    let upstream = "reuse_idle = \"1h\"
        idle = \"1h\"
        [upstream.slow]
        urls = [\"http://SERVICE\"]
        timeout = { first_byte = \"100ms\" }
        [upstream.gone]
        urls = [\"http://127.0.0.1:1\"]";
    let before = "[[rule]]
        name = \"slow\"
        match = \"POST /slow\"
        upstream = \"slow\"
        [[rule]]
        name = \"gone\"
        match = \"POST /gone\"
        upstream = \"gone\"";
    let tables = "[defaults]\nupstream = \"shop\"";
    let bed = Bed::new(&File { upstream, before, tables, ..File::default() }).await;
    assert_eq!(bed.ask(&ask("a").told("leave")).await.short(), "502 unknown upstream-broken");
    assert_eq!(bed.ask(&ask("b")).await.short(), "200 fresh");
    assert_eq!(bed.ask(&ask("c").told("leave")).await.short(), "502 unknown upstream-broken", "on a kept connection");
    assert_eq!(bed.ask(&ask("d").at("/slow").told("hold")).await.short(), "504 unknown upstream-timeout");
    assert_eq!(bed.ask(&ask("e").at("/gone")).await.short(), "502 rejected upstream-unreachable");
    for (series, count) in [
        ("semel_upstream_failures_total{upstream=\"shop\",kind=\"broken\"}", 2),
        ("semel_upstream_failures_total{upstream=\"shop\",kind=\"timeout\"}", 0),
        ("semel_upstream_failures_total{upstream=\"slow\",kind=\"timeout\"}", 1),
        ("semel_upstream_failures_total{upstream=\"shop\",kind=\"unreachable\"}", 0),
        ("semel_upstream_failures_total{upstream=\"gone\",kind=\"unreachable\"}", 1),
        ("semel_upstream_broken_reused_total{upstream=\"shop\"}", 1),
        ("semel_upstream_broken_reused_total{upstream=\"gone\"}", 0),
        ("semel_upstream_connections_total{upstream=\"shop\"}", 2),
        ("semel_upstream_retries_total{upstream=\"shop\"}", 0),
    ] {
        assert_eq!(bed.metric(series).await, format!("{series} {count}"));
    }
}

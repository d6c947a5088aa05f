//! What a good file means.

use std::path::Path;
use std::time::Duration;

use http::Method;
use semel_gateway::config::{
    Attempts, Bytes, Config, Flags, InFlight, Keep, LogFormat, Missing, Mode, OnDuplicate, Origin, Principal, Severity,
    Source, StoreUrl, Strictness, lint,
};

use super::{RULE, good};

fn rule(text: &str) -> semel_gateway::config::Rule {
    good(&format!("{RULE}{text}")).rules.get(0).expect("one rule").clone()
}

#[test]
fn with_only_an_upstream_every_unsafe_method_with_a_key_is_guarded() {
    let flags = Flags { upstream: Some("http://127.0.0.1:3000".to_owned()), ..Flags::default() };
    let config = Config::from_parts(None, &flags).expect("enough to start");
    assert_eq!(config.listen.http.to_string(), "127.0.0.1:8080");
    assert_eq!(config.listen.admin.to_string(), "127.0.0.1:9090");
    assert_eq!(*config.store.url, StoreUrl::Embedded("semel-data".into()));
    assert_eq!(config.principal.value, Principal::Shared);
    let rule = config.rules.get(0).expect("the built-in rule");
    assert_eq!(rule.policy.missing.value, Missing::Optional);
    for method in
        [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::from_bytes(b"PURGE").expect("a method")]
    {
        assert!(config.rules.find(&method, None, "/any/path").is_some_and(|f| f.named), "{method}");
    }
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT] {
        assert_eq!(config.rules.find(&method, None, "/"), None, "{method}");
    }
}

#[test]
fn a_rule_takes_the_table_of_defaults() {
    let p = rule("").policy;
    assert_eq!(p.key.to_string(), "idempotency-key");
    assert_eq!(*p.missing, Missing::Required);
    assert_eq!(*p.ttl, Duration::from_secs(86_400));
    assert_eq!(*p.unknown_ttl, Keep::For(Duration::from_secs(86_400)));
    assert_eq!((*p.lease, *p.max_hold), (Duration::from_secs(10), Duration::from_secs(600)));
    assert_eq!(*p.settle_after, Duration::from_secs(60));
    assert_eq!(*p.on_in_flight, InFlight::Wait(Duration::from_secs(10)));
    assert_eq!(*p.on_duplicate, OnDuplicate::Replay);
    assert_eq!((*p.strictness, *p.takeover), (Strictness::Strict, false));
    assert_eq!(p.retry_id.to_string(), "x-request-id");
    assert_eq!(p.credentials.to_string(), "authorization, cookie");
    assert_eq!((*p.request_body, *p.response_body), (Bytes(8 << 20), Bytes(8 << 20)));
    assert!(p.lines().iter().all(|line| !line.origin.is_explicit()));
}

#[test]
fn the_nearer_word_wins() {
    let text = "
        [upstream.a]
        urls = \"http://127.0.0.1:3000\"
        [principal]
        shared = true
        [defaults]
        preset = \"internal\"
        ttl = \"10min\"
        lease = \"20s\"
        [[rule]]
        name = \"own\"
        match = \"POST /own\"
        ttl = \"1h\"
        [[rule]]
        name = \"preset\"
        match = \"POST /preset\"
        preset = \"payment\"
        [[rule]]
        name = \"plain\"
        match = \"POST /plain\"";
    let config = good(text);
    let ttl = |i: usize| config.rules.get(i).expect("a rule").policy.ttl;
    let preset = |i: usize| config.rules.get(i).expect("a rule").preset.expect("a preset").value.word();
    assert_eq!((*ttl(0), preset(0)), (Duration::from_secs(3600), "internal"));
    assert_eq!(
        (*ttl(1), ttl(1).origin, preset(1)),
        (Duration::from_secs(86_400), Origin::Preset("payment"), "payment")
    );
    assert_eq!((*ttl(2), preset(2)), (Duration::from_secs(600), "internal"));
    assert_eq!(*config.rules.get(1).expect("a rule").policy.lease, Duration::from_secs(20));
}

#[test]
fn presets_are_what_they_say() {
    let payment = rule("preset = \"payment\"").policy;
    assert_eq!((*payment.unknown_ttl, *payment.strictness), (Keep::Forever, Strictness::Strict));
    let internal = rule("preset = \"internal\"").policy;
    assert_eq!(*internal.ttl, Duration::from_secs(300));
    let callback = rule("preset = \"callback\"").policy;
    assert!(*callback.takeover && *callback.upstream_idempotent);
    assert_eq!((*callback.max_attempts, *payment.max_attempts), (Attempts::Most(10), Attempts::Unlimited));
    assert_eq!(*callback.strictness, Strictness::Relaxed);
    assert!(
        callback.release_on.contains(400) && callback.release_on.contains(599) && !callback.release_on.contains(302)
    );
}

#[test]
fn values_that_follow_from_others_follow() {
    let p = rule("ttl = \"30 days\"").policy;
    assert_eq!(*p.unknown_ttl, Keep::For(Duration::from_secs(30 * 86_400)));
    let slow = RULE.replace("[principal]", "timeout = { first_byte = \"1min\", whole = \"5min\" }\n[principal]");
    assert_eq!(*good(&slow).rules.get(0).expect("a rule").policy.settle_after, Duration::from_secs(300));
}

#[test]
fn a_rule_names_post_and_patch_where_it_names_no_method() {
    let text = RULE.replace("POST /orders", "/orders");
    for text in [text.clone(), format!("{text}methods = []")] {
        let rules = good(&text).rules;
        for (method, named) in
            [(Method::POST, true), (Method::PATCH, true), (Method::PUT, false), (Method::DELETE, false)]
        {
            assert_eq!(rules.find(&method, None, "/orders").map(|f| f.named), Some(named), "{method}");
        }
    }
}

#[test]
fn the_first_match_wins_and_a_named_method_beats_a_mere_key() {
    let text = format!(
        "{RULE}
        [[rule]]
        name = \"put\"
        match = \"PUT /orders\"
        [[rule]]
        name = \"closed\"
        match = \"* /off/*\"
        mode = \"off\"
        [[rule]]
        name = \"api\"
        match = \"* /{{what}}\"
        host = \"*.example.com\"
        [[rule]]
        name = \"rest\"
        match = \"POST /*\""
    );
    let rules = good(&text).rules;
    let name = |method: Method, host: Option<&str>, path: &str| {
        rules.find(&method, host, path).map(|f| (rules.get(f.index).expect("a rule").name.to_string(), f.named))
    };
    let found = |name: &str, named: bool| Some((name.to_owned(), named));
    assert_eq!(name(Method::POST, None, "/orders"), found("submit", true));
    assert_eq!(name(Method::PUT, None, "/orders"), found("put", true));
    assert_eq!(name(Method::DELETE, None, "/orders"), found("submit", false));
    assert_eq!(name(Method::POST, Some("a.example.com:81"), "/x"), found("api", true));
    assert_eq!(name(Method::POST, Some("example.com"), "/x"), found("rest", true));
    assert_eq!(name(Method::POST, None, "/off/x"), found("closed", true));
    assert_eq!(rules.get(2).expect("a rule").mode.value, Mode::Off);
    assert_eq!(name(Method::PUT, None, "/x/y"), found("rest", false));
    assert_eq!(name(Method::GET, None, "/orders"), None);
}

#[test]
fn flags_stand_over_the_file() {
    let flags = Flags {
        upstream: Some("http://10.0.0.1:81".to_owned()),
        listen: Some("0.0.0.0:80".to_owned()),
        admin: Some("[::1]:91".to_owned()),
        store: Some("embedded".to_owned()),
        data_dir: Some("/var/lib/semel".to_owned()),
        log_format: Some("json".to_owned()),
        ..Flags::default()
    };
    let file = format!("{RULE}[store]\nurl = \"memory\"\n[listen]\nhttp = \"127.0.0.1:1\"");
    let config =
        Config::from_parts(Some(Source::new("semel.toml", file)), &flags).unwrap_or_else(|refused| panic!("{refused}"));
    assert_eq!(config.upstreams[0].url.to_string(), "http://10.0.0.1:81");
    assert_eq!(&*config.upstreams[0].name, "orders");
    assert_eq!(config.listen.http.to_string(), "0.0.0.0:80");
    assert_eq!(config.listen.admin.to_string(), "[::1]:91");
    assert_eq!(*config.store.url, StoreUrl::Embedded(Path::new("/var/lib/semel").into()));
    assert_eq!(config.log.format.value, LogFormat::Json);
}

#[test]
fn the_default_upstream_comes_first() {
    let text = "
        [upstream.a]
        urls = [\"http://127.0.0.1:1\"]
        [upstream.b]
        urls = [\"http://[::1]\"]
        [defaults]
        upstream = \"b\"
        [principal]
        api_key = { header = \"X-Api-Key\" }
        [[rule]]
        name = \"x\"
        match = \"POST /x\"
        upstream = \"a\"";
    let config = good(text);
    let names: Vec<&str> = config.upstreams.iter().map(|u| &*u.name).collect();
    assert_eq!(names, ["b", "a"]);
    assert_eq!((config.upstreams[0].url.host(), config.upstreams[0].url.port()), ("::1", 80));
    assert_eq!(config.rules.get(0).expect("a rule").upstream, 1);
    for (method, path, upstream) in [
        (Method::POST, "/x", 1),
        (Method::GET, "/x", 1),
        (Method::PUT, "/x", 1),
        (Method::GET, "/y", 0),
        (Method::POST, "/y", 0),
    ] {
        assert_eq!(config.rules.upstream(&method, None, path), upstream, "{method} {path}");
    }
    assert_eq!(config.principal.to_string(), "the digest of the API key in x-api-key");
}

#[test]
fn every_setting_can_be_written() {
    let p = rule(
        "key = \"X-Key\"
        key_min_length = 8
        key_format = \"uuid\"
        key_quoted = true
        key_pattern = \"????????-*\"
        per_route = true
        missing = \"optional\"
        ttl = \"1h 30min\"
        unknown_ttl = \"never\"
        lease = \"5s\"
        max_hold = \"5min\"
        takeover = true
        upstream_idempotent = true
        settle_after = \"2min\"
        max_attempts = 3
        on_duplicate = \"reject\"
        reject_status = 429
        message = \"This order is being submitted.\"
        retry_id = [\"X-Request-Id\"]
        suspect = \"reject\"
        suspect_window = \"5s\"
        on_in_flight = { wait = \"250ms\" }
        on_store_error = \"open\"
        strictness = \"relaxed\"
        release_on = [503, \"420-425\"]
        keep_on = \"409\"
        unknown_on = [\"3xx\"]
        fingerprint = { json = { exclude = [\"/sent_at\"], unordered = \"/items\" } }
        credentials = []
        replay = { allow = [\"Set-Cookie\"], deny = [\"ETag\"] }
        request_body = \"1 MiB\"
        response_body = \"64 KiB\"",
    )
    .policy;
    assert!(p.lines().iter().all(|line| line.origin.is_explicit()), "a setting was not read");
    let said: Vec<String> = p.lines().into_iter().map(|line| format!("{}: {}", line.key, line.value)).collect();
    for expected in [
        "ttl: 1h 30min",
        "unknown_ttl: until someone settles it",
        "reject_status: 429 with Retry-After",
        "suspect: reject",
        "suspect_window: 5s",
        "on_in_flight: wait, at most 250ms",
        "release_on: 503, 420-425",
        "unknown_on: 3xx",
        "fingerprint: method, host, path, query, content type and the body as JSON, without /sent_at, in any order /items",
        "credentials: none",
        "replay: the built-in list and set-cookie, without etag",
    ] {
        assert!(said.iter().any(|line| line == expected), "{expected} is not in {said:#?}");
    }
}

#[test]
fn replicas_may_take_four_fifths_of_the_time_of_a_call() {
    for (lines, replicas, within) in [
        ("", 0, 200),
        ("replicas = 0", 0, 200),
        ("replicas = 2", 2, 200),
        ("replicas = 2\ntimeout = \"1s\"", 2, 800),
        ("replicas = 2\nreplica_timeout = \"50ms\"", 2, 50),
    ] {
        let store = good(&format!("{RULE}[store]\nurl = \"redis://h\"\n{lines}\n")).store;
        assert_eq!((store.replicas.0, store.replica_timeout.as_millis()), (replicas, within), "{lines}");
    }
}

const EXAMPLE: &str = include_str!("../../../../../docs/semel.example.toml");

#[test]
fn the_example_is_a_good_file_without_a_mistake() {
    let config = good(EXAMPLE);
    assert_eq!(config.rules.len(), 2);
    let found: Vec<String> =
        lint(&config).into_iter().filter(|p| p.severity != Severity::Note).map(|p| p.what).collect();
    assert_eq!(found, [] as [String; 0]);
}

/// Every commented line of the example, but for what names a choice of its own, says what is in force anyway.
#[test]
fn the_values_that_the_example_names_are_those_in_force() {
    let written: String = EXAMPLE
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|l| l.split(' ').nth(1) == Some("=")).unwrap_or(line))
        .filter(|line| {
            !["secret_file", "threads", "host", "release_on", "takeover", "cors"]
                .iter()
                .any(|key| line.starts_with(key))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let (plain, full) = (good(EXAMPLE), good(&written));
    let values = |config: &Config| -> Vec<(String, String)> {
        config.rules.iter().flat_map(|r| r.policy.lines()).map(|l| (l.key.to_owned(), l.value)).collect()
    };
    assert_eq!(values(&plain), values(&full));
    let explicit = full.rules.get(1).expect("a rule").policy.lines().iter().filter(|l| l.origin.is_explicit()).count();
    assert!(explicit > 18, "the comments were not read: {explicit}");
    let around = |c: &Config| {
        let (l, s, u) = (&c.limits, &c.store, &c.upstreams[0]);
        let numbers = (*l.connections, *l.waiters.key, *l.max_running.process, *u.max_idle);
        let sizes =
            (*l.header_bytes, *l.request_body, *l.response_body, *l.memory.requests, *l.memory.responses, *s.cache);
        let times = [
            *l.header_timeout,
            *l.keep_alive,
            *l.body_idle,
            *l.body_timeout,
            *l.write_idle,
            *s.timeout,
            *s.commit_wait,
            *s.settle_for,
            *u.connect,
            *u.first_byte,
            *u.whole,
            *u.silence,
            *u.reuse_idle,
            *u.idle,
            *c.drain.deadline,
        ];
        (numbers, sizes, times, c.listen.http.value, c.listen.admin.value, s.url.value.clone(), *s.durability)
    };
    assert_eq!(around(&plain), around(&full));
    assert!(full.limits.write_idle.origin.is_explicit() && full.upstreams[0].silence.origin.is_explicit());
}

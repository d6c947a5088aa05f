//! Whatever a file holds, it is a configuration or a list of problems.

use proptest::prelude::*;
use semel_gateway::config::{Config, Flags, Source, explain, lint, summary};

fn survives(text: &str, flags: &Flags) {
    match Config::from_parts(Some(Source::new("semel.toml", text)), flags) {
        Ok(config) => {
            for finding in lint(&config) {
                assert!(!finding.render(config.source.as_ref()).is_empty());
            }
            assert!(!explain(&config).is_empty());
            assert!(!summary(&config).is_empty());
        }
        Err(refused) => {
            assert!(!refused.problems.is_empty());
            assert!(!refused.to_string().is_empty());
        }
    }
}

/// Lines that mean something, in an order that may not.
fn line() -> impl Strategy<Value = String> {
    let headers = prop::sample::select(vec![
        "[listen]",
        "[store]",
        "[store.limits]",
        "[principal]",
        "[limits]",
        "[limits.waiters]",
        "[log]",
        "[drain]",
        "[runtime]",
        "[defaults]",
        "[[rule]]",
        "[upstream.a]",
        "[upstream.b]",
        "[upstream]",
        "[rule]",
    ]);
    let keys = prop::sample::select(vec![
        "http",
        "admin",
        "url",
        "urls",
        "timeout",
        "durability",
        "name",
        "match",
        "methods",
        "host",
        "preset",
        "mode",
        "key",
        "ttl",
        "unknown_ttl",
        "lease",
        "max_hold",
        "takeover",
        "upstream_idempotent",
        "settle_after",
        "on_duplicate",
        "on_in_flight",
        "release_on",
        "keep_on",
        "fingerprint",
        "replay",
        "upstream",
        "header",
        "shared",
        "retry_id",
        "message",
        "key_min_length",
    ]);
    let values = prop_oneof![
        prop::sample::select(vec![
            "true",
            "0",
            "-1",
            "503",
            "\"10s\"",
            "\"\"",
            "\"é\"",
            "\"POST /orders\"",
            "\"/*\"",
            "\"http://[::1]:80\"",
            "\"payment\"",
            "\"key\"",
            "\"never\"",
            "[]",
            "[503, \"5xx\", \"500-504\"]",
            "{}",
            "{ wait = \"5s\" }",
            "{ json = { exclude = [\"/a\"] } }",
            "{ allow = [\"ETag\"] }",
            "1979-05-27",
            "1.5",
            "\"reject\"",
            "[\"a\", \"b\"]",
            "\"127.0.0.1:0\"",
            "\"embedded:x\"",
        ])
        .prop_map(str::to_owned),
        "\"[ -~éäß]{0,12}\"",
    ];
    prop_oneof![1 => headers.prop_map(str::to_owned), 4 => (keys, values).prop_map(|(k, v)| format!("{k} = {v}"))]
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        survives(&text, &Flags::default());
    }

    #[test]
    fn no_mixture_of_known_lines_panics(lines in prop::collection::vec(line(), 0..24)) {
        survives(&lines.join("\n"), &Flags { upstream: Some("http://127.0.0.1:1".to_owned()), ..Flags::default() });
    }

    #[test]
    fn no_settings_of_a_rule_panic(lines in prop::collection::vec(line().prop_filter("stays in the rule", |l| !l.starts_with('[')), 0..6)) {
        survives(&format!("{}{}", super::RULE, lines.join("\n")), &Flags::default());
    }

    #[test]
    fn no_flag_panics(a in any::<String>(), b in any::<String>(), c in any::<String>(), d in any::<String>(), e in any::<String>(), f in any::<String>()) {
        let flags = Flags { upstream: Some(a), listen: Some(b), admin: Some(c), store: Some(d), data_dir: Some(e.clone()), secret_file: Some(e), log_level: Some(f.clone()), log_format: Some(f.clone()), runtime: Some(f) };
        survives("", &flags);
    }

    #[test]
    fn no_path_or_host_panics_the_matcher(path in any::<String>(), host in any::<String>(), pattern in "/([a-z%*{}/é]{0,12})") {
        let text = format!("{}\n[[rule]]\nname = \"x\"\nmatch = {pattern:?}\nhost = \"*.b.c\"", super::RULE);
        if let Ok(config) = super::read(&text) {
            config.rules.find(&http::Method::POST, Some(&host), &path);
        }
    }
}

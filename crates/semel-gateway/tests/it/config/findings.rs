//! Legal files with mistakes in them.

use semel_gateway::config::{Severity, lint};

use super::{RULE, good};

/// Severity and first line of every finding.
fn findings(text: &str) -> Vec<String> {
    let config = good(text);
    lint(&config)
        .iter()
        .map(|p| {
            let at = p.origin.position().map_or_else(String::new, |at| format!("{}:{} ", at.line, at.column));
            assert!(!p.fix.is_empty(), "no cure for: {}", p.what);
            format!("{at}{}: {}", p.severity, p.what)
        })
        .collect()
}

#[test]
fn a_plain_rule_has_no_finding() {
    assert_eq!(findings(RULE), [] as [String; 0]);
    assert_eq!(findings(&format!("{RULE}preset = \"internal\"")), [] as [String; 0]);
    assert_eq!(findings(&format!("{RULE}preset = \"callback\"")), [] as [String; 0]);
}

#[test]
fn each_mistake_is_found_at_its_place() {
    for (line, expected) in [
        ("key = \"X-Request-Id\"", "8:7 warning: rule `submit`: takes `x-request-id` as the key"),
        ("key = [\"Authorization\"]", "8:7 warning: rule `submit`: takes `authorization` as the key"),
        (
            "ttl = \"2min\"",
            "8:7 warning: rule `submit`: `ttl` (2min) is under five times the upstream's whole time-out (1min)",
        ),
        (
            "on_in_flight = { wait = \"1min\" }",
            "8:16 warning: rule `submit`: waits 1min, longer than most clients do (30s)",
        ),
        (
            "on_duplicate = \"reject\"\nretry_id = []",
            "9:12 warning: rule `submit`: rejects duplicates with an empty `retry_id`",
        ),
        (
            "on_duplicate = \"reject\"\nretry_id = \"Idempotency-Key\"",
            "9:12 warning: rule `submit`: `retry_id` names `idempotency-key`, the key's own header",
        ),
        ("message = \"No.\"", "8:11 warning: rule `submit`: `message` has no effect while duplicates are replayed"),
        (
            "reject_status = 429",
            "8:17 warning: rule `submit`: `reject_status` has no effect while duplicates are replayed",
        ),
        ("suspect_window = \"5s\"", "8:18 warning: rule `submit`: `suspect_window` has no effect without `suspect`"),
        (
            "suspect = \"reject\"\nretry_id = \"X-Click\"\nmessage = \"No.\"\nreject_status = 429",
            "9:12 warning: rule `submit`: `retry_id` has no effect while duplicates are replayed",
        ),
        ("settle_after = \"2min\"", "8:16 warning: rule `submit`: `settle_after` has no effect without `takeover`"),
        ("release_on = [\"5xx\"]", "8:14 warning: rule `submit`: frees the key on 500"),
        ("request_body = \"128 MiB\"", "8:16 warning: rule `submit`: takes bodies up to 128 MiB"),
        ("mode = \"off\"\nttl = \"1h\"", "9:7 warning: rule `submit`: `ttl` has no effect under mode = \"off\""),
        (
            "unknown_ttl = \"never\"",
            "8:15 note: rule `submit`: a key with an unknown outcome stays blocked until someone settles it",
        ),
        ("[[rule]]\nname = \"again\"\nmatch = \"POST /orders\"", "8:1 warning: rule `again` can never match"),
        ("[listen]\nhttp = \"0.0.0.0:80\"", "4:10 note: whoever reaches 0.0.0.0:80 can write x-user and be anybody"),
    ] {
        assert_eq!(findings(&format!("{RULE}{line}")), [expected], "{line}");
    }
}

#[test]
fn payments_want_a_store_and_a_principal() {
    let text = RULE.replace("header = \"X-User\"", "shared = true") + "preset = \"payment\"\n[store]\nurl = \"memory\"";
    assert_eq!(
        findings(&text),
        [
            "4:10 warning: rule `submit`: payments without a principal",
            "5:1 note: rule `submit`: a key with an unknown outcome stays blocked until someone settles it",
            "5:1 note: rule `submit`: stored answers are not encrypted in this version",
            "10:7 warning: rule `submit`: payments on the memory store",
        ]
    );
    let text = format!("{RULE}preset = \"payment\"\non_store_error = \"open\"");
    let open = "9:18 warning: rule `submit`: payments run unguarded while the store is away";
    assert!(findings(&text).contains(&open.to_owned()), "{:?}", findings(&text));
    let text = format!("{RULE}preset = \"payment\"\n[store]\ndurability = \"process\"");
    assert!(
        findings(&text).contains(&"10:14 warning: rule `submit`: payments under durability = \"process\"".to_owned())
    );
}

#[test]
fn suspects_want_callers_that_can_be_told_apart() {
    let text = RULE.replace("header = \"X-User\"", "shared = true") + "suspect = \"reject\"";
    assert_eq!(
        findings(&text),
        ["8:11 note: rule `submit`: callers without credentials are not compared with each other"]
    );
    assert_eq!(findings(&format!("{RULE}suspect = \"reject\"")), [] as [String; 0]);
}

#[test]
fn an_idle_upstream_is_found() {
    let text = format!("{RULE}[upstream.spare]\nurls = [\"http://127.0.0.1:1\"]\n[defaults]\nupstream = \"orders\"");
    assert_eq!(findings(&text), ["9:8 warning: nothing is sent to the upstream `spare`"]);
}

#[test]
fn a_finding_is_rendered_with_its_line() {
    let config = good(&format!("{RULE}key = \"X-Request-Id\""));
    let found = lint(&config);
    assert_eq!(found[0].severity, Severity::Warning);
    assert_eq!(
        found[0].render(config.source.as_ref()),
        "\
semel.toml:8:7: warning: rule `submit`: takes `x-request-id` as the key
      8 | key = \"X-Request-Id\"
        |       ^^^^^^^^^^^^^^
  why: proxies and client libraries set it anew for every try, so a retry looks like a new intent and runs again
  fix: let the client make one Idempotency-Key per intent; list this header in retry_id
"
    );
}

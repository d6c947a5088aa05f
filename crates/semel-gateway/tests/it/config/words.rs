//! What a person reads.

use semel_gateway::config::{Config, Flags, explain, summary};

use super::{RULE, good};

#[test]
fn the_start_says_what_is_guarded_and_what_is_promised() {
    let flags = Flags { upstream: Some("http://127.0.0.1:3000".to_owned()), ..Flags::default() };
    let config = Config::from_parts(None, &flags).expect("enough to start");
    let here = std::env::current_dir().expect("a directory").display().to_string();
    assert_eq!(
        format!("\n{}", summary(&config)).replace(&here, "HERE"),
        "
  upstream   http://127.0.0.1:3000 (upstream)
  guarded    any unsafe method that carries idempotency-key; everything else passes
  callers    share one key space; a copy with other credentials is refused, never answered with another's data
  records    on disk in HERE/semel-data
  promise    one run per key for 24h. A key is on disk before its request runs, and survives kill -9.
             Answers survive a power cut as well.
  not        one process, one store: two gateways with one each do not see each other.
             The effect itself is exactly once only where the service honours the key and the fence.
  requests   http://127.0.0.1:8080
  admin      http://127.0.0.1:9090  /healthz /readyz /metrics
  stop       Ctrl-C or SIGTERM: finishes what runs, at most 30s
"
    );
}

#[test]
fn a_file_with_rules_is_summed_up_rule_by_rule() {
    let text = format!(
        "{RULE}
        [[rule]]
        name = \"health\"
        match = \"* /internal/*\"
        mode = \"off\"
        [store]
        url = \"memory\""
    );
    assert_eq!(
        format!("\n{}", summary(&good(&text))),
        "
  file       semel.toml
  upstream   http://127.0.0.1:3000 (orders)
  guarded    submit: POST /orders by idempotency-key; other unsafe methods there when they carry one
             health: every unsafe method /internal/* passes unguarded
             everything else passes
  callers    told apart by the header x-user, trusted
  records    in memory, at most 1000000 records or 512 MiB
  promise    one run per key for 24h while this process lives. When it ends every key is forgotten, and a retry runs again.
  not        one process, one store: two gateways with one each do not see each other.
             The effect itself is exactly once only where the service honours the key and the fence.
  requests   http://127.0.0.1:8080
  admin      http://127.0.0.1:9090  /healthz /readyz /metrics
  stop       Ctrl-C or SIGTERM: finishes what runs, at most 30s
"
    );
}

#[test]
fn replicas_that_are_awaited_are_summed_up() {
    let said = |lines: &str| summary(&good(&format!("{RULE}[store]\nurl = \"redis://h\"\n{lines}")));
    let line = |said: &str| said.lines().find(|line| line.contains("  replicas ")).map(str::to_owned);
    for (lines, expected) in [
        ("replicas = 1", "a claim counts once 1 replica has it, within 200ms; else 503."),
        ("replicas = 2\nreplica_timeout = \"50ms\"", "a claim counts once 2 replicas have it, within 50ms; else 503."),
    ] {
        let expected = format!("  replicas   {expected} An answer is recorded again until they have it.");
        assert_eq!(line(&said(lines)), Some(expected), "{lines}");
    }
    assert_eq!(line(&said("replicas = 0")), None);
}

#[test]
fn a_rule_is_explained_with_every_value_in_force() {
    let words = explain(&good(&format!("{RULE}preset = \"payment\"\nttl = \"48h\"")));
    assert_eq!(
        words,
        "\
Rules, tried in order; the first match wins. What no rule matches passes unguarded.
Callers are told apart by: the header x-user, trusted (line 4).
Records live in: embedded:semel-data (default).

1. submit (line 5)
   POST /orders to `orders` at http://127.0.0.1:3000.
   A request with idempotency-key runs once for each key and caller.
   Without a key: refused with 400.
   Other unsafe methods there: guarded when they carry a key, else they pass unguarded.
   A copy of a finished one gets the recorded answer, for 2 days.
   A copy of a running one waits for its answer, at most 10s.
   Same intent means: equal method, host, path, query, content type and the body byte for byte. The same key with another gets 422.
   Broken off, timed out or 5xx: nobody can tell, so it is not run again.
   An outcome nobody can tell is kept until someone settles it with `semel keys resolve`; retries get 409.
   While the store is away: 503, nothing runs.
   In force:
     preset               payment (line 8)
     key                  idempotency-key (default)
     key_min_length       1 (default)
     key_format           any (default)
     key_quoted           no (default)
     key_pattern          * (default)
     per_route            no (default)
     missing              required (preset payment)
     ttl                  2 days (line 9)
     unknown_ttl          until someone settles it (preset payment)
     lease                10s (default)
     max_hold             10min (default)
     takeover             no (preset payment)
     upstream_idempotent  no (default)
     settle_after         1min (the upstream's whole time-out)
     max_attempts         unlimited (default)
     on_duplicate         replay (preset payment)
     reject_status        409 (default)
     message              \"Already submitted.\" (also in Chinese) (default)
     retry_id             x-request-id (default)
     suspect              off (default)
     suspect_window       1min (default)
     on_in_flight         wait, at most 10s (default)
     on_store_error       closed (preset payment)
     strictness           strict (preset payment)
     release_on           none beyond the table (default)
     keep_on              none beyond the table (default)
     unknown_on           none beyond the table (default)
     fingerprint          method, host, path, query, content type and the body byte for byte (default)
     credentials          authorization, cookie (default)
     replay               the built-in list (default)
     request_body         8 MiB (default)
     response_body        8 MiB (default)
"
    );
}

#[test]
fn what_a_rejected_copy_gets_is_said() {
    let said = |lines: &str| explain(&good(&format!("{RULE}on_duplicate = \"reject\"\n{lines}")));
    for (lines, expected) in [
        ("", "A copy of a finished one gets 409 and \"Already submitted.\" (also in Chinese), for 24h.\n"),
        (
            "reject_status = 429\nmessage = \"Again?\"\nttl = \"1h\"",
            "A copy of a finished one gets 429 with Retry-After and \"Again?\", for 1h.\n",
        ),
    ] {
        assert!(said(lines).contains(expected), "{}", said(lines));
    }
}

#[test]
fn what_becomes_of_suspects_is_said() {
    let said = |lines: &str| explain(&good(&format!("{RULE}{lines}")));
    assert!(!said("").contains("equal in all but the key"));
    let head = "One of the same caller that is equal in all but the key to another within";
    for (lines, expected) in [
        ("suspect = \"count\"", "1min is counted, and runs.\n"),
        (
            "suspect = \"reject\"\nsuspect_window = \"5s\"\nmessage = \"Twice?\"",
            "5s is counted, and gets 409 and \"Twice?\".\n",
        ),
        (
            "suspect = \"reject\"\nreject_status = 429",
            "1min is counted, and gets 429 with Retry-After and \"Already submitted.\" (also in Chinese).\n",
        ),
    ] {
        assert!(said(lines).contains(&format!("   {head} {expected}")), "{}", said(lines));
    }
}

#[test]
fn pages_of_other_origins_are_named() {
    let said = |lines: &str| explain(&good(&format!("{RULE}{lines}")));
    assert!(!said("").contains("Pages of"));
    let words = said("[listen]\ncors = [\"https://shop.example.com\", \"http://localhost:5173\"]");
    assert!(
        words.contains(
            "Pages of https://shop.example.com, http://localhost:5173 may send keys where the service lets them, and read \
             what the gateway answers (line 9).\n"
        ),
        "{words}"
    );
}

#[test]
fn what_may_run_again_is_said_and_not_promised_away() {
    let text = format!(
        "{RULE}takeover = true\nupstream_idempotent = true\nstrictness = \"relaxed\"\non_store_error = \"open\"\n\
         [[rule]]\nname = \"short\"\nmatch = \"POST /short\"\nttl = \"5min\"\n"
    );
    let config = good(&text);
    let said = summary(&config);
    assert!(said.contains("  promise    one run per key for the rule's ttl (5min to 24h). A key is on disk"), "{said}");
    let again = "after a dead process (takeover), after a 5xx or a break (relaxed), while the store is away (open)";
    assert!(said.contains(&format!("             rule submit: runs again {again}\n")), "{said}");
    assert!(!said.contains("rule short:"), "{said}");
    let words = explain(&config);
    let once = "A request with idempotency-key runs once for each key and caller";
    assert!(words.contains(&format!("   {once}, except: {again}.\n")), "{words}");
    assert!(words.contains(&format!("   {once}.\n")), "{words}");
}

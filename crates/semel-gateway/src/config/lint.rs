//! Mistakes that a file can make while every setting is legal: what `semel check` finds.

use std::time::Duration;

use super::policy_types::{InFlight, Keep, OnDuplicate, OnStoreError, Suspect};
use super::preset::Preset;
use super::problem::{self, Problem};
use super::rule::{Mode, Rule};
use super::setting::Origin;
use super::store::Durability;
use super::store_url::StoreUrl;
use super::units::{Bytes, show_duration};
use super::{Config, Principal};

/// Clients that name no time-out of their own mostly have this one.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Set anew by proxies and client libraries for every try: as a key they stop nothing.
const REWRITTEN: &[&str] = &[
    "x-request-id",
    "request-id",
    "x-correlation-id",
    "correlation-id",
    "traceparent",
    "tracestate",
    "x-trace-id",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-b3-traceid",
    "x-b3-spanid",
    "cf-ray",
    "x-vercel-id",
    "x-envoy-attempt-count",
];

/// The same for every request of a caller: as a key they stop everything after the first.
const CONSTANT: &[&str] = &[
    "authorization",
    "cookie",
    "host",
    "user-agent",
    "content-type",
    "accept",
    "origin",
    "referer",
    "x-api-key",
    "x-user",
    "x-user-id",
    "x-forwarded-for",
    "x-forwarded-user",
    "x-real-ip",
];

/// What a person should look at, in the order of the file. Errors are not here: such a file makes no [`Config`].
pub fn lint(config: &Config) -> Vec<Problem> {
    let mut found = Vec::new();
    around(config, &mut found);
    for (index, rule) in config.rules.iter().enumerate() {
        let earlier = config.rules.iter().take(index).find(|e| e.route.covers(&rule.route));
        if let Some(earlier) = earlier {
            found.push(
                Problem::warning(rule.origin, format!("rule `{}` can never match", rule.name))
                    .why(format!(
                        "rule `{}` ({}) stands before it and takes all of its requests",
                        earlier.name, earlier.origin
                    ))
                    .fix("put the narrower rule first"),
            );
        }
        match rule.mode.value {
            Mode::Key => guarded(config, rule, &mut found),
            Mode::Off => off(rule, &mut found),
        }
    }
    problem::sort(&mut found);
    found
}

/// Findings about the surroundings of the rules.
fn around(config: &Config, found: &mut Vec<Problem>) {
    for (index, upstream) in config.upstreams.iter().enumerate().skip(1) {
        if config.rules.iter().all(|r| r.upstream != index) {
            let what = format!("nothing is sent to the upstream `{}`", upstream.name);
            let fix = format!("upstream = \"{}\" in a rule, or take it out", upstream.name);
            found.push(Problem::warning(upstream.url.origin, what).fix(fix));
        }
    }
    if let Principal::Header(name) = &config.principal.value
        && !config.listen.http.ip().is_loopback()
    {
        found.push(
            Problem::note(
                config.principal.origin,
                format!("whoever reaches {} can write {name} and be anybody", config.listen.http.value),
            )
            .fix("let only the authenticating proxy reach that address, and let it overwrite the header"),
        );
    }
}

fn off(rule: &Rule, found: &mut Vec<Problem>) {
    for (key, origin) in &rule.own {
        found.push(
            Problem::warning(*origin, format!("rule `{}`: `{key}` has no effect under mode = \"off\"", rule.name))
                .fix("leave it out, or guard the route"),
        );
    }
}

fn guarded(config: &Config, rule: &Rule, found: &mut Vec<Problem>) {
    let p = &rule.policy;
    let name = &rule.name;
    let mut warn = |origin: Origin, what: String, why: &str, fix: String| {
        let origin = if origin.position().is_some() { origin } else { rule.origin };
        found.push(Problem::warning(origin, format!("rule `{name}`: {what}")).why(why).fix(fix));
    };

    for header in &p.key.0 {
        if REWRITTEN.contains(&header.as_str()) {
            warn(
                p.key.origin,
                format!("takes `{header}` as the key"),
                "proxies and client libraries set it anew for every try, so a retry looks like a new intent and runs again",
                "let the client make one Idempotency-Key per intent; list this header in retry_id".to_owned(),
            );
        } else if CONSTANT.contains(&header.as_str()) {
            warn(
                p.key.origin,
                format!("takes `{header}` as the key"),
                "it is the same for every request of a caller, so the second intent is taken for a copy of the first",
                "a key must be new for each intent: let the client send Idempotency-Key".to_owned(),
            );
        }
    }
    let whole = config.upstreams.get(rule.upstream).map_or(Duration::ZERO, |u| *u.whole);
    if *p.ttl < whole.saturating_mul(5) {
        warn(
            p.ttl.origin,
            format!(
                "`ttl` ({}) is under five times the upstream's whole time-out ({})",
                show_duration(*p.ttl),
                show_duration(whole)
            ),
            "a client that retries with back-off comes back after the outcome is forgotten, and runs again",
            format!("ttl = \"{}\" or longer", show_duration(whole.saturating_mul(5))),
        );
    }
    if let InFlight::Wait(wait) = *p.on_in_flight
        && wait > CLIENT_TIMEOUT
    {
        warn(
            p.on_in_flight.origin,
            format!("waits {}, longer than most clients do ({})", show_duration(wait), show_duration(CLIENT_TIMEOUT)),
            "the client gives up first, tries again, and adds another waiter",
            format!("on_in_flight = {{ wait = \"{}\" }} or less", show_duration(CLIENT_TIMEOUT)),
        );
    }
    if *p.on_duplicate == OnDuplicate::Reject && p.retry_id.0.is_empty() {
        warn(
            p.retry_id.origin,
            "rejects duplicates with an empty `retry_id`".to_owned(),
            "a network's retry is not a second click: whose first answer was lost is told of a duplicate and never sees the outcome",
            "retry_id = [\"X-Request-Id\"], or leave it out".to_owned(),
        );
    }
    if let (OnDuplicate::Reject, Some(header)) =
        (*p.on_duplicate, p.retry_id.0.iter().find(|name| p.key.0.contains(name)))
    {
        warn(
            p.retry_id.origin,
            format!("`retry_id` names `{header}`, the key's own header"),
            "it is the same in every duplicate, so every one looks like a network's retry and none is rejected",
            "name a header that the client makes anew for each click, such as X-Request-Id".to_owned(),
        );
    }
    if *p.on_duplicate == OnDuplicate::Replay {
        for (key, origin) in &rule.own {
            // A rejected suspect is told the same, but has no request id to go by.
            let is_idle =
                *key == "retry_id" || (matches!(*key, "message" | "reject_status") && *p.suspect != Suspect::Reject);
            if is_idle {
                warn(
                    *origin,
                    format!("`{key}` has no effect while duplicates are replayed"),
                    "it is for on_duplicate = \"reject\"",
                    "leave it out, or reject".to_owned(),
                );
            }
        }
    }
    if *p.suspect == Suspect::Off {
        for (key, origin) in rule.own.iter().filter(|(key, _)| *key == "suspect_window") {
            warn(
                *origin,
                format!("`{key}` has no effect without `suspect`"),
                "nothing is compared, so nothing is remembered for that time",
                "suspect = \"count\", or leave it out".to_owned(),
            );
        }
    }
    if !*p.takeover {
        for (key, origin) in rule.own.iter().filter(|(key, _)| *key == "settle_after") {
            warn(
                *origin,
                format!("`{key}` has no effect without `takeover`"),
                "nothing is run again, so nothing waits for it",
                "leave it out".to_owned(),
            );
        }
    }
    for status in [500, 502, 504] {
        if p.release_on.origin.is_explicit() && p.release_on.contains(status) && !*p.upstream_idempotent {
            warn(
                p.release_on.origin,
                format!("frees the key on {status}"),
                "the service, or a proxy before it, may answer so after the effect took place: the retry runs it twice",
                "only statuses that the service sends before it begins, such as 503".to_owned(),
            );
            break;
        }
    }
    if *p.request_body > Bytes(64 << 20) {
        warn(
            p.request_body.origin,
            format!("takes bodies up to {} ", p.request_body.value).trim_end().to_owned(),
            "a guarded body is held in memory, once for each request under way",
            "64 MiB or less".to_owned(),
        );
    }
    if *p.unknown_ttl == Keep::Forever && !*p.takeover {
        let origin = if p.unknown_ttl.origin.position().is_some() { p.unknown_ttl.origin } else { rule.origin };
        found.push(
            Problem::note(
                origin,
                format!("rule `{name}`: a key with an unknown outcome stays blocked until someone settles it"),
            )
            .why("nobody can tell whether its effect took place, and it is never run again by itself")
            .fix("`semel keys list --state unknown` shows them, `semel keys resolve` settles one"),
        );
    }
    if *p.suspect != Suspect::Off && config.principal.value == Principal::Shared {
        let origin = if p.suspect.origin.position().is_some() { p.suspect.origin } else { rule.origin };
        found.push(
            Problem::note(
                origin,
                format!("rule `{name}`: callers without credentials are not compared with each other"),
            )
            .why("all callers share one key space, and equal requests of two people are no suspects")
            .fix("[principal] with header = \"X-Authenticated-User\" or api_key = \"X-Api-Key\""),
        );
    }
    if rule.preset.is_some_and(|preset| preset.value == Preset::Payment) {
        payment(config, rule, found);
    }
}

fn payment(config: &Config, rule: &Rule, found: &mut Vec<Problem>) {
    let name = &rule.name;
    if *rule.policy.on_store_error == OnStoreError::Open {
        let origin = rule.policy.on_store_error.origin;
        let origin = if origin.position().is_some() { origin } else { rule.origin };
        found.push(
            Problem::warning(origin, format!("rule `{name}`: payments run unguarded while the store is away"))
                .why("a retry that reaches another gateway meanwhile, or this one after a restart, pays again")
                .fix("on_store_error = \"closed\": such requests get 503, which clients may retry"),
        );
    }
    match (&*config.store.url, *config.store.durability) {
        (StoreUrl::Memory, _) => found.push(
            Problem::warning(config.store.url.origin, format!("rule `{name}`: payments on the memory store"))
                .why("when this process ends every key is forgotten, and a retry pays again")
                .fix("url = \"embedded:./semel-data\""),
        ),
        (StoreUrl::Embedded(_), Durability::Process) => found.push(
            Problem::warning(
                config.store.durability.origin,
                format!("rule `{name}`: payments under durability = \"process\""),
            )
            .why("a power cut turns answered payments into unknown outcomes that a person has to settle")
            .fix("durability = \"power\""),
        ),
        // What a server keeps is asked when the gateway starts, and by the doctor: one that forgets at a restart is refused.
        (StoreUrl::Embedded(_), Durability::Power) | (StoreUrl::Shared(_), _) => {}
    }
    if config.principal.value == Principal::Shared {
        let origin = if config.principal.origin.position().is_some() { config.principal.origin } else { rule.origin };
        found.push(
            Problem::warning(origin, format!("rule `{name}`: payments without a principal"))
                .why("two customers who send the same key are one intent: the second gets 409, not its payment")
                .fix("[principal] with header = \"X-Authenticated-User\" or api_key = \"X-Api-Key\""),
        );
    }
    found.push(
        Problem::note(rule.origin, format!("rule `{name}`: stored answers are not encrypted in this version"))
            .fix("keep the store's directory readable by the gateway alone"),
    );
}

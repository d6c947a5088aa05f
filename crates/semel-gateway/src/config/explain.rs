//! The configuration in plain words: for `semel check` and for the start of the gateway.

use std::fmt::{self, Write as _};

use super::policy_types::{InFlight, Keep, Missing, OnDuplicate, OnStoreError, Strictness, Suspect};
use super::rule::{Mode, Rule};
use super::setting::Origin;
use super::store::Durability;
use super::store_url::{Server, SharedUrl, StoreUrl};
use super::units::show_duration;
use super::{Config, KeyFormat, Methods, Policy, Principal};

/// Every rule in words, with all values in force and where each came from.
pub fn explain(config: &Config) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_rules(&mut out, config);
    out
}

fn write_rules(out: &mut String, config: &Config) -> fmt::Result {
    match config.rules.from_file() {
        true => writeln!(out, "Rules, tried in order; the first match wins. What no rule matches passes unguarded.")?,
        false => writeln!(out, "No rules: any unsafe method that carries a key is guarded, everything else passes.")?,
    }
    match &config.principal.value {
        Principal::Shared => writeln!(out, "All callers share one key space ({}).", config.principal.origin)?,
        told => writeln!(out, "Callers are told apart by: {told} ({}).", config.principal.origin)?,
    }
    if let Some(cors) = &config.listen.cors {
        writeln!(
            out,
            "Pages of {} may send keys where the service lets them, and read what the gateway answers ({}).",
            cors.value, cors.origin
        )?;
    }
    writeln!(out, "Records live in: {} ({}).", config.store.url.value, config.store.url.origin)?;
    for (index, rule) in config.rules.iter().enumerate() {
        writeln!(out)?;
        write_rule(out, config, index, rule)?;
    }
    Ok(())
}

fn write_rule(out: &mut String, config: &Config, index: usize, rule: &Rule) -> fmt::Result {
    write!(out, "{}. {}", index + 1, rule.name)?;
    if let Origin::File(at) = rule.origin {
        write!(out, " (line {})", at.line)?;
    }
    writeln!(out)?;
    write!(out, "   {}", rule.route)?;
    if let Some(upstream) = config.upstreams.get(rule.upstream) {
        write!(out, " to `{}` at {}", upstream.name, upstream.url.value)?;
    }
    writeln!(out, ".")?;
    if rule.mode.value == Mode::Off {
        return writeln!(out, "   Passes unguarded, whatever the client sends.");
    }
    for sentence in sentences(rule) {
        writeln!(out, "   {sentence}")?;
    }
    writeln!(out, "   In force:")?;
    if let Some(preset) = &rule.preset {
        writeln!(out, "     {:<20} {} ({})", "preset", preset.value, preset.origin)?;
    }
    for line in rule.policy.lines() {
        writeln!(out, "     {:<20} {} ({})", line.key, line.value, line.origin)?;
    }
    Ok(())
}

/// What happens, in the order in which it happens.
fn sentences(rule: &Rule) -> Vec<String> {
    let p = &rule.policy;
    let mut said = Vec::new();
    let form = match (*p.key_format, *p.key_quoted) {
        (KeyFormat::Any, false) => "",
        (KeyFormat::Any, true) => ", in quotes,",
        (KeyFormat::Uuid, false) => ", a UUID,",
        (KeyFormat::Uuid, true) => ", a UUID in quotes,",
    };
    let like = if p.key_pattern.0.is_any() { String::new() } else { format!(" like {}", *p.key_pattern) };
    let again = runs_again(p);
    let but = if again.is_empty() { String::new() } else { format!(", except: {}", again.join(", ")) };
    said.push(format!(
        "A request with {}{like}{form} runs once for each key and caller{but}.",
        one_of(&p.key.to_string())
    ));
    said.push(match *p.missing {
        Missing::Required => "Without a key: refused with 400.".to_owned(),
        Missing::Optional => "Without a key: passes unguarded.".to_owned(),
    });
    if names_methods(rule) {
        said.push("Other unsafe methods there: guarded when they carry a key, else they pass unguarded.".to_owned());
    }
    said.push(match *p.on_duplicate {
        OnDuplicate::Replay => {
            format!("A copy of a finished one gets the recorded answer, for {}.", show_duration(*p.ttl))
        }
        OnDuplicate::Reject => {
            format!(
                "A copy of a finished one gets {} and {}, for {}.",
                *p.reject_status,
                *p.message,
                show_duration(*p.ttl)
            )
        }
    });
    let window = show_duration(*p.suspect_window);
    match *p.suspect {
        Suspect::Off => {}
        Suspect::Count => said.push(format!(
            "One of the same caller that is equal in all but the key to another within {window} is counted, and runs."
        )),
        Suspect::Reject => said.push(format!(
            "One of the same caller that is equal in all but the key to another within {window} is counted, and gets {} and {}.",
            *p.reject_status, *p.message
        )),
    }
    said.push(match *p.on_in_flight {
        InFlight::Wait(time) => {
            format!("A copy of a running one waits for its answer, at most {}.", show_duration(time))
        }
        InFlight::Reject => "A copy of a running one gets 409 at once.".to_owned(),
    });
    said.push(format!("Same intent means: equal {}. The same key with another gets 422.", *p.fingerprint));
    said.push(match *p.strictness {
        Strictness::Strict => "Broken off, timed out or 5xx: nobody can tell, so it is not run again.".to_owned(),
        Strictness::Relaxed => "Broken off, timed out or 5xx: the key is free, the retry runs again.".to_owned(),
    });
    said.push(match *p.takeover {
        true => format!(
            "If the gateway dies on the way, a retry runs it again, {} after the lease.",
            show_duration(*p.settle_after)
        ),
        false => match *p.unknown_ttl {
            Keep::For(time) => {
                format!("An outcome nobody can tell is kept for {}; until then retries get 409.", show_duration(time))
            }
            Keep::Forever => "An outcome nobody can tell is kept until someone settles it with `semel keys resolve`; \
                 retries get 409."
                .to_owned(),
        },
    });
    said.push(match *p.on_store_error {
        OnStoreError::Closed => "While the store is away: 503, nothing runs.".to_owned(),
        OnStoreError::Open => {
            "While the store is away: it runs all the same, marked `bypassed`; this gateway runs its own \
                               copies once, another one may run them again."
                .to_owned()
        }
    });
    said
}

/// After what a request of this rule may run a second time within its `ttl`.
fn runs_again(p: &Policy) -> Vec<&'static str> {
    let mut after = Vec::new();
    if *p.takeover {
        after.push("after a dead process (takeover)");
    }
    if *p.strictness == Strictness::Relaxed {
        after.push("after a 5xx or a break (relaxed)");
    }
    if *p.on_store_error == OnStoreError::Open {
        after.push("while the store is away (open)");
    }
    after
}

/// How long the promise of one run holds: the rules' `ttl`, from the shortest to the longest.
fn held(config: &Config) -> String {
    let times = || config.rules.iter().filter(|rule| rule.mode.value == Mode::Key).map(|rule| *rule.policy.ttl);
    match (times().min(), times().max()) {
        (Some(least), Some(most)) if least == most => format!(" for {}", show_duration(least)),
        (Some(least), Some(most)) => {
            format!(" for the rule's ttl ({} to {})", show_duration(least), show_duration(most))
        }
        _ => String::new(),
    }
}

/// A key is honoured on every unsafe method: those that a rule names are those that need one.
fn names_methods(rule: &Rule) -> bool {
    matches!(rule.route.methods, Methods::These(_))
}

fn one_of(names: &str) -> String {
    if names.contains(", ") { format!("one of {names}") } else { names.to_owned() }
}

/// What a person reads when the gateway starts: what is guarded, where the records live, what that promises and what not.
pub fn summary(config: &Config) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_summary(&mut out, config);
    out
}

fn write_summary(out: &mut String, config: &Config) -> fmt::Result {
    if let Some(source) = &config.source {
        writeln!(out, "  file       {}", source.name())?;
    }
    for (index, upstream) in config.upstreams.iter().enumerate() {
        let default = if index == 0 && config.upstreams.len() > 1 { ", the default" } else { "" };
        writeln!(out, "  upstream   {} ({}{default})", upstream.url.value, upstream.name)?;
    }
    write_guarded(out, config)?;
    writeln!(out, "  callers    {}", callers(&config.principal))?;
    match &*config.store.url {
        StoreUrl::Memory => {
            writeln!(
                out,
                "  records    in memory, at most {} records or {}",
                *config.store.max_records, *config.store.max_bytes
            )?;
            writeln!(
                out,
                "  promise    one run per key{} while this process lives. When it ends every key is forgotten, and a retry runs again.",
                held(config)
            )?;
        }
        StoreUrl::Shared(url) => write_shared(out, config, url)?,
        StoreUrl::Embedded(dir) => {
            // A relative path means another directory to whoever reads the log elsewhere.
            let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
            writeln!(out, "  records    on disk in {}", dir.display())?;
            writeln!(
                out,
                "  promise    one run per key{}. A key is on disk before its request runs, and survives kill -9.",
                held(config)
            )?;
            writeln!(
                out,
                "             {}",
                match *config.store.durability {
                    Durability::Power => "Answers survive a power cut as well.",
                    Durability::Process => "A power cut may turn answered requests into unknown outcomes.",
                }
            )?;
        }
    }
    let others = match &*config.store.url {
        StoreUrl::Memory | StoreUrl::Embedded(_) => {
            "one process, one store: two gateways with one each do not see each other."
        }
        StoreUrl::Shared(url) => match url.server() {
            Server::Redis => {
                "a failover, or a restart without persistence, may lose keys: such a request runs again. It is told."
            }
            Server::Postgres | Server::MySql => {
                "a standby that is promoted without its last transactions has lost their keys."
            }
        },
    };
    writeln!(out, "  not        {others}")?;
    for rule in config.rules.iter().filter(|rule| rule.mode.value == Mode::Key) {
        let again = runs_again(&rule.policy);
        if !again.is_empty() {
            writeln!(out, "             rule {}: runs again {}", rule.name, again.join(", "))?;
        }
    }
    writeln!(
        out,
        "             The effect itself is exactly once only where the service honours the key and the fence."
    )?;
    let reach = if config.listen.http.ip().is_unspecified() { "  reachable from other machines" } else { "" };
    writeln!(out, "  requests   http://{}{reach}", config.listen.http.value)?;
    writeln!(out, "  admin      http://{}  /healthz /readyz /metrics", config.listen.admin.value)?;
    writeln!(
        out,
        "  stop       Ctrl-C or SIGTERM: finishes what runs, at most {}",
        show_duration(*config.drain.deadline)
    )
}

fn write_shared(out: &mut String, config: &Config, url: &SharedUrl) -> fmt::Result {
    writeln!(out, "  records    in {url}, for the service `{}`", config.store.namespace.value.name())?;
    match config.store.replicas.0 {
        0 => {}
        count => writeln!(
            out,
            "  replicas   a claim counts once {count} {} it, within {}; else 503. An answer is recorded again until they have it.",
            if count == 1 { "replica has" } else { "replicas have" },
            show_duration(*config.store.replica_timeout)
        )?,
    }
    writeln!(
        out,
        "  promise    one run per key{} among all gateways that share this store and one secret, as long as the store keeps what it \
         acknowledged.",
        held(config)
    )
}

fn write_guarded(out: &mut String, config: &Config) -> fmt::Result {
    if !config.rules.from_file() {
        let key = config.rules.get(0).map(|r| r.policy.key.to_string()).unwrap_or_default();
        return writeln!(out, "  guarded    any unsafe method that carries {}; everything else passes", one_of(&key));
    }
    for (index, rule) in config.rules.iter().enumerate() {
        let label = if index == 0 { "guarded" } else { "" };
        let how = match rule.mode.value {
            Mode::Off => "passes unguarded".to_owned(),
            Mode::Key if names_methods(rule) => {
                format!("by {}; other unsafe methods there when they carry one", rule.policy.key.value)
            }
            Mode::Key => format!("by {}", rule.policy.key.value),
        };
        writeln!(out, "  {label:<10} {}: {} {how}", rule.name, rule.route)?;
    }
    writeln!(out, "             everything else passes")
}

fn callers(principal: &Principal) -> String {
    match principal {
        Principal::Shared => {
            "share one key space; a copy with other credentials is refused, never answered with another's data"
                .to_owned()
        }
        Principal::Header(_) | Principal::ApiKey(_) => format!("told apart by {principal}"),
    }
}

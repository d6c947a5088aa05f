//! Combinations of settings that cannot work together: refused when the file is read, each with its reason.

use std::time::Duration;

use super::policy::Policy;
use super::policy_types::{Fingerprint, InFlight, Keep, KeyFormat, Suspect};
use super::problem::Problem;
use super::read::Report;
use super::setting::{Origin, Setting};
use super::units::show_duration;

/// A claim renewed at a third of less than this would do nothing but renew.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

const LONGEST_LEASE: Duration = Duration::from_hours(1);

/// The longest a claim, or the wait after a dead one, may last.
const LONGEST_HOLD: Duration = Duration::from_hours(7 * 24);

/// Reports every impossible combination of one rule, which `rule` is the name of in messages. `at` is where the rule begins.
pub(super) fn check(rule: &str, at: Origin, p: &Policy, whole: &Setting<Duration>, report: &mut Report) {
    // Points at what a person wrote last: of two settings the explicit one, of two explicit ones the later.
    let blame = |origins: &[Origin]| {
        origins.iter().copied().filter(|o| o.is_explicit()).max_by_key(|o| o.position()).unwrap_or(at)
    };
    let mut refuse = |origins: &[Origin], what: String, why: &str, fix: String| {
        report.push(Problem::error(blame(origins), format!("{rule}: {what}")).why(why).fix(fix));
    };
    let time = show_duration;

    if *p.takeover && !*p.upstream_idempotent {
        refuse(
            &[p.takeover.origin, p.upstream_idempotent.origin],
            "`takeover` without `upstream_idempotent`".to_owned(),
            "a takeover runs again what may have run already: only a service that makes two runs one effect can bear that",
            "upstream_idempotent = true if the service honours the key or the fence, else leave takeover out"
                .to_owned(),
        );
    }
    if let Keep::For(unknown) = *p.unknown_ttl
        && unknown < *p.ttl
    {
        refuse(
            &[p.ttl.origin, p.unknown_ttl.origin],
            format!("`ttl` ({}) is longer than `unknown_ttl` ({})", time(*p.ttl), time(unknown)),
            "an unclear outcome would be forgotten, and run again, before a clear one",
            format!("unknown_ttl = \"{}\" or longer, or \"never\"", time(*p.ttl)),
        );
    }
    if let InFlight::Wait(wait) = *p.on_in_flight
        && wait > *p.max_hold
    {
        refuse(
            &[p.on_in_flight.origin, p.max_hold.origin],
            format!("waits {} for a run that ends after `max_hold` ({})", time(wait), time(*p.max_hold)),
            "no run lives longer than max_hold, so nobody needs to wait longer",
            format!("on_in_flight = {{ wait = \"{}\" }} or less", time(*p.max_hold)),
        );
    }
    if p.settle_after.value < whole.value {
        refuse(
            &[p.settle_after.origin],
            format!(
                "`settle_after` ({}) is shorter than the upstream's whole time-out ({})",
                time(*p.settle_after),
                time(whole.value)
            ),
            "a dead lease is not a dead request: the service may still be at work until that time-out",
            format!("settle_after = \"{}\" or longer, or leave it out", time(whole.value)),
        );
    }
    if *p.lease > *p.max_hold {
        refuse(
            &[p.lease.origin, p.max_hold.origin],
            format!("`lease` ({}) is longer than `max_hold` ({})", time(*p.lease), time(*p.max_hold)),
            "max_hold ends a claim, renewed or not",
            "a short lease: it is renewed while the work runs".to_owned(),
        );
    }
    for (key, setting, most) in [
        ("lease", p.lease, LONGEST_LEASE),
        ("max_hold", p.max_hold, LONGEST_HOLD),
        ("settle_after", p.settle_after, LONGEST_HOLD),
    ] {
        if *setting > most {
            refuse(
                &[setting.origin],
                format!("`{key}` is {}", time(*setting)),
                "for so long nobody could tell a dead owner from a slow one",
                format!("{} or less", time(most)),
            );
        }
    }
    if *p.lease < SHORTEST_LEASE {
        refuse(
            &[p.lease.origin],
            format!("`lease` is {}", time(*p.lease)),
            "it is renewed at a third of it; a pause of the process would lose every claim",
            "lease = \"10s\"".to_owned(),
        );
    }
    if whole.value > *p.max_hold {
        refuse(
            &[p.max_hold.origin, whole.origin],
            format!(
                "`max_hold` ({}) is shorter than the upstream's whole time-out ({})",
                time(*p.max_hold),
                time(whole.value)
            ),
            "a run that the upstream may still answer would lose its claim, and end unknown",
            format!("max_hold = \"{}\" or longer", time(whole.value)),
        );
    }
    keys(p, &mut refuse);
    suspects(p, &mut refuse);
    for (a, a_name, b, b_name) in [
        (&p.release_on, "release_on", &p.keep_on, "keep_on"),
        (&p.release_on, "release_on", &p.unknown_on, "unknown_on"),
        (&p.keep_on, "keep_on", &p.unknown_on, "unknown_on"),
    ] {
        if let Some(status) = a.common(b) {
            refuse(
                &[a.origin, b.origin],
                format!("status {status} stands in `{a_name}` and in `{b_name}`"),
                "one answer has one meaning",
                "keep it in one list".to_owned(),
            );
        }
    }
}

fn keys(p: &Policy, refuse: &mut impl FnMut(&[Origin], String, &str, String)) {
    if p.key.0.is_empty() {
        refuse(&[p.key.origin], "`key` names no header".to_owned(), "", "key = \"Idempotency-Key\"".to_owned());
    }
    if *p.key_min_length > 255 {
        refuse(
            &[p.key_min_length.origin],
            format!("`key_min_length` is {}", *p.key_min_length),
            "keys have at most 255 characters, so no key could pass",
            "255 or less".to_owned(),
        );
    }
    if *p.key_format == KeyFormat::Uuid && *p.key_min_length > 36 {
        refuse(
            &[p.key_min_length.origin, p.key_format.origin],
            format!("`key_format = \"uuid\"` with a `key_min_length` of {}", *p.key_min_length),
            "a UUID has 36 characters, so no key could pass",
            "leave the length out".to_owned(),
        );
    }
}

/// Whoever asks the same an hour later means it.
const LONGEST_SUSPECT: Duration = Duration::from_hours(1);

fn suspects(p: &Policy, refuse: &mut impl FnMut(&[Origin], String, &str, String)) {
    if *p.suspect != Suspect::Off && matches!(*p.fingerprint, Fingerprint::Route | Fingerprint::None) {
        refuse(
            &[p.suspect.origin, p.fingerprint.origin],
            format!("`suspect = \"{}\"` with a fingerprint of {}", *p.suspect, *p.fingerprint),
            "without the body all requests of a caller to a route are equal, whatever they ask",
            "fingerprint = \"bytes\", \"json\" or \"form\", or leave suspect out".to_owned(),
        );
    }
    if p.suspect_window.is_zero() || *p.suspect_window > LONGEST_SUSPECT {
        refuse(
            &[p.suspect_window.origin],
            format!("`suspect_window` is {}", show_duration(*p.suspect_window)),
            "it is the time in which nobody means the same twice",
            "1h or less".to_owned(),
        );
    }
}

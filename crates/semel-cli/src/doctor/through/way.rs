//! What one request shows of the way to a gateway.

use http::header::LOCATION;
use http::{HeaderName, StatusCode};
use semel_gateway::config::Principal;
use semel_gateway::probe::{BadMark, Saw, Took, Wish};
use semel_http::names::IDEMPOTENCY_STATUS;

use super::ask::{Asker, Place, Probe, Reply};
use crate::doctor::finding::{Checked, Level};
use crate::exit::Failure;
use crate::prove::load::Answer;

/// Sends one probe and one that is refused; whether a gateway answered.
pub(super) async fn look(asker: &Asker, place: &Place, found: &mut Vec<Checked>) -> Result<bool, Failure> {
    let probe = asker.probe(Wish::Answer)?;
    let (report, answer) = match asker.one(place, &probe).await {
        Reply::Report(report, answer) => (report, answer),
        other => {
            found.push(no_gateway(&place.shown, &other));
            return Ok(false);
        }
    };
    let before = found.len();
    fields(asker, &probe, &report.saw, found);
    principal(asker, &probe, &report.saw, found);
    rest(asker, place, &report.saw, found);
    if !answer.headers.contains_key(&IDEMPOTENCY_STATUS) {
        found.push(
            warning(format!("something on the way takes {IDEMPOTENCY_STATUS} out of answers"))
                .why("clients cannot tell a replay from a run")
                .fix("let answers keep it"),
        );
    }
    retries(asker, place, found).await?;
    if found[before..].iter().all(|checked| checked.level < Level::Warning) {
        found.insert(
            before,
            Checked::new(
                Level::Fine,
                "through",
                format!("requests to {} reach a gateway as they were sent", place.shown),
            ),
        );
    }
    Ok(true)
}

fn warning(what: String) -> Checked {
    Checked::new(Level::Warning, "through", what)
}

fn error(what: String) -> Checked {
    Checked::new(Level::Error, "through", what)
}

/// Why the answer of one probe is no gateway's.
pub(super) fn no_gateway(url: &str, reply: &Reply) -> Checked {
    match reply {
        Reply::Trouble(why) => {
            error(format!("no answer from {url}: {why}")).fix("mend the address, or what stands there")
        }
        Reply::Bad(BadMark::Missing) => {
            error(format!("something on the way to {url} takes the field Semel-Probe away"))
                .why("what drops fields that it does not know may drop keys, too")
                .fix("let all fields of requests pass")
        }
        Reply::Bad(BadMark::Other) => {
            error(format!("a gateway behind {url} has another secret than the one at hand here"))
                .why("gateways with different secrets do not see each other's keys: a copy at another one runs again")
                .fix("give all gateways the same secret_file, and name it here; without one, the same store")
        }
        Reply::Bad(BadMark::Old) => {
            error(format!("the clocks of this machine and of a gateway behind {url} are more than an hour apart"))
                .fix("keep both machines on time with NTP")
        }
        Reply::Foreign(answer) => foreign(url, answer),
        Reply::Report(..) => error(format!("{url} answered for another probe")),
    }
}

fn foreign(url: &str, answer: &Answer) -> Checked {
    let status = answer.status;
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            error(format!("something before the gateways refuses the probe at {url}: {status}"))
                .fix("log in, as clients do: --header 'Authorization: …'")
        }
        _ if status.is_redirection() => {
            let to = answer.headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("another address");
            error(format!("{url} leads to {to}: {status}")).fix("name the address that it leads to")
        }
        _ => error(format!("no gateway answered at {url}, but somebody else: {status}"))
            .why("the address leads past the gateway, or what stands before it knows no path but those of the service")
            .fix("name the address of a guarded path, and let POST to what ends in /.semel-probe pass to the gateway"),
    }
}

/// Keys and request ids.
fn fields(asker: &Asker, probe: &Probe, saw: &Saw, found: &mut Vec<Checked>) {
    for name in &asker.keys {
        match arrived(asker, probe, saw, name) {
            Some(true) => {}
            None => found.push(
                error(format!("something on the way drops {name}"))
                    .why("requests come without their key: they are refused, or run without a guard")
                    .fix("let it pass to the gateway unchanged"),
            ),
            Some(false) => found.push(
                error(format!("something on the way rewrites {name}"))
                    .why("where copies of a request get different keys, each of them runs")
                    .fix("let it pass to the gateway unchanged"),
            ),
        }
    }
    for name in &asker.retry_ids {
        if arrived(asker, probe, saw, name) != Some(true) {
            found.push(
                warning(format!("something on the way drops or rewrites {name}"))
                    .why("it is a rule's retry_id: a retry of the network is not known as one, and gets what a second click gets")
                    .fix("let clients' values pass, or take a field for retry_id that nobody rewrites"),
            );
        }
    }
}

fn arrived(asker: &Asker, probe: &Probe, saw: &Saw, name: &HeaderName) -> Option<bool> {
    let value = probe.fields.get(name)?;
    saw.has(&asker.secret, name.as_str(), value.as_bytes())
}

/// Who the gateway takes the caller for.
fn principal(asker: &Asker, probe: &Probe, saw: &Saw, found: &mut Vec<Checked>) {
    match &asker.principal {
        Principal::Shared => {}
        Principal::Header(name) if asker.is_given(name) => {}
        Principal::Header(name) => match arrived(asker, probe, saw, name) {
            Some(true) => found.push(
                error(format!("a client can say who it is: the gateway got {name} as the client had sent it"))
                    .why("whoever sends another's name gets that caller's recorded answers")
                    .fix(format!("let the proxy that authenticates set {name} and remove what clients send; reach the gateway through it only")),
            ),
            None => found.push(
                Checked::new(Level::Note, "through", format!("no {name} arrived: the probe is logged in as nobody"))
                    .fix("to see whether the proxy sets it: --header 'Authorization: …', as a client logs in"),
            ),
            Some(false) => {}
        },
        Principal::ApiKey(name) if !asker.is_given(name) => found.push(
            Checked::new(Level::Note, "through", format!("the probe carries no {name}, so whether it arrives was not seen"))
                .fix(format!("--header '{name}: …'")),
        ),
        Principal::ApiKey(name) => {
            if arrived(asker, probe, saw, name) != Some(true) {
                found.push(
                    error(format!("something on the way drops or rewrites {name}"))
                        .why("it tells callers apart: without it requests are refused")
                        .fix("let it pass to the gateway unchanged"),
                );
            }
        }
    }
}

/// Method, target, host and body: parts of what makes two requests the same.
fn rest(asker: &Asker, place: &Place, saw: &Saw, found: &mut Vec<Checked>) {
    if saw.method != "POST" {
        found
            .push(error(format!("something on the way made a {} of a POST", saw.method)).why("rules go by the method"));
    }
    if saw.body != Saw::digest(&asker.secret, asker.body()) {
        found.push(
            warning("something on the way rewrites bodies".to_owned())
                .why("two copies that are rewritten differently are two requests with one key: the second gets 422")
                .fix("let bodies pass unchanged, or take fingerprint = \"json\" where only their form changes"),
        );
    }
    let sent = place.path();
    if saw.target != sent {
        let probe = semel_gateway::probe::PATH;
        let short = |path: &str| match path.strip_suffix(probe) {
            Some("") | None => "/".to_owned(),
            Some(path) => path.to_owned(),
        };
        found.push(
            Checked::new(Level::Note, "through", format!("{} arrives as {}", short(&sent), short(&saw.target)))
                .why("rules match what arrives"),
        );
    }
    if !saw.host.eq_ignore_ascii_case(place.host()) {
        found.push(
            Checked::new(
                Level::Note,
                "through",
                format!("the host arrives as {} and not as {}", saw.host, place.host()),
            )
            .why("rules with `host` match what arrives; it is part of what makes two requests the same"),
        );
    }
}

/// Whether somebody on the way sends again what was answered with 503.
async fn retries(asker: &Asker, place: &Place, found: &mut Vec<Checked>) -> Result<(), Failure> {
    let probe = asker.probe(Wish::Refuse)?;
    match asker.one(place, &probe).await {
        Reply::Report(report, _) if matches!(report.took, Took::Copy { .. }) => found.push(
            Checked::new(Level::Note, "through", "something on the way sends a request again when it is answered with 503")
                .why("before the gateways that is harmless: the copy has the same key, and nothing runs twice. Behind them it is not"),
        ),
        Reply::Foreign(answer) => found.push(
            warning(format!("something on the way puts an answer of its own in the place of a 503 (status {})", answer.status))
                .why("clients do not see why a request was refused, and whether it may be sent again")
                .fix("let answers of the gateways pass unchanged"),
        ),
        _ => {}
    }
    Ok(())
}

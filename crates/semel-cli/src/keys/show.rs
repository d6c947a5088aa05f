//! `semel keys show`.

use std::io::Write as _;
use std::time::Duration;

use semel_core::store::StoreAdmin;

use super::args::Show;
use super::find::find;
use super::time;
use super::view::View;
use crate::exit::{Exit, Failure};
use crate::term::{Look, Out, shown};

pub(super) async fn run(store: &dyn StoreAdmin, args: &Show) -> Result<Exit, Failure> {
    let (identity, record, now) = find(store, &args.identity).await?;
    let view = View::of(&identity, &record, now);
    let mut out = Out::stdout();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&view).map_err(anyhow::Error::from)?)?,
        false => out.write_all(Look::of_stdout().told(&words(&view)).as_bytes())?,
    }
    out.flush()?;
    Ok(Exit::Clean)
}

/// The record in words, a line for each thing.
pub(super) fn words(view: &View) -> String {
    let ms = |n: u64| time::words(Duration::from_millis(n));
    let mut lines = vec![
        ("identity", view.digits().to_owned()),
        ("namespace", view.namespace.clone()),
        ("state", format!("{}: {}", view.state, meaning(view))),
        ("rule", or_none(&view.rule)),
        ("key", or_none(&view.key)),
        ("attempt", format!("{}", view.attempt)),
        ("fence", view.fence.map_or_else(|| "none was given".to_owned(), |fence| fence.to_string())),
    ];
    if let Some(left) = view.lease_left_ms {
        lines.push(("lease", format!("{} left", ms(left))));
    }
    if let Some(time) = view.unknown_for_ms {
        lines.push(("unknown", format!("for {}", ms(time))));
    }
    if let Some(outcome) = &view.outcome {
        let status = outcome.status.map_or_else(|| "an outcome".to_owned(), |status| format!("HTTP {status}"));
        let body = match outcome.why_not {
            None => format!("body of {}", time::bytes(outcome.body_bytes)),
            Some(why) => format!("body not kept: {why}"),
        };
        lines.push(("outcome", format!("{status}, {body}, recorded {} ago", ms(outcome.settled_ago_ms))));
    }
    if let Some(error) = &view.last_error {
        lines.push(("last error", error.clone()));
    }
    lines.push((
        "ends in",
        match view.state {
            "unknown" | "parked" if !ends(view) => "never: it is kept until somebody settles it".to_owned(),
            _ => time::until(view.expires_in()),
        },
    ));
    lines.push(("size", time::bytes(view.bytes)));
    lines.iter().map(|(label, text)| format!("{label:<10}  {}\n", shown(text))).collect()
}

fn ends(view: &View) -> bool {
    view.expires_in() < time::NEVER_FROM
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "none".to_owned() } else { text.to_owned() }
}

/// What the state means for the next copy of the request.
fn meaning(view: &View) -> &'static str {
    match view.state {
        "free" if view.issued => "a one-time token that nobody used yet",
        "free" => "nothing runs and nothing is decided; the next request runs",
        "in-flight" => "somebody runs; copies wait for its answer, or get 409",
        "done" => match &view.outcome {
            Some(outcome) if outcome.body_kept => "copies get the recorded answer",
            _ => "copies are told that it is done, without the answer",
        },
        "unknown" if ends(view) => {
            "nobody can tell whether it took place; copies get 409 until you settle it with `semel keys resolve`, or until it ends: \
             then the next one runs"
        }
        "unknown" => {
            "nobody can tell whether it took place; copies get 409 until you settle it with `semel keys resolve`"
        }
        "parked" if ends(view) => {
            "it failed too often; copies get 409 until you settle it with `semel keys resolve`, or until it ends: then the next one \
             runs"
        }
        "parked" => "it failed too often; copies get 409 until you settle it with `semel keys resolve`",
        _ => "written by a newer version; copies wait",
    }
}

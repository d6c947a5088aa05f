//! `semel check`: the configuration in plain words, and what is wrong with it.

use std::io::Write as _;

use semel_gateway::config::{Config, Problem, Severity, Source, explain, lint};
use serde_json::{Value, json};

use crate::config::{Named, Overrides, Told};
use crate::exit::{Exit, Failure};
use crate::term::{Look, Out};

const EXAMPLES: &str = "\
Examples:
  semel check
  semel check /etc/semel.toml
  semel check --upstream http://127.0.0.1:3000
  semel check semel.toml --json

Exit codes: 0 nothing to object to, 1 errors or warnings, 2 usage.";

/// Reads the gateway's configuration, prints every rule in plain words with the values in force, and finds mistakes.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Which file
    #[command(flatten)]
    pub named: Named,

    /// Write JSON instead of text
    #[arg(long, env = "SEMEL_CHECK_JSON")]
    pub json: bool,

    /// The flags of the gateway that stand over the file
    #[command(flatten)]
    pub overrides: Overrides,
}

/// Runs the command to its end.
///
/// # Errors
/// A file that cannot be read; stdout that is gone.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let source = args.named.source(Told::unless(args.json))?;
    let read = Config::from_parts(source.clone(), &args.overrides.flags());
    let (config, problems) = match read {
        Ok(config) => {
            let found = lint(&config);
            (Some(config), found)
        }
        Err(refused) => (None, refused.problems),
    };
    let text = match args.json {
        true => machine(source.as_ref(), config.as_ref(), &problems),
        false => words(Look::of_stdout(), source.as_ref(), config.as_ref(), &problems),
    };
    let mut out = Out::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(if problems.iter().any(|p| p.severity != Severity::Note) { Exit::Finding } else { Exit::Clean })
}

/// For people: the rules where the file makes any, then the findings, then how many there are.
fn words(look: Look, source: Option<&Source>, config: Option<&Config>, problems: &[Problem]) -> String {
    let mut text = String::new();
    if let Some(config) = config {
        text.push_str(&look.fit(&explain(config)));
        text.push('\n');
    }
    for problem in problems {
        text.push_str(&look.fit(&problem.render(source)));
        text.push('\n');
    }
    text.push_str(&verdict(source, problems));
    text.push('\n');
    text
}

fn verdict(source: Option<&Source>, problems: &[Problem]) -> String {
    let name = source.map_or("the configuration", Source::name);
    let of = |severity: Severity, word: &str| {
        let n = problems.iter().filter(|p| p.severity == severity).count();
        (n > 0).then(|| format!("{n} {word}{}", if n == 1 { "" } else { "s" }))
    };
    let counts: Vec<String> =
        [of(Severity::Error, "error"), of(Severity::Warning, "warning"), of(Severity::Note, "note")]
            .into_iter()
            .flatten()
            .collect();
    match (counts.is_empty(), problems.iter().any(|p| p.severity == Severity::Error)) {
        (true, _) => format!("{name}: nothing to object to."),
        (false, true) => format!("{name}: {}; the gateway would not start.", counts.join(", ")),
        (false, false) => format!("{name}: {}.", counts.join(", ")),
    }
}

/// For programs.
fn machine(source: Option<&Source>, config: Option<&Config>, problems: &[Problem]) -> String {
    let findings: Vec<Value> = problems
        .iter()
        .map(|p| {
            let at = p.origin.position();
            json!({
                "severity": p.severity.to_string(),
                "line": at.map(|at| at.line),
                "column": at.map(|at| at.column),
                "what": p.what,
                "why": said(&p.why),
                "fix": said(&p.fix),
            })
        })
        .collect();
    let rules: Option<Vec<Value>> =
        config.map(|config| config.rules.iter().map(|rule| rule_json(config, rule)).collect());
    let value = json!({ "file": source.map(Source::name), "findings": findings, "rules": rules });
    format!("{value:#}\n")
}

/// What goes without saying is null.
fn said(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn rule_json(config: &Config, rule: &semel_gateway::config::Rule) -> Value {
    let settings: serde_json::Map<String, Value> = rule
        .policy
        .lines()
        .into_iter()
        .map(|line| (line.key.to_owned(), json!({ "value": line.value, "from": line.origin.to_string() })))
        .collect();
    json!({
        "name": &*rule.name,
        "match": rule.route.to_string(),
        "mode": rule.mode.value.word(),
        "preset": rule.preset.map(|p| p.value.word()),
        "upstream": config.upstreams.get(rule.upstream).map(|u| &*u.name),
        "settings": settings,
    })
}

//! The result for a machine: the shape is described in `docs/prove.md`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::answer::Class;
use super::check;
use super::course::{Course, Round, said};
use super::judge::{Judgement, Verdict};
use super::plan::Plan;
use super::sheet::Tally;

/// Raised when a member changes its meaning or goes; new members do not raise it.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    verdict: Verdict,
    words: &'a str,
    url: &'a str,
    method: &'a str,
    seed: u64,
    rounds: Rounds,
    concurrency: u32,
    effects: Effects<'a>,
    classes: BTreeMap<&'static str, Latency>,
    checks: Vec<Check<'a>>,
    findings: Vec<Finding<'a>>,
    notes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    direct: Option<Direct<'a>>,
}

#[derive(Serialize)]
struct Rounds {
    asked: u32,
    run: usize,
}

#[derive(Serialize)]
struct Effects<'a> {
    source: &'static str,
    expected: u64,
    as_expected: usize,
    most: Option<u64>,
    per_round: &'a [Option<u64>],
}

#[derive(Serialize)]
struct Latency {
    count: u64,
    mean_us: u64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
    answers: BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct Check<'a> {
    name: &'a str,
    result: check::Result,
    detail: &'a str,
}

#[derive(Serialize)]
struct Finding<'a> {
    round: Option<u32>,
    key: &'a str,
    check: &'a str,
    what: &'a str,
}

#[derive(Serialize)]
struct Direct<'a> {
    url: &'a str,
    effects: Effects<'a>,
    classes: BTreeMap<&'static str, Latency>,
}

pub(crate) fn render(plan: &Plan, course: &Course, judgement: &Judgement) -> String {
    let direct = course.direct.as_ref().zip(plan.direct.as_ref()).map(|(direct, place)| Direct {
        url: place.target.url(),
        effects: effects(plan, &judgement.direct_effects),
        classes: classes(&direct.tally, &direct.rounds),
    });
    let document = Document {
        version: VERSION,
        verdict: judgement.verdict,
        words: &judgement.words,
        url: plan.place.target.url(),
        method: plan.method.as_str(),
        seed: plan.seed,
        rounds: Rounds { asked: plan.rounds, run: course.rounds.len() },
        concurrency: plan.concurrency,
        effects: effects(plan, &judgement.effects),
        classes: classes(&course.tally, &course.rounds),
        checks: judgement
            .checks
            .iter()
            .map(|check| Check { name: check.name, result: check.result, detail: &check.detail })
            .collect(),
        findings: judgement
            .findings
            .iter()
            .map(|found| Finding { round: found.round, key: &found.key, check: found.check, what: &found.what })
            .collect(),
        notes: &judgement.notes,
        direct,
    };
    let mut text = serde_json::to_string_pretty(&document).expect("strings and numbers always serialise");
    text.push('\n');
    text
}

fn effects<'a>(plan: &Plan, per_round: &'a [Option<u64>]) -> Effects<'a> {
    Effects {
        source: if plan.count.is_some() { "count_url" } else { "answers" },
        expected: plan.expected,
        as_expected: per_round.iter().filter(|count| **count == Some(plan.expected)).count(),
        most: per_round.iter().flatten().max().copied(),
        per_round,
    }
}

fn classes(tally: &Tally, rounds: &[Round]) -> BTreeMap<&'static str, Latency> {
    let latency = |class: Class| {
        let latencies = tally.of(class);
        Latency {
            count: latencies.len(),
            mean_us: latencies.mean().round() as u64,
            p50_us: latencies.value_at_quantile(0.5),
            p99_us: latencies.value_at_quantile(0.99),
            max_us: latencies.max(),
            answers: said(rounds, class).into_iter().map(|(said, count)| (said.to_string(), count)).collect(),
        }
    };
    Class::ALL.into_iter().map(|class| (class.name(), latency(class))).collect()
}

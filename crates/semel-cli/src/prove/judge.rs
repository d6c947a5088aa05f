//! What the course of a run shows, and what it does not.

use std::collections::BTreeSet;

use super::answer::Class;
use super::check::{self, Check, Finding};
use super::course::{Course, Ended, Round};
use super::plan::Plan;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    /// The verdict as a sentence.
    pub(crate) words: String,
    pub(crate) checks: Vec<Check>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) notes: Vec<String>,
    /// Per round, in order; `None`: cannot be told from outside.
    pub(crate) effects: Vec<Option<u64>>,
    pub(crate) direct_effects: Vec<Option<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// Everything that was asked is as it should be.
    Safe,
    /// Something is wrong.
    Unsafe,
    /// Nothing speaks against it, but what was seen does not show it.
    Undecided,
    /// The run did not reach its end, and nothing was wrong until then.
    Unfinished,
}

/// How effects are read off the answers, decided once for the whole run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// A flag says which part of an answer names the effect.
    pub(crate) told: bool,
    /// A guard marks its replays, so an unmarked answer means a run.
    pub(crate) marks: bool,
    /// Answers of different keys differ, so equal answers mean one effect.
    pub(crate) telling: bool,
}

impl Reading {
    fn of(plan: &Plan, course: &Course) -> Self {
        let marks = course.rounds.iter().any(|round| round.storm.marked > 0);
        let mut seen = BTreeSet::new();
        let mut several = false;
        for round in &course.rounds {
            several |= round.storm.names.len() > 1;
            seen.extend(round.storm.names.keys());
        }
        seen.extend(course.other.iter().filter_map(|other| other.seen.name.as_ref()));
        // Answers that lack the named part say as little as any others.
        let told = plan.naming.is_told() && course.rounds.iter().all(|round| round.storm.unnamed == 0);
        Self { told, marks, telling: several || seen.len() > 1 }
    }

    /// Effects of one key; `None`: cannot be told.
    fn effects(self, round: &Round) -> Option<u64> {
        if let Some(counted) = round.counted {
            return Some(counted.total());
        }
        let mut names: BTreeSet<_> = round.storm.names.keys().collect();
        let mut fresh = u64::from(round.storm.count(Class::Executed));
        if let Some(repeat) = &round.repeat {
            names.extend(&repeat.name);
            fresh += u64::from(repeat.class == Class::Executed);
        }
        let distinct = names.len() as u64;
        let effects = match self {
            Self { told: true, .. } => distinct,
            Self { marks: true, .. } => distinct.max(fresh),
            Self { telling: true, .. } => distinct,
            _ if fresh <= 1 => fresh,
            _ => return None,
        };
        (effects > 0 || round.storm.unclear() == 0).then_some(effects)
    }
}

pub(crate) fn judge(plan: &Plan, course: &Course) -> Judgement {
    let reading = Reading::of(plan, course);
    let effects: Vec<_> = course.rounds.iter().map(|round| reading.effects(round)).collect();
    let direct_effects = course.direct.iter().flat_map(|direct| &direct.rounds).map(|round| {
        // Without the guard nothing is marked; its answers are as telling as those through the guard.
        let reading = Reading { marks: false, telling: reading.telling || round.storm.names.len() > 1, ..reading };
        reading.effects(round)
    });
    let direct_effects = direct_effects.collect();
    let mut findings = Vec::new();
    let checks = check::all(plan, course, reading, &effects, &mut findings);
    let undecided = checks.iter().any(|check| check.result == check::Result::NotShown);
    let verdict = match &course.ended {
        _ if !findings.is_empty() => Verdict::Unsafe,
        Ended::Interrupted | Ended::Lost(_) => Verdict::Unfinished,
        Ended::Finished if undecided => Verdict::Undecided,
        Ended::Finished => Verdict::Safe,
    };
    let words = words(plan, course, verdict, &effects, &findings);
    let notes = notes(plan, course, &effects);
    Judgement { verdict, words, checks, findings, notes, effects, direct_effects }
}

fn words(plan: &Plan, course: &Course, verdict: Verdict, effects: &[Option<u64>], findings: &[Finding]) -> String {
    let right = effects.iter().filter(|count| **count == Some(plan.expected)).count();
    let noun = if plan.expected == 1 { "effect" } else { "effects" };
    let basis = format!("{} {noun} per key in {right} of {} rounds", plan.expected, effects.len());
    let basis = if effects.len() == 1 { basis.trim_end_matches('s').to_owned() } else { basis };
    match verdict {
        Verdict::Safe => format!("{basis}: safe"),
        Verdict::Unsafe => {
            let most = effects.iter().flatten().max().copied().unwrap_or_default();
            if most > plan.expected {
                format!("{basis}, up to {most} effects for one key: NOT safe")
            } else {
                let why = findings.first().map_or(String::new(), |finding| format!(" ({})", finding.what));
                format!("{basis}: NOT as it should be{why}")
            }
        }
        Verdict::Undecided if plan.count.is_none() => format!(
            "{basis}: NOT SHOWN. The answers do not tell how many effects there were; count them with --count-url, or \
             name the part of an answer that differs per effect with --effect-pointer or --effect-header"
        ),
        Verdict::Undecided => format!("{basis}: NOT SHOWN, see the checks"),
        Verdict::Unfinished => match &course.ended {
            Ended::Lost(why) => format!("{basis}, then ended: {why}"),
            _ => format!("{basis}, then interrupted (of {} rounds asked for)", plan.rounds),
        },
    }
}

fn notes(plan: &Plan, course: &Course, effects: &[Option<u64>]) -> Vec<String> {
    let mut notes = Vec::new();
    let unnamed = course.rounds.iter().map(|round| u64::from(round.storm.unnamed)).sum::<u64>();
    if plan.naming.is_told() && unnamed > 0 {
        notes.push(format!("{unnamed} of the 2xx answers lack the part that should name the effect."));
    }
    let sum = |class| course.rounds.iter().map(|round| u64::from(round.storm.count(class))).sum::<u64>();
    let unmarked = course.rounds.iter().all(|round| round.storm.marked == 0);
    if unmarked && sum(Class::Executed) > effects.iter().flatten().sum() {
        notes.push("No answer is marked as a replay, so `executed` may include stored answers.".to_owned());
    }
    if course.rounds.iter().any(counts_more_than_it_saw) {
        notes.push("The count grew by more than the answers show: is other traffic on it?".to_owned());
    }
    notes.extend(misplaced(course));
    let (unknown, errors) = (sum(Class::Unknown), sum(Class::Error));
    let unclear = course.rounds.iter().any(|round| round.storm.unclear() > 0);
    if unknown > 0 {
        notes.push(format!(
            "{unknown} copies got an answer that leaves open whether they ran (5xx or outcome-unknown)."
        ));
    }
    if let Some((trouble, _)) = course.rounds.iter().flat_map(|round| &round.storm.troubles).next() {
        notes.push(format!("{errors} copies had no answer, such as: {trouble}."));
        if trouble.contains("os error 24") {
            notes.push(
                "This process may open too few files for so many copies: ulimit -n shows and raises it.".to_owned(),
            );
        }
    }
    if plan.count.is_none() && unclear && effects.iter().any(Option::is_some) {
        notes.push("Effects of copies without a clear answer are only seen with --count-url.".to_owned());
    }
    notes
}

/// Where all copies of all storms were told the same that is no answer of the endpoint: what to look at first.
fn misplaced(course: &Course) -> Option<String> {
    let mut all = course.rounds.iter().flat_map(|round| round.storm.answers.keys()).map(|(_, said)| said);
    let first = all.next()?;
    if all.any(|said| said != first) {
        return None;
    }
    let question = match (first.status, first.problem()) {
        (404, None) => "is the path of the URL right?",
        (405, None) => "is --method right?",
        (401 | 403, _) => "does it want credentials (--header)?",
        (502, Some("upstream-unreachable")) => "is the service running?",
        _ => return None,
    };
    Some(format!("Every answer is {first}: {question}"))
}

/// Every copy has a clear answer, and the count grew by more than the copies that say they ran.
fn counts_more_than_it_saw(round: &Round) -> bool {
    let ran = u64::from(round.storm.count(Class::Executed));
    round.storm.unclear() == 0 && round.counted.is_some_and(|counted| counted.storm > ran)
}

//! The named checks, each over all rounds of a run.

use super::answer::Class;
use super::course::{Course, Round};
use super::judge::Reading;
use super::plan::Plan;

/// One named check.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) result: Result,
    pub(crate) detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Result {
    Passed,
    Failed,
    /// What was seen proves neither.
    NotShown,
    NotAsked,
}

/// Something wrong, with its place.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    /// `None`: beside the rounds.
    pub(crate) round: Option<u32>,
    pub(crate) key: String,
    pub(crate) check: &'static str,
    pub(crate) what: String,
}

/// One round's contribution to a check.
enum Part {
    Passed,
    Failed(String),
    NotShown(String),
}

pub(crate) fn all(
    plan: &Plan,
    course: &Course,
    reading: Reading,
    effects: &[Option<u64>],
    findings: &mut Vec<Finding>,
) -> Vec<Check> {
    let rounds = || course.rounds.iter().zip(effects.iter().copied());
    let mut over = |name, part: &dyn Fn(&Round, Option<u64>) -> Part| {
        let parts = rounds().map(|(round, count)| (round, part(round, count)));
        over_rounds(name, parts, findings)
    };
    let first = if plan.expected == 0 {
        not_asked("first_passes", "--expect-effects 0")
    } else {
        over("first_passes", &first_passes)
    };
    let once = over("a_hundred_enter_once", &|round, count| enters_once(plan, round, count));
    let repeat = over("repeat_is_stopped", &|round, _| repeat_is_stopped(reading, round));
    let altered = if course.rounds.iter().any(|round| round.altered.is_some()) {
        over("altered_is_refused", &|round, _| altered_is_refused(round))
    } else {
        not_asked("altered_is_refused", "--altered")
    };
    let others = others_are_independent(plan, course, reading, findings);
    let frees = failure_frees(course, findings);
    vec![first, once, repeat, altered, others, frees]
}

fn over_rounds<'a>(
    name: &'static str,
    parts: impl Iterator<Item = (&'a Round, Part)>,
    findings: &mut Vec<Finding>,
) -> Check {
    let (mut all, mut passed, mut failed) = (0, 0, 0);
    let mut open = None;
    for (round, part) in parts {
        all += 1;
        match part {
            Part::Passed => passed += 1,
            Part::Failed(what) => {
                failed += 1;
                findings.push(Finding { round: Some(round.number), key: round.key.clone(), check: name, what });
            }
            Part::NotShown(why) => open = open.or(Some(why)),
        }
    }
    let rounds = if all == 1 { "round" } else { "rounds" };
    let (result, detail) = match open {
        _ if failed > 0 => (Result::Failed, format!("wrong in {failed} of {all} {rounds}")),
        Some(why) => (Result::NotShown, why),
        None if all == 0 => (Result::NotShown, "no round was completed".to_owned()),
        None => (Result::Passed, format!("{passed} of {all} {rounds}")),
    };
    Check { name, result, detail }
}

fn first_passes(round: &Round, effects: Option<u64>) -> Part {
    let storm = &round.storm;
    match effects {
        Some(0) => Part::Failed(format!("nothing took effect: {}", storm.answers_in_words())),
        // A copy that hung up may be the one that ran.
        Some(_) if storm.count(Class::Executed) == 0 && storm.unclear() == 0 && round.counted.is_none() => {
            Part::Failed("a fresh key got a stored answer".to_owned())
        }
        None if storm.count(Class::Executed) == 0 => {
            Part::NotShown(format!("no copy got a 2xx ({})", storm.answers_in_words()))
        }
        _ => Part::Passed,
    }
}

fn enters_once(plan: &Plan, round: &Round, effects: Option<u64>) -> Part {
    let names = round.storm.names.len() as u64;
    match effects {
        None => Part::NotShown("the answers do not tell how many took effect".to_owned()),
        // `first_passes` speaks of that.
        Some(0) if plan.expected > 0 => Part::NotShown("nothing entered".to_owned()),
        Some(count) if count != plan.expected => {
            let noun = if count == 1 { "effect" } else { "effects" };
            Part::Failed(format!("{count} {noun} instead of {}", plan.expected))
        }
        Some(_) if names > if round.counted.is_some() { 1 } else { plan.expected.max(1) } => {
            Part::Failed(format!("{names} different 2xx answers for one key"))
        }
        Some(_) => Part::Passed,
    }
}

fn repeat_is_stopped(reading: Reading, round: &Round) -> Part {
    let Some(repeat) = &round.repeat else { return Part::NotShown("no repeat was sent".to_owned()) };
    if round.counted.is_some_and(|counted| counted.repeat > 0 && counted.storm > 0) {
        return Part::Failed(format!("the repeat took effect again ({})", repeat.words()));
    }
    // The storm left no answer to compare with: this is the first one.
    let first = round.storm.names.is_empty();
    match (repeat.class, &repeat.name) {
        (_, Some(name)) if !first && !round.storm.names.contains_key(name) => {
            Part::Failed(format!("the repeat got another answer: {name}"))
        }
        _ if round.counted.is_some() || first => Part::Passed,
        (Class::Executed, Some(_)) if reading.marks && !reading.told => {
            Part::Failed("the repeat ran: its answer is not marked as a replay".to_owned())
        }
        (Class::Executed, Some(_)) if !reading.told && !reading.telling => {
            Part::NotShown("the repeat got an equal answer, which may be a second run".to_owned())
        }
        (Class::Unknown | Class::Error | Class::HungUp, _) if repeat.status() != Some(409) => {
            Part::NotShown(format!("the repeat got {}", repeat.words()))
        }
        _ => Part::Passed,
    }
}

fn altered_is_refused(round: &Round) -> Part {
    let Some(altered) = &round.altered else { return Part::NotShown("none was sent".to_owned()) };
    let known = |name: &String| round.storm.names.contains_key(name) || round.repeat_name() == Some(name);
    match (&altered.name, altered.status()) {
        (Some(name), _) if known(name) => {
            Part::Failed("another body under the same key got the stored answer".to_owned())
        }
        (Some(_), _) => Part::Failed(format!("another body ran under the same key ({})", altered.words())),
        _ if round.counted.is_some_and(|counted| counted.altered > 0) => {
            Part::Failed(format!("another body took effect under the same key ({})", altered.words()))
        }
        (None, Some(409 | 422)) => Part::Passed,
        (None, Some(_)) => Part::Failed(format!("another body got {} instead of 422 or 409", altered.words())),
        (None, None) => Part::NotShown(format!("another body: {}", altered.words())),
    }
}

fn others_are_independent(plan: &Plan, course: &Course, reading: Reading, findings: &mut Vec<Finding>) -> Check {
    let name = "others_are_independent";
    if !plan.key_is_sent {
        return not_asked(name, "no key is sent");
    }
    let Some(other) = &course.other else { return not_shown(name, "the run did not get there") };
    let class = other.seen.class;
    let shared = |answer: &String| course.rounds.iter().any(|round| round.storm.names.contains_key(answer));
    let what = if other.counted.is_some_and(|count| count != plan.expected) {
        let count = other.counted.unwrap_or_default();
        Some(format!("another key had {count} effects instead of {} ({})", plan.expected, other.seen.words()))
    } else if matches!(class, Class::Replayed | Class::Waited) {
        Some("another key got a stored answer".to_owned())
    } else if class == Class::Rejected && plan.expected > 0 {
        Some(format!("another key was refused ({})", other.seen.words()))
    } else if (reading.told || reading.telling) && other.seen.name.as_ref().is_some_and(shared) {
        Some("another key got the answer of an earlier one".to_owned())
    } else {
        None
    };
    match what {
        Some(what) => {
            findings.push(Finding { round: None, key: other.key.clone(), check: name, what: what.clone() });
            Check { name, result: Result::Failed, detail: what }
        }
        None if class == Class::Executed || other.counted.is_some() || plan.expected == 0 => {
            Check { name, result: Result::Passed, detail: "one more key ran".to_owned() }
        }
        None => not_shown(name, &format!("another key: {}", other.seen.words())),
    }
}

fn failure_frees(course: &Course, findings: &mut Vec<Finding>) -> Check {
    let name = "failure_frees";
    let Some(freed) = &course.freed else { return not_asked(name, "--failing-body, --failing-header") };
    let (failed, then) = (freed.failed.words(), freed.then.words());
    let what = match (&freed.failed.name, freed.then.class) {
        (Some(_), _) => format!("the request that should fail got {failed}"),
        (None, Class::Executed) => {
            return Check { name, result: Result::Passed, detail: format!("after {failed} the next one ran ({then})") };
        }
        (None, _) => format!("after {failed} the next one did not run ({then})"),
    };
    findings.push(Finding { round: None, key: freed.key.clone(), check: name, what: what.clone() });
    Check { name, result: Result::Failed, detail: what }
}

impl Round {
    fn repeat_name(&self) -> Option<&String> {
        self.repeat.as_ref()?.name.as_ref()
    }
}

fn not_asked(name: &'static str, how: &str) -> Check {
    Check { name, result: Result::NotAsked, detail: format!("not asked ({how})") }
}

fn not_shown(name: &'static str, why: &str) -> Check {
    Check { name, result: Result::NotShown, detail: why.to_owned() }
}

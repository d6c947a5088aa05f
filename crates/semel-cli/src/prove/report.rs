//! The result for a person.

use super::answer::Class;
use super::check::{Check, Finding, Result as Outcome};
use super::course::{Course, Round, said};
use super::judge::{Judgement, Verdict};
use super::plan::Plan;
use super::sheet::{Tally, in_words, micros};
use crate::span;
use crate::term::Look;

/// More would hide the verdict.
const FINDINGS_SHOWN: usize = 8;
/// Answers beside those that ran; a copy without one has no latency.
const ANSWERED: [Class; 4] = [Class::Replayed, Class::Waited, Class::Rejected, Class::Unknown];
/// Upper ends of the histogram's rows: 1, 2, 5, 10 … in microseconds.
const DECADES: [u64; 3] = [1, 2, 5];

pub(crate) fn render(plan: &Plan, course: &Course, judgement: &Judgement, look: Look) -> String {
    let mut out = Page { out: String::new(), look };
    out.heading(plan, course);
    out.table(&course.tally, &course.rounds);
    if let (Some(direct), Some(place)) = (&course.direct, &plan.direct) {
        out.line("");
        out.line(&look.strong(&format!("the same load, directly to {}", place.target.url())));
        out.table(&direct.tally, &direct.rounds);
        out.compare(judgement);
    }
    out.histogram(&course.tally);
    out.checks(&judgement.checks);
    out.findings(&judgement.findings);
    for note in &judgement.notes {
        out.paragraph("note  ", note);
    }
    if !judgement.notes.is_empty() {
        out.line("");
    }
    out.verdict(plan, judgement);
    out.out
}

struct Page {
    out: String,
    look: Look,
}

impl Page {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn paragraph(&mut self, lead: &str, text: &str) {
        let text = format!("{lead}{}", self.look.wrap(text, lead.chars().count()));
        self.line(&text);
    }

    fn heading(&mut self, plan: &Plan, course: &Course) {
        let title = format!("{} {}", plan.method, plan.place.target.url());
        self.line(&self.look.strong(&title));
        let rounds = match (course.rounds.len(), plan.rounds) {
            (1, 1) => "1 round".to_owned(),
            (run, asked) if run == asked as usize => format!("{run} rounds"),
            (run, asked) => format!("{run} of {asked} rounds"),
        };
        let key = if plan.key_is_sent { "one key per round" } else { "no key sent" };
        let within = if plan.ramp.is_zero() { "at once".to_owned() } else { format!("within {:?}", plan.ramp) };
        let text = format!("{rounds} × {} copies, {key}, started {within}, seed {}", plan.concurrency, plan.seed);
        self.paragraph("", &text);
        self.line("");
    }

    fn table(&mut self, tally: &Tally, rounds: &[Round]) {
        let row = |name: &str, cells: [String; 5]| {
            let [count, mean, p50, p99, max] = cells;
            format!("{name:<9}{count:>8}{mean:>9}{p50:>9}{p99:>9}{max:>9}")
        };
        let titles = ["count", "mean", "p50", "p99", "max"].map(str::to_owned);
        self.line(&self.look.strong(&row("answer", titles)));
        for class in Class::ALL {
            let latencies = tally.of(class);
            if latencies.is_empty() {
                // These are asked for in every run; the others only appear when there is something to say.
                if matches!(class, Class::Executed | Class::Replayed | Class::Rejected | Class::Error) {
                    self.line(&format!("{:<9}{:>8}", words(class), 0));
                }
                continue;
            }
            // Means of microseconds: the rounding does not show in three figures.
            let mean = latencies.mean().round() as u64;
            let quantiles =
                [mean, latencies.value_at_quantile(0.5), latencies.value_at_quantile(0.99), latencies.max()];
            let [mean, p50, p99, max] = quantiles.map(|value| span::show(micros(value)));
            self.line(&row(words(class), [latencies.len().to_string(), mean, p50, p99, max]));
            // A refusal may be the guard's, the service's, or that of a path nobody serves.
            if matches!(class, Class::Rejected | Class::Unknown) {
                let answers = said(rounds, class);
                let answers = in_words(answers.iter().map(|(said, count)| (*said, *count)));
                self.paragraph(&" ".repeat(10), &answers);
            }
        }
    }

    fn compare(&mut self, judgement: &Judgement) {
        let (guarded, direct) = (per_key(&judgement.effects), per_key(&judgement.direct_effects));
        self.paragraph("", &format!("effects per key: {direct} directly, {guarded} here"));
    }

    fn histogram(&mut self, tally: &Tally) {
        let rows = rows(tally);
        let most = rows.iter().map(|row| row.ran + row.rest).max().unwrap_or_default();
        if most == 0 {
            return;
        }
        self.line("");
        self.line(&format!("{} (█ executed, ░ all others)", self.look.strong("latency")));
        let room = self.look.width.min(100) - 24;
        for row in rows {
            let bar = |count: u64| {
                let cells = (count as f64 / most as f64 * room as f64).round() as usize;
                // What is there must be seen, however small its share.
                if count > 0 { cells.max(1) } else { 0 }
            };
            let (ran, rest) = (bar(row.ran), bar(row.rest).min(room));
            let bars =
                format!("{}{}", self.look.good(&"█".repeat(ran)), "░".repeat(rest.min(room + 1 - ran.min(room))));
            self.line(&format!("≤ {:>8}  {bars} {}", span::show(micros(row.end)), row.ran + row.rest));
        }
    }

    fn checks(&mut self, checks: &[Check]) {
        self.line("");
        self.line(&self.look.strong("checks"));
        for check in checks {
            let (mark, paint): (_, fn(Look, &str) -> String) = match check.result {
                Outcome::Passed => ("ok", Look::good),
                Outcome::Failed => ("WRONG", Look::bad),
                Outcome::NotShown => ("open", Look::open),
                Outcome::NotAsked => ("-", |_, text| text.to_owned()),
            };
            let lead = format!("{mark:<6}{:<24}", check.name);
            let detail = self.look.wrap(&check.detail, lead.chars().count());
            self.line(&format!("{}{}{detail}", paint(self.look, mark), &lead[mark.len()..]));
        }
        self.line("");
    }

    fn findings(&mut self, findings: &[Finding]) {
        for finding in findings.iter().take(FINDINGS_SHOWN) {
            let round = finding.round.map_or("beside the rounds".to_owned(), |round| format!("round {round}"));
            self.paragraph("  ", &format!("{round}, key {}: {} ({})", finding.key, finding.what, finding.check));
        }
        if findings.len() > FINDINGS_SHOWN {
            self.line(&format!("  and {} more", findings.len() - FINDINGS_SHOWN));
        }
        if !findings.is_empty() {
            self.line("");
        }
    }

    fn verdict(&mut self, plan: &Plan, judgement: &Judgement) {
        let words = self.look.wrap(&judgement.words, 0);
        let words = match judgement.verdict {
            Verdict::Safe => self.look.good(&words),
            Verdict::Unsafe => self.look.bad(&words),
            Verdict::Undecided | Verdict::Unfinished => self.look.open(&words),
        };
        self.line(&words);
        let source = match &plan.count {
            Some(place) => format!("effects counted at {}", place.target.url()),
            None => "effects read off the answers".to_owned(),
        };
        self.paragraph("", &source);
    }
}

fn words(class: Class) -> &'static str {
    if class == Class::HungUp { "hung up" } else { class.name() }
}

struct Row {
    end: u64,
    ran: u64,
    rest: u64,
}

/// From the first to the last row that holds anything.
fn rows(tally: &Tally) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut start = 0;
    let mut scale = 100;
    while scale <= 1_000_000_000 {
        for step in DECADES {
            let end = scale * step;
            let within = |class: Class| {
                tally.of(class).iter_recorded().filter(|value| {
                    let value = value.value_iterated_to();
                    start < value && value <= end
                })
            };
            let count = |class| within(class).map(|value| value.count_at_value()).sum::<u64>();
            let ran = count(Class::Executed);
            let rest = ANSWERED.iter().map(|class| count(*class)).sum();
            rows.push(Row { end, ran, rest });
            start = end;
        }
        scale *= 10;
    }
    let holds = |row: &Row| row.ran + row.rest > 0;
    let first = rows.iter().position(holds).unwrap_or(rows.len());
    let last = rows.iter().rposition(holds).map_or(first, |last| last + 1);
    rows.truncate(last);
    rows.drain(..first);
    rows
}

fn per_key(effects: &[Option<u64>]) -> String {
    let known: Vec<_> = effects.iter().flatten().copied().collect();
    match (known.iter().min(), known.iter().max()) {
        (Some(least), Some(most)) if least == most => least.to_string(),
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ => "unknown".to_owned(),
    }
}

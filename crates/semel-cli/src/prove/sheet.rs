//! What a volley came back with, counted.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::answer::{Class, Said, is_marked, is_success};
use super::effects::Naming;
use super::load::{Reply, Trouble};

/// Microseconds; longer ones count as this long.
const LONGEST: u64 = 3_600_000_000;
/// More kinds of answers make no sentence.
const KINDS_SHOWN: usize = 5;

/// One reply, reduced to what the judgement needs.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) class: Class,
    /// `None`: no answer.
    pub(crate) said: Option<Said>,
    /// The effect a 2xx or 3xx speaks of.
    pub(crate) name: Option<String>,
    /// The name is the part of the answer that a flag said names the effect.
    pub(crate) told: bool,
    pub(crate) trouble: Option<String>,
    pub(crate) marked: bool,
}

impl Seen {
    pub(crate) fn of(reply: &Reply, naming: &Naming) -> Self {
        let class = Class::of(reply);
        match &reply.result {
            Ok(answer) => {
                let (name, told) = is_success(answer.status).then(|| naming.name(answer)).unzip();
                let said = Some(Said::of(answer));
                Self { class, said, name, told: told.unwrap_or(false), trouble: None, marked: is_marked(answer) }
            }
            Err(trouble) => {
                Self { class, said: None, name: None, told: false, trouble: Some(trouble.words()), marked: false }
            }
        }
    }

    pub(crate) fn status(&self) -> Option<u16> {
        self.said.as_ref().map(|said| said.status)
    }

    /// `201`, `409 in-flight` or `no answer in time`.
    pub(crate) fn words(&self) -> String {
        match (&self.said, &self.trouble) {
            (Some(said), _) => said.to_string(),
            (None, Some(trouble)) => trouble.clone(),
            (None, None) => "nothing".to_owned(),
        }
    }
}

/// One volley.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sheet {
    classes: [u32; Class::ALL.len()],
    /// Distinct effects that 2xx and 3xx answers speak of, with the number of copies each.
    pub(crate) names: BTreeMap<String, u32>,
    /// 2xx and 3xx without the part that should name the effect, or all where none was told.
    pub(crate) unnamed: u32,
    pub(crate) answers: BTreeMap<(Class, Said), u32>,
    pub(crate) troubles: BTreeMap<String, u32>,
    pub(crate) marked: u32,
    /// Copies without a connection.
    pub(crate) unsent: u32,
}

impl Sheet {
    pub(crate) fn of(replies: &[Reply], naming: &Naming) -> Self {
        let mut sheet = Self::default();
        for reply in replies {
            let seen = Seen::of(reply, naming);
            sheet.classes[seen.class as usize] += 1;
            sheet.unsent += u32::from(matches!(reply.result, Err(Trouble::Connect(_))));
            sheet.marked += u32::from(seen.marked);
            if let Some(name) = seen.name {
                *sheet.names.entry(name).or_default() += 1;
                sheet.unnamed += u32::from(!seen.told);
            }
            if let Some(said) = seen.said {
                *sheet.answers.entry((seen.class, said)).or_default() += 1;
            }
            if let (Class::Error, Some(trouble)) = (seen.class, seen.trouble) {
                *sheet.troubles.entry(trouble).or_default() += 1;
            }
        }
        sheet
    }

    pub(crate) fn count(&self, class: Class) -> u32 {
        self.classes[class as usize]
    }

    /// Copies of which nobody can tell whether they took effect.
    pub(crate) fn unclear(&self) -> u32 {
        self.count(Class::Unknown) + self.count(Class::Error) - self.unsent + self.count(Class::HungUp)
    }

    /// `99 × 409 in-flight, 1 × 201` with the most frequent first.
    pub(crate) fn answers_in_words(&self) -> String {
        in_words(self.answers.iter().map(|((_, said), count)| (said, u64::from(*count))))
    }
}

/// The most frequent first; what is rare is only counted.
pub(crate) fn in_words<'a>(answers: impl Iterator<Item = (&'a Said, u64)>) -> String {
    let mut answers: Vec<_> = answers.collect();
    answers.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let (shown, rest) = answers.split_at(answers.len().min(KINDS_SHOWN));
    let mut parts: Vec<_> = shown.iter().map(|(said, count)| format!("{count} × {said}")).collect();
    if !rest.is_empty() {
        parts.push(format!("{} others", rest.iter().map(|(_, count)| count).sum::<u64>()));
    }
    if parts.is_empty() { "no answers".to_owned() } else { parts.join(", ") }
}

/// Latencies of all rounds, each class apart: the refused majority would hide the one that ran.
#[derive(Debug)]
pub(crate) struct Tally {
    latencies: Vec<Histogram<u64>>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let empty = || Histogram::new_with_bounds(1, LONGEST, 3).expect("1 < LONGEST and three figures are in range");
        Self { latencies: Class::ALL.iter().map(|_| empty()).collect() }
    }

    pub(crate) fn add(&mut self, replies: &[Reply]) {
        for reply in replies {
            let micros = u64::try_from(reply.took.as_micros()).unwrap_or(LONGEST);
            self.latencies[Class::of(reply) as usize].saturating_record(micros);
        }
    }

    pub(crate) fn of(&self, class: Class) -> &Histogram<u64> {
        &self.latencies[class as usize]
    }
}

/// A latency out of a histogram.
pub(crate) fn micros(value: u64) -> Duration {
    Duration::from_micros(value)
}

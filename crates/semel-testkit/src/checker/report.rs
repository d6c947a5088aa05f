//! What a history shows.

use std::{collections::BTreeMap, fmt};

/// What was broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the module says what each one means")]
pub enum Property {
    OneEffect,
    EffectBehindSuccess,
    NothingBehindFailure,
    EqualAnswers,
    OwnQuestion,
    OutcomeStands,
    RisingFences,
    Terminal,
    RecordAgrees,
    GuardIsTold,
    Asked,
    Tokens,
}

/// One identity for which a property does not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which one.
    pub property: Property,
    /// Of whom.
    pub identity: String,
    /// What is wrong, in words.
    pub words: String,
    /// All that was heard of this identity.
    pub events: Vec<String>,
}

/// How many lines of a story are shown.
const LINES: usize = 80;

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({:?}): {}", self.identity, self.property, self.words)?;
        for event in self.events.iter().take(LINES) {
            writeln!(f, "    {event}")?;
        }
        match self.events.len().saturating_sub(LINES) {
            0 => Ok(()),
            more => writeln!(f, "    … and {more} more"),
        }
    }
}

/// Effects beyond the first of an identity, by what allowed them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Doubles {
    /// The store had forgotten the identity.
    pub loss: u64,
    /// The rule says takeover.
    pub takeover: u64,
    /// The store was away and the rule says to run.
    pub open: u64,
}

/// What a history shows.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// How many identities were asked about.
    pub identities: u64,
    /// How many calls there were.
    pub calls: u64,
    /// How many of them were never told anything.
    pub unanswered: u64,
    /// How many effects there were.
    pub effects: u64,
    /// By label, how often callers were told it.
    pub told: BTreeMap<String, u64>,
    /// By name, how often a fault was done.
    pub faults: BTreeMap<String, u64>,
    /// What the store had at the end, by kind.
    pub last: BTreeMap<&'static str, u64>,
    /// Effects that were allowed beyond the first.
    pub doubles: Doubles,
    /// How many of the effects came unguarded.
    pub unguarded: u64,
    /// How often a fence did not rise where it need not.
    pub fence_repeats: u64,
    /// What does not hold.
    pub violations: Vec<Violation>,
}

impl Report {
    /// The coverage gate: names of faults and labels of answers that were not seen. A run that did not see them proves
    /// less than it says.
    #[must_use]
    pub fn unseen<'a>(&self, faults: &[&'a str], labels: &[&'a str]) -> Vec<&'a str> {
        let faults = faults.iter().filter(|name| !self.faults.contains_key(**name));
        let labels = labels.iter().filter(|label| !self.told.contains_key(**label));
        faults.chain(labels).copied().collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} calls of {} identities, {} effects, {} never answered; doubles: {} after loss, {} by takeover, {} \
             unguarded; {} fences did not rise; {} violations",
            self.calls,
            self.identities,
            self.effects,
            self.unanswered,
            self.doubles.loss,
            self.doubles.takeover,
            self.doubles.open,
            self.fence_repeats,
            self.violations.len(),
        )?;
        let list = |map: &BTreeMap<String, u64>| {
            map.iter().map(|(name, n)| format!("{n} × {name}")).collect::<Vec<_>>().join(", ")
        };
        writeln!(f, "  told: {}", list(&self.told))?;
        writeln!(f, "  faults: {}", list(&self.faults))?;
        writeln!(f, "  at the end: {:?}", self.last)?;
        for violation in self.violations.iter().take(10) {
            writeln!(f, "{violation}")?;
        }
        Ok(())
    }
}

//! What truly happened and what callers were told, and whether the two agree.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use semel_core::{
    engine::{Answer, Broken, Kept},
    judge::Recorded,
    record::{Body, Record, StateCode},
    refusal::Refusal,
};

/// One effect, in a world without any protection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effect {
    pub(super) key: u64,
    pub(super) question: u8,
    pub(super) fence: u64,
}

/// What a caller was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Told {
    /// The value, and what became of it.
    Executed(Option<u64>, &'static str),
    /// The same without a grant.
    Unguarded(Option<u64>, &'static str),
    Replayed(u64, bool),
    Refused(&'static str),
    Broken(&'static str),
}

/// What a world promises at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    /// No record allows takeover: one effect in each life.
    pub(super) strict: bool,
    /// The store's clock did not leap under a takeover: effects come in the order of their fences.
    pub(super) fences_rise: bool,
    /// A process died: what it held may look taken for as long as its lease and grace.
    pub(super) crashed: bool,
}

#[derive(Default)]
pub(super) struct Ledger {
    pub(super) effects: Mutex<Vec<Effect>>,
    /// Keys of which a caller has seen the outcome, as something that stands.
    seen: Mutex<BTreeMap<u64, u64>>,
    pub(super) told: Mutex<Vec<(u64, Told)>>,
    /// What is wrong.
    pub(super) wrongs: Mutex<Vec<String>>,
    /// How often the store forgot a key: each may begin another life.
    pub(super) forgotten: Mutex<BTreeMap<u64, u64>>,
    pub(super) kinds: Mutex<BTreeSet<String>>,
    /// No process works on a key twice at once, whatever its store does.
    pub(super) one_at_a_time: AtomicBool,
    inside: Mutex<BTreeMap<(usize, u64), usize>>,
}

/// Work on a key in a process, until it is dropped.
pub(super) struct Inside(Arc<Ledger>, (usize, u64));

impl Drop for Inside {
    fn drop(&mut self) {
        *self.0.inside.lock().entry(self.1).or_default() -= 1;
    }
}

impl Ledger {
    /// Work on a key begins in a process.
    pub(super) fn enter(self: &Arc<Self>, process: usize, key: u64) -> Inside {
        let at = (process, key);
        let others = {
            let mut inside = self.inside.lock();
            let others = inside.entry(at).or_default();
            *others += 1;
            *others - 1
        };
        if others > 0 && self.one_at_a_time.load(Ordering::SeqCst) {
            self.wrong(format!("key {key}: process {process} works on it {} times at once", others + 1));
        }
        Inside(Arc::clone(self), at)
    }

    /// The effect takes place; its value is unlike any other.
    pub(super) fn effect(&self, effect: Effect) -> u64 {
        let mut effects = self.effects.lock();
        effects.push(effect);
        effects.len() as u64
    }

    fn question_of(&self, value: u64) -> u8 {
        self.effects.lock()[usize::try_from(value - 1).expect("few effects")].question
    }

    pub(super) fn effects_of(&self, key: u64) -> Vec<Effect> {
        self.effects.lock().iter().filter(|e| e.key == key).copied().collect()
    }

    pub(super) fn wrong(&self, what: String) {
        self.wrongs.lock().push(what);
    }

    fn is_whole(&self, key: u64) -> bool {
        !self.forgotten.lock().contains_key(&key)
    }

    /// What was known of a key when a call began.
    pub(super) fn known(&self, key: u64) -> Option<u64> {
        self.seen.lock().get(&key).copied()
    }

    /// A caller got an answer; `known` is what was known when it asked.
    pub(super) fn hear(&self, key: u64, question: u8, known: Option<u64>, told: Told) {
        self.kinds.lock().insert(match &told {
            Told::Executed(_, kept) => format!("executed, {kept}"),
            Told::Unguarded(_, kept) => format!("unguarded, {kept}"),
            Told::Replayed(_, waited) => format!("replayed, waited: {waited}"),
            Told::Refused(name) => format!("refused, {name}"),
            Told::Broken(how) => format!("broken, {how}"),
        });
        let value = match told {
            Told::Executed(Some(value), "stored" | "restored" | "unrecorded") => Some(value),
            Told::Replayed(value, _) => Some(value),
            _ => None,
        };
        if let Told::Replayed(value, _) = told
            && self.question_of(value) != question
        {
            self.wrong(format!("key {key}: another question got the answer: {told:?}"));
        }
        if self.is_whole(key) {
            self.check(key, question, known, &told, value);
        }
        let stands = matches!(told, Told::Executed(_, "stored" | "restored") | Told::Replayed(..));
        if let Some(value) = value.filter(|_| stands) {
            self.seen.lock().entry(key).or_insert(value);
        }
        self.told.lock().push((key, told));
    }

    fn check(&self, key: u64, question: u8, known: Option<u64>, told: &Told, value: Option<u64>) {
        if let (Some(value), Some(first)) = (value, self.known(key))
            && value != first
            && !matches!(told, Told::Executed(_, "unrecorded"))
        {
            self.wrong(format!("key {key}: told {value} after {first} was: {told:?}"));
        }
        let Some(known) = known else { return };
        let right = match told {
            Told::Replayed(value, _) => *value == known,
            Told::Refused("key-reused") => self.question_of(known) != question,
            Told::Refused("store-unavailable" | "too-many-waiters" | "too-many-running") => true,
            _ => false,
        };
        if !right {
            self.wrong(format!("key {key}: its outcome {known} was known, and a later caller was told {told:?}"));
        }
    }

    /// At the end, when all is quiet: the record and the effects agree.
    pub(super) fn close(&self, key: u64, record: Option<&Record>, world: &World, now: semel_core::StoreTime) {
        let strict = world.strict;
        let effects = self.effects_of(key);
        let lives = 1 + self.forgotten.lock().get(&key).copied().unwrap_or(0);
        if strict && effects.len() as u64 > lives {
            self.wrong(format!("key {key}: {} effects in {lives} lives: {effects:?}", effects.len()));
        }
        if !effects.is_sorted_by(|a, b| a.fence < b.fence) && self.is_whole(key) && world.fences_rise {
            self.wrong(format!("key {key}: fences do not rise: {effects:?}"));
        }
        let state = record.map(|r| r.reads_as(now));
        if state == Some(StateCode::InFlight) && (strict || !world.crashed) {
            self.wrong(format!("key {key}: still in flight when all is over: {record:?}"));
        }
        if let Some(known) = self.known(key).filter(|_| self.is_whole(key)) {
            let recorded = record.and_then(value_of);
            if recorded != Some(known) {
                self.wrong(format!("key {key}: callers saw {known}, the record has {recorded:?}: {record:?}"));
            }
        }
    }
}

pub(super) fn value(recorded: &Recorded) -> u64 {
    let Body::Whole(body) = &recorded.outcome.body else { panic!("bodies are small here") };
    u64::from_be_bytes(body[..].try_into().expect("a value has eight bytes"))
}

fn value_of(record: &Record) -> Option<u64> {
    match semel_core::record::Rest::read(&record.rest).ok()?.payload {
        semel_core::record::Payload::Outcome { outcome, settled_at } => {
            Some(value(&Recorded { outcome, settled_at, left: std::time::Duration::ZERO, same_request: false }))
        }
        _ => None,
    }
}

impl Told {
    pub(super) fn of(answer: &Answer<Option<u64>>) -> Self {
        match answer {
            Answer::Executed { value, kept } => Self::Executed(*value, kept_name(kept)),
            Answer::Unguarded { value, kept, .. } => Self::Unguarded(*value, kept_name(kept)),
            Answer::Replayed { recorded, waited } => Self::Replayed(value(recorded), *waited),
            Answer::Refused(refusal) => Self::Refused(refusal.name()),
            Answer::Broken(Broken::Panicked) => Self::Broken("panicked"),
            Answer::Broken(Broken::Overheld) => Self::Broken("overheld"),
            other => panic!("no such answer: {other:?}"),
        }
    }

    pub(super) fn refused(refusal: &Refusal) -> Self {
        Self::Refused(refusal.name())
    }
}

pub(super) fn kept_name(kept: &Kept) -> &'static str {
    match kept {
        Kept::Stored => "stored",
        Kept::Restored => "restored",
        Kept::Released => "released",
        Kept::Unknown => "unknown",
        Kept::Unrecorded => "unrecorded",
        Kept::Lost { .. } => "lost",
        other => panic!("no such end: {other:?}"),
    }
}

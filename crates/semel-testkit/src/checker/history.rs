//! What happened, in the order in which the collector heard of it.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use semel_core::env::{Clock, Tick};

/// One question to the system under test.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Call(pub u64);

/// What was asked, and with whose credentials, where those tell callers apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// What.
    pub what: String,
    /// Whose; empty where all are one caller.
    pub by: String,
}

impl Question {
    /// The same question, asked with somebody's credentials.
    #[must_use]
    pub fn of(self, by: impl Into<String>) -> Self {
        Self { by: by.into(), ..self }
    }
}

impl From<&str> for Question {
    fn from(what: &str) -> Self {
        what.to_owned().into()
    }
}

impl From<String> for Question {
    fn from(what: String) -> Self {
        Self { what, by: String::new() }
    }
}

/// What a caller was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// Its own run has this outcome, and it is recorded.
    Fresh(String),
    /// A recorded outcome.
    Replayed(String),
    /// Its own run has this outcome, and it may not be recorded.
    Unrecorded(String),
    /// Its own run has this outcome, and nothing guarded it.
    Unguarded(String),
    /// A definite failure: nothing was run for this call.
    Refused,
    /// The same, because the key was used for another question.
    Mismatch,
    /// The same, because the key was used for this question with other credentials.
    Stranger,
    /// The same, because it was done, and its outcome is not told.
    Done,
    /// The same, because no one-time token stands under the key.
    NoToken,
    /// Nobody can tell what became of this call: a broken connection, a time-out.
    Unclear,
}

impl Told {
    /// The outcome, if one was told.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        match self {
            Self::Fresh(value) | Self::Replayed(value) | Self::Unrecorded(value) | Self::Unguarded(value) => {
                Some(value)
            }
            _ => None,
        }
    }

    /// Whether it says that nothing was run for this call.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused | Self::Mismatch | Self::Stranger | Self::Done | Self::NoToken)
    }

    /// The outcome, if it was told as one that is recorded.
    #[must_use]
    pub fn standing(&self) -> Option<&str> {
        match self {
            Self::Fresh(value) | Self::Replayed(value) => Some(value),
            _ => None,
        }
    }
}

/// Something took place in the world.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effect {
    /// Of which identity.
    pub identity: String,
    /// What was asked.
    pub question: Question,
    /// Unlike that of any other effect; who is told of it can be matched with it.
    pub value: String,
    /// The fence it came with; none: it came unguarded.
    pub fence: Option<u64>,
    /// The call for which it was done, where that is known.
    pub call: Option<Call>,
}

/// What a store has of an identity at the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Last {
    /// Nothing, or nothing any more, or a free record: the next one runs.
    Nothing,
    /// In flight.
    InFlight,
    /// An outcome; none where its body was not kept.
    Done(Option<String>),
    /// An outcome that nobody can tell.
    Unknown,
    /// Given up after many attempts.
    Parked,
}

/// A loss that has begun: [`Collector::forgets`].
#[derive(Debug)]
#[must_use = "a loss that nobody reports as over lasts until the end"]
pub struct Loss {
    identity: Option<String>,
    since: usize,
    gone: Option<usize>,
    times: usize,
}

/// One entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    Asks {
        call: Call,
        who: String,
        identity: String,
        question: Question,
    },
    Told {
        call: Call,
        told: Told,
        label: String,
    },
    Effect(Effect),
    /// A one-time token is there, and stands until a time.
    Issued {
        identity: String,
        until: Duration,
    },
    /// The store begins to lose, or may, what it knows of an identity, or of all.
    Forgets {
        identity: Option<String>,
    },
    /// It has lost it, by `gone`, and from here on nobody has any of it.
    Forgot {
        identity: Option<String>,
        since: usize,
        gone: usize,
        times: usize,
    },
    Last {
        identity: String,
        last: Last,
    },
    Fault(String),
    Trouble {
        begins: bool,
        name: String,
    },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Event {
    pub(super) at: Duration,
    pub(super) what: What,
}

/// Hears everything. Clones are one collector.
#[derive(Clone)]
pub struct Collector(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    began: Tick,
    events: Mutex<(u64, Vec<Event>)>,
}

impl Collector {
    /// One that has heard nothing. The clock is for people who read what went wrong.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let began = clock.now();
        Self(Arc::new(Inner { clock, began, events: Mutex::default() }))
    }

    fn hear(&self, what: What) {
        let at = self.0.clock.now().since(self.0.began);
        self.0.events.lock().1.push(Event { at, what });
    }

    /// A caller is about to ask. What it is told comes by [`tell`](Self::tell); if nothing ever does (it left, it died),
    /// that is as unclear as [`Told::Unclear`].
    pub fn asks(&self, who: impl Into<String>, identity: impl Into<String>, question: impl Into<Question>) -> Call {
        let at = self.0.clock.now().since(self.0.began);
        let mut events = self.0.events.lock();
        events.0 += 1;
        let call = Call(events.0);
        let what = What::Asks { call, who: who.into(), identity: identity.into(), question: question.into() };
        events.1.push(Event { at, what });
        call
    }

    /// A caller has been told something. The label is its kind: coverage is counted by it.
    pub fn tell(&self, call: Call, told: Told, label: impl Into<String>) {
        self.hear(What::Told { call, told, label: label.into() });
    }

    /// Something took place. To be reported before anybody can be told of it.
    pub fn effect(&self, effect: Effect) {
        self.hear(What::Effect(effect));
    }

    /// A one-time token was issued, and stands for at least so long. To be reported before anybody can use it.
    pub fn issued(&self, identity: impl Into<String>, holds: Duration) {
        let until = self.0.clock.now().since(self.0.began) + holds;
        self.hear(What::Issued { identity: identity.into(), until });
    }

    /// The store lost what it knew of an identity, or of all, in a moment in which it grants nothing: another life may begin.
    /// To be reported in that moment.
    pub fn forgot(&self, identity: Option<&str>) {
        let at = self.0.clock.now().since(self.0.began);
        let mut events = self.0.events.lock();
        let here = events.1.len();
        let what = What::Forgot { identity: identity.map(Into::into), since: here, gone: here, times: 1 };
        events.1.push(Event { at, what });
    }

    /// The store is about to lose, or may lose, what it knows of an identity, or of all; at any moment from here on, as while
    /// two servers both believe that they are the primary. To be reported before the loss can show. A loss that nobody reports
    /// as over lasts until the end.
    pub fn forgets(&self, identity: Option<&str>) -> Loss {
        let at = self.0.clock.now().since(self.0.began);
        let identity = identity.map(ToOwned::to_owned);
        let mut events = self.0.events.lock();
        let since = events.1.len();
        events.1.push(Event { at, what: What::Forgets { identity: identity.clone() } });
        Loss { identity, since, gone: None, times: 1 }
    }

    /// What a loss takes is gone, and what the store knows from here on it keeps. It was lost once for each of `times`.
    pub fn gone(&self, loss: &mut Loss, times: usize) {
        loss.gone = Some(self.0.events.lock().1.len().saturating_sub(1));
        loss.times = times;
    }

    /// A loss is over: nobody remembers for the store what it had lost, and may tell it.
    pub fn over(&self, loss: Loss) {
        let at = self.0.clock.now().since(self.0.began);
        let mut events = self.0.events.lock();
        let Loss { identity, since, gone, times } = loss;
        let gone = gone.unwrap_or(events.1.len());
        events.1.push(Event { at, what: What::Forgot { identity, since, gone, times } });
    }

    /// A fault was done to the system. Coverage is counted by its name.
    pub fn fault(&self, name: impl Into<String>) {
        self.hear(What::Fault(name.into()));
    }

    /// A fault is about to be done to the system; it is on until [`ends`](Self::ends).
    pub fn begins(&self, name: impl Into<String>) {
        self.hear(What::Trouble { begins: true, name: name.into() });
    }

    /// The last fault that began is over, whether it came to it or not.
    pub fn ends(&self, name: impl Into<String>) {
        self.hear(What::Trouble { begins: false, name: name.into() });
    }

    /// What the store has of an identity when all is over.
    pub fn last(&self, identity: impl Into<String>, last: Last) {
        self.hear(What::Last { identity: identity.into(), last });
    }

    /// How many callers were told this kind of answer so far.
    #[must_use]
    pub fn told(&self, kind: &str) -> usize {
        let events = self.0.events.lock();
        events.1.iter().filter(|event| matches!(&event.what, What::Told { label, .. } if label == kind)).count()
    }

    /// How many calls there were.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.events.lock().0
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.0.events.lock().1.clone()
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collector({} events)", self.0.events.lock().1.len())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3} s  ", self.at.as_secs_f64())?;
        match &self.what {
            What::Asks { call, who, question, .. } => write!(f, "call {}: {who} asks {question}", call.0),
            What::Told { call, told, label } => write!(f, "call {}: is told {told}, {label}", call.0),
            What::Effect(effect) => {
                write!(f, "EFFECT {} of {}", effect.value, effect.question)?;
                match effect.fence {
                    Some(fence) => write!(f, ", fence {fence}")?,
                    None => f.write_str(", unguarded")?,
                }
                effect.call.map_or(Ok(()), |call| write!(f, ", for call {}", call.0))
            }
            What::Issued { until, .. } => write!(f, "a token is issued, and stands until {:.3} s", until.as_secs_f64()),
            What::Forgets { .. } => f.write_str("the store begins to forget, or may"),
            What::Forgot { .. } => f.write_str("the store has forgotten, or may have"),
            What::Last { last, .. } => write!(f, "at the end the store has {last:?}"),
            What::Fault(name) => write!(f, "fault: {name}"),
            What::Trouble { begins: true, name } => write!(f, "fault begins: {name}"),
            What::Trouble { begins: false, name } => write!(f, "fault ends: {name}"),
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.by.is_empty() { Ok(()) } else { write!(f, " as {}", self.by) }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fresh(value) => write!(f, "that it ran with outcome {value}"),
            Self::Replayed(value) => write!(f, "the recorded outcome {value}"),
            Self::Unrecorded(value) => write!(f, "that it ran with outcome {value}, perhaps not recorded"),
            Self::Unguarded(value) => write!(f, "that it ran unguarded with outcome {value}"),
            Self::Refused => f.write_str("that nothing was run for it"),
            Self::Mismatch => f.write_str("that the key was used for another question"),
            Self::Stranger => f.write_str("that the key was used with other credentials"),
            Self::Done => f.write_str("that it was done"),
            Self::NoToken => f.write_str("that there is no token"),
            Self::Unclear => f.write_str("nothing certain"),
        }
    }
}

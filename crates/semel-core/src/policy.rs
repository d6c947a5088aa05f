//! What a rule wants of the engine: how long things last and what duplicates get.

use std::{fmt, sync::Arc, time::Duration};

use crate::lanes::Places;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Long enough to mean never, short enough for every store's arithmetic.
pub const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What a duplicate of something that is done gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDuplicate {
    /// The recorded outcome.
    Replay,
    /// A refusal, unless its request id shows that a network repeated it.
    Reject,
}

/// What a duplicate of something that is under way gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnInFlight {
    /// The answer of the attempt it met, if that comes within this time.
    Wait(Duration),
    /// A refusal at once.
    Reject,
}

/// What becomes of a request while the store does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnStoreError {
    /// It is refused, and nothing runs.
    Closed,
    /// It runs without a grant, marked and counted. Copies of one process still run once; others may run it again.
    Open,
}

/// The validated settings of one rule. Cheap to share; the names are those of `semel.toml`.
#[derive(Debug)]
pub struct Policy {
    name: Arc<str>,
    values: Values,
    /// Work of this rule that is running now.
    pub(crate) running: Places,
}

#[derive(Clone, Debug)]
struct Values {
    ttl: Duration,
    unknown_ttl: Duration,
    lease: Duration,
    max_hold: Duration,
    takeover: Option<Duration>,
    max_attempts: u16,
    on_duplicate: OnDuplicate,
    on_in_flight: OnInFlight,
    on_store_error: OnStoreError,
    max_running: usize,
    message: Option<Arc<str>>,
}

impl Policy {
    /// The defaults of an entrance with a key from the client: kept 24 h after settlement, duplicates replayed, copies
    /// in flight wait 10 s, an owner that died leaves an unknown.
    pub fn key() -> PolicyBuilder {
        PolicyBuilder {
            name: Arc::from("default"),
            unknown_ttl: None,
            max_attempts: None,
            values: Values {
                ttl: DAY,
                unknown_ttl: DAY,
                lease: 10 * SECOND,
                max_hold: 600 * SECOND,
                takeover: None,
                max_attempts: u16::MAX,
                on_duplicate: OnDuplicate::Replay,
                on_in_flight: OnInFlight::Wait(10 * SECOND),
                on_store_error: OnStoreError::Closed,
                max_running: 1_000,
                message: None,
            },
        }
    }

    /// The rule's name, as metrics and records carry it.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// How long an outcome is replayed, counted from its settlement.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.values.ttl
    }

    /// How long an outcome that nobody can tell is kept.
    #[must_use]
    pub const fn unknown_ttl(&self) -> Duration {
        self.values.unknown_ttl
    }

    /// How long a claim is exclusive without a renewal.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.values.lease
    }

    /// How long one run may hold its claim.
    #[must_use]
    pub const fn max_hold(&self) -> Duration {
        self.values.max_hold
    }

    /// Whether another may run once an owner's lease and this time (`settle_after`) are over.
    #[must_use]
    pub const fn takeover(&self) -> Option<Duration> {
        self.values.takeover
    }

    /// How many attempts there are before a record is parked.
    #[must_use]
    pub const fn max_attempts(&self) -> u16 {
        self.values.max_attempts
    }

    /// What a duplicate of something that is done gets.
    #[must_use]
    pub const fn on_duplicate(&self) -> OnDuplicate {
        self.values.on_duplicate
    }

    /// What a duplicate of something that is under way gets.
    #[must_use]
    pub const fn on_in_flight(&self) -> OnInFlight {
        self.values.on_in_flight
    }

    /// What becomes of a request while the store does not answer.
    #[must_use]
    pub const fn on_store_error(&self) -> OnStoreError {
        self.values.on_store_error
    }

    /// How much work of this rule may run at once.
    #[must_use]
    pub const fn max_running(&self) -> usize {
        self.values.max_running
    }

    /// What a rejected duplicate is told, if not the default.
    #[must_use]
    pub const fn message(&self) -> Option<&Arc<str>> {
        self.values.message.as_ref()
    }
}

/// Builds a [`Policy`]; impossible combinations are errors that say why.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct PolicyBuilder {
    name: Arc<str>,
    unknown_ttl: Option<Duration>,
    max_attempts: Option<u16>,
    values: Values,
}

impl PolicyBuilder {
    /// The preset for money: duplicates are replayed for 24 h and an unknown never ends by itself.
    pub const fn payment(mut self) -> Self {
        self.values.ttl = DAY;
        self.unknown_ttl = Some(NEVER);
        self.values.takeover = None;
        self.values.on_store_error = OnStoreError::Closed;
        self.values.on_duplicate = OnDuplicate::Replay;
        self
    }

    /// The preset for calls between one's own services: kept 5 minutes.
    pub const fn internal(mut self) -> Self {
        self.values.ttl = Duration::from_secs(300);
        self.values.on_duplicate = OnDuplicate::Replay;
        self
    }

    /// The preset for callbacks into handlers that commit in one transaction: an owner that died is taken over
    /// `settle_after` its lease, at most ten times.
    pub const fn callback(mut self, settle_after: Duration) -> Self {
        self.values.on_duplicate = OnDuplicate::Replay;
        self.values.takeover = Some(settle_after);
        self
    }

    /// The rule's name: 1 to 64 printable ASCII characters.
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// How long an outcome is replayed, from its settlement.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.values.ttl = ttl;
        self
    }

    /// How long an unknown outcome is kept; never less than `ttl`, which is the default.
    pub const fn unknown_ttl(mut self, unknown_ttl: Duration) -> Self {
        self.unknown_ttl = Some(unknown_ttl);
        self
    }

    /// How long a claim is exclusive without a renewal. Short is right: renewals carry long runs.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.values.lease = lease;
        self
    }

    /// How long one run may hold its claim; it is stopped then and its outcome is unknown.
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.values.max_hold = max_hold;
        self
    }

    /// Lets another run once an owner's lease and `settle_after` are over. Only for work that is itself idempotent:
    /// the first run may have taken effect, or still be under way.
    pub const fn takeover(mut self, settle_after: Duration) -> Self {
        self.values.takeover = Some(settle_after);
        self
    }

    /// How many attempts there are before the record is parked; unlimited by default, ten with takeover.
    pub const fn max_attempts(mut self, attempts: u16) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// What a duplicate of something that is done gets.
    pub const fn on_duplicate(mut self, what: OnDuplicate) -> Self {
        self.values.on_duplicate = what;
        self
    }

    /// What a duplicate of something that is under way gets.
    pub const fn on_in_flight(mut self, what: OnInFlight) -> Self {
        self.values.on_in_flight = what;
        self
    }

    /// What becomes of a request while the store does not answer.
    pub const fn on_store_error(mut self, what: OnStoreError) -> Self {
        self.values.on_store_error = what;
        self
    }

    /// How much work of this rule may run at once (1,000).
    pub const fn max_running(mut self, n: usize) -> Self {
        self.values.max_running = n;
        self
    }

    /// What a rejected duplicate is told.
    pub fn message(mut self, message: impl Into<Arc<str>>) -> Self {
        self.values.message = Some(message.into());
        self
    }

    /// The policy.
    ///
    /// # Errors
    /// [`PolicyError`] names the field and says what is wrong with it.
    pub fn build(self) -> Result<Arc<Policy>, PolicyError> {
        let mut v = self.values;
        let refuse = |field, why: String| Err(PolicyError { field, why });
        if self.name.is_empty() || self.name.len() > 64 || !self.name.bytes().all(|b| b.is_ascii_graphic()) {
            return refuse("name", format!("`{}` is not 1 to 64 printable ASCII characters", self.name.escape_debug()));
        }
        v.unknown_ttl = self.unknown_ttl.unwrap_or(v.ttl);
        v.max_attempts = self.max_attempts.unwrap_or(if v.takeover.is_some() { 10 } else { u16::MAX });
        let between = [
            ("ttl", v.ttl, Duration::from_millis(1), NEVER),
            ("unknown_ttl", v.unknown_ttl, Duration::from_millis(1), NEVER),
            ("lease", v.lease, Duration::from_millis(100), HOUR),
            ("max_hold", v.max_hold, v.lease, 7 * DAY),
            ("settle_after", v.takeover.unwrap_or(SECOND), Duration::ZERO, 7 * DAY),
        ];
        for (field, value, least, most) in between {
            if value < least || value > most {
                return refuse(field, format!("{value:?} is not between {least:?} and {most:?}"));
            }
        }
        if v.unknown_ttl < v.ttl {
            let why = "an unknown outcome that is forgotten before a known one would be run again; make it at least";
            return refuse("unknown_ttl", format!("{:?}: {why} `ttl` ({:?})", v.unknown_ttl, v.ttl));
        }
        if let OnInFlight::Wait(wait) = v.on_in_flight
            && wait > v.max_hold
        {
            return refuse(
                "on_in_flight",
                format!("waiting {wait:?} is longer than any run (`max_hold` {:?})", v.max_hold),
            );
        }
        if v.max_attempts == 0 || v.max_running == 0 {
            return refuse("max_attempts, max_running", "zero would refuse everything".into());
        }
        Ok(Arc::new(Policy { name: self.name, values: v, running: Places::default() }))
    }
}

/// A policy that cannot be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyError {
    /// The field, as `semel.toml` names it.
    pub field: &'static str,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

impl std::error::Error for PolicyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_table() {
        let p = Policy::key().build().unwrap();
        assert_eq!((p.ttl(), p.unknown_ttl(), p.lease()), (DAY, DAY, 10 * SECOND));
        assert_eq!((p.on_duplicate(), p.on_in_flight()), (OnDuplicate::Replay, OnInFlight::Wait(10 * SECOND)));
        assert_eq!((p.takeover(), p.max_attempts()), (None, u16::MAX));
        assert_eq!(Policy::key().payment().build().unwrap().unknown_ttl(), NEVER);
        assert_eq!(Policy::key().callback(60 * SECOND).build().unwrap().max_attempts(), 10);
    }

    #[test]
    fn impossible_combinations_say_why() {
        let field = |b: PolicyBuilder| b.build().unwrap_err().field;
        assert_eq!(field(Policy::key().unknown_ttl(HOUR)), "unknown_ttl");
        assert_eq!(field(Policy::key().lease(SECOND / 100)), "lease");
        assert_eq!(field(Policy::key().max_hold(SECOND)), "max_hold");
        assert_eq!(field(Policy::key().on_in_flight(OnInFlight::Wait(HOUR))), "on_in_flight");
        assert_eq!(field(Policy::key().named("a b")), "name");
        assert_eq!(field(Policy::key().max_attempts(0)), "max_attempts, max_running");
    }
}

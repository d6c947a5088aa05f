//! What the engine tells, as far as a person has to know of it: lines in the log.
//!
//! One line per unknown outcome, however many there are: each is a request that somebody has to look up. What a broken
//! store says is said once in a while. A line names the first digits of an identity, as problem documents do, never a key.

use std::sync::Arc;
use std::time::Duration;

use semel_core::engine::Kept;
use semel_core::env::Clock;
use semel_core::observe::{Event, Observer, Seldom, What};

/// How often what may come in crowds is worth a line.
const STORE_PAUSE: Duration = Duration::from_secs(10);

/// Writes the log's lines about single requests.
pub(super) struct EventLog {
    clock: Arc<dyn Clock>,
    store: Seldom,
    unguarded: Seldom,
    suspects: Seldom,
}

impl EventLog {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            store: Seldom::every(STORE_PAUSE),
            unguarded: Seldom::every(STORE_PAUSE),
            suspects: Seldom::every(STORE_PAUSE),
        }
    }
}

impl Observer for EventLog {
    fn on(&self, event: &Event<'_>) {
        // What happens with every request has no line, and is out of here at once.
        if !matches!(event.what, What::Granted | What::Replayed { .. } | What::Settled { kept: Kept::Stored, .. }) {
            self.tell(event);
        }
    }
}

impl EventLog {
    #[cold]
    fn tell(&self, event: &Event<'_>) {
        let Event { rule, attempt, .. } = *event;
        let identity = tracing::field::display(event.identity.prefix());
        match event.what {
            What::Settled { kept: Kept::Unknown, .. } => {
                let last = event.last.unwrap_or("nothing was seen");
                tracing::warn!(rule, identity, attempt, "outcome unknown: {last}");
            }
            What::SettlementAbandoned => {
                tracing::warn!(
                    rule,
                    identity,
                    attempt,
                    "outcome unknown: it was not recorded before the time was up or the process ended"
                );
            }
            What::UnknownExpired => {
                tracing::warn!(rule, identity, "an unknown outcome ended unresolved: its key is free again");
            }
            What::LeaseLost => {
                tracing::warn!(rule, identity, attempt, "another owner holds the record while the work runs");
            }
            What::LeaseOverdue => {
                tracing::warn!(rule, identity, attempt, "the lease could not be renewed in time; the work was told");
            }
            What::LateSettlementRefused => {
                tracing::warn!(rule, identity, attempt, "an outcome came too late: the record says otherwise");
            }
            What::Panicked(_) => tracing::error!(rule, identity, attempt, "the work panicked"),
            What::StoreForgot(_) => {
                tracing::warn!(rule, identity, attempt, "the store had lost a claim; it was claimed again");
            }
            What::RecordMissing => {
                tracing::warn!(rule, identity, attempt, "a renewal found no record: the store lost it");
            }
            What::Unguarded(why) => {
                if let Some(withheld) = self.unguarded.next(self.clock.now()) {
                    let why = why.name();
                    tracing::warn!(rule, identity, why, withheld, "ran without a guard, as the rule says open");
                }
            }
            What::Suspect { rejected } => {
                if let Some(withheld) = self.suspects.next(self.clock.now()) {
                    let became = if rejected { "rejected" } else { "it runs" };
                    tracing::warn!(
                        rule,
                        identity,
                        withheld,
                        "equal in all but the key to another request of its caller: {became}"
                    );
                }
            }
            What::BreakerOpened => {
                tracing::warn!("too many calls of the store were not answered: it is asked once a second from now on");
            }
            What::BreakerClosed => tracing::info!("the store answers again"),
            What::StoreLostRecords => {
                tracing::error!(
                    "the store has lost its records (its mark is gone or was made anew): what was recorded before can \
                     run again"
                );
            }
            What::StoreFailed { call, error } => {
                if let Some(withheld) = self.store.next(self.clock.now()) {
                    tracing::warn!(call = call.name(), withheld, "a call of the store failed: {error}");
                }
            }
            _ => {}
        }
    }
}

//! The engine's events, counted.

use semel_core::engine::Kept;
use semel_core::observe::{Event, Observer, StoreCall, What};
use semel_core::refusal::Refusal;

use super::{Metrics, Op, Outcome, Why};

impl Observer for Metrics {
    /// One or two relaxed additions; one look into a map that never changes.
    fn on(&self, event: &Event<'_>) {
        let rule = self.rule(event.rule);
        if is_copy(&event.what) {
            rule.again.asked(event.identity);
            if let Some(gap) = event.took {
                rule.again.after(gap);
            }
        }
        match &event.what {
            What::Granted => {
                if let Some(took) = event.took {
                    self.claim().observe(took);
                }
            }
            What::Replayed { waited: false } => rule.outcome(Outcome::Replayed).add_one(),
            What::Replayed { waited: true } => rule.outcome(Outcome::Waited).add_one(),
            What::Refused(refusal) => rule.outcome(Outcome::refused(refusal)).add_one(),
            What::TurnedAway(problem) => rule.outcome(Outcome::turned_away(problem)).add_one(),
            What::Settled { kept, .. } => {
                rule.outcome(became(kept)).add_one();
                if matches!(kept, Kept::Restored) {
                    self.0.restored.add_one();
                }
            }
            What::Unguarded(why) => rule.unguarded(Why::opened(*why)).add_one(),
            What::SettlementAbandoned => self.0.abandoned.add_one(),
            What::LateSettlementRefused => rule.late.add_one(),
            What::LeaseLost => rule.lease_lost.add_one(),
            What::Overheld => rule.overheld.add_one(),
            What::Panicked(_) => rule.panics.add_one(),
            What::Suspect { .. } => rule.suspects.add_one(),
            What::UnknownExpired => self.0.unknown_expired.add_one(),
            What::StoreFailed { call, .. } => {
                if let Some(op) = op(*call) {
                    self.store_errors(op).add_one();
                }
            }
            What::StoreForgot(_) => self.0.store_forgot.add_one(),
            What::RecordMissing => self.0.missing.add_one(),
            What::BreakerOpened => self.0.breaker_opened.add_one(),
            // Waiting and overdue leases are levels and warnings, not ends: what follows them is counted.
            _ => {}
        }
    }
}

/// Whether a record was asked for again.
fn is_copy(what: &What<'_>) -> bool {
    match what {
        What::Replayed { .. } => true,
        What::Refused(refusal) => matches!(
            refusal,
            Refusal::InFlight { .. }
                | Refusal::Duplicate { .. }
                | Refusal::OutcomeUnknown { .. }
                | Refusal::OutcomeUnavailable { .. }
                | Refusal::Parked { .. }
        ),
        _ => false,
    }
}

fn became(kept: &Kept) -> Outcome {
    match kept {
        Kept::Stored | Kept::Restored => Outcome::Fresh,
        Kept::Released => Outcome::Released,
        Kept::Unknown => Outcome::Unknown,
        Kept::Unrecorded => Outcome::Unrecorded,
        Kept::Lost { .. } => Outcome::Lost,
        _ => Outcome::Other,
    }
}

fn op(call: StoreCall) -> Option<Op> {
    Some(match call {
        StoreCall::Claim => Op::Claim,
        StoreCall::Renew => Op::Renew,
        StoreCall::Settle => Op::Settle,
        StoreCall::Release => Op::Release,
        StoreCall::Get => Op::Get,
        StoreCall::Purge => Op::Purge,
        StoreCall::Health => Op::Health,
        _ => return None,
    })
}

//! The history recorder and the exactly-once checker.
//!
//! Callers report to a [`Collector`] what they ask and what they are told; whoever has the effects reports those: a
//! service with a log of its own, a table without a unique index. The collector lives in the test's own process, which
//! nobody kills. When all is healed and quiet, [`check`] holds the history against what is promised:
//!
//! | property | in words |
//! |---|---|
//! | [`OneEffect`](Property::OneEffect) | at most one effect in each life of an identity |
//! | [`EffectBehindSuccess`](Property::EffectBehindSuccess) | who is told an outcome, or that it was done, is told of an effect that took place |
//! | [`NothingBehindFailure`](Property::NothingBehindFailure) | who is told that nothing was run caused no effect; only definite failures leave none |
//! | [`EqualAnswers`](Property::EqualAnswers) | all outcomes that are told of an identity are equal |
//! | [`OwnQuestion`](Property::OwnQuestion) | another question never gets the answer, nor does another's; and only another question is refused as one, only another's as another's |
//! | [`OutcomeStands`](Property::OutcomeStands) | what was told as recorded is what later callers get |
//! | [`RisingFences`](Property::RisingFences) | fences of an identity rise from effect to effect |
//! | [`Terminal`](Property::Terminal) | nothing is left in flight when all is over |
//! | [`RecordAgrees`](Property::RecordAgrees) | what the store has in the end is what happened and what was told |
//! | [`GuardIsTold`](Property::GuardIsTold) | who is told of a run is told whether it was guarded |
//! | [`Asked`](Property::Asked) | nothing happens that nobody asked for |
//! | [`Tokens`](Property::Tokens) | nothing runs without a token where one is needed, and one that stands is not denied |
//!
//! A life ends where the store loses the identity, and each loss ends one. A loss has a beginning and an end, and so has what
//! is known of a grant: it came after its caller asked and before its effect. Two effects are excused by a loss that can have
//! been between their grants; one before both or after both explains nothing.
//!
//! A promise has limits, and these are counted instead of forbidden: [`Promise`].

mod check;
mod history;
mod lives;
mod promise;
mod report;
#[cfg(test)]
mod tests;

pub use check::check;
pub use history::{Call, Collector, Effect, Last, Loss, Question, Told};
pub use promise::{Fences, Promise};
pub use report::{Doubles, Property, Report, Violation};

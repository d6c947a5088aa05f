//! What an answer says about the effect behind it.

/// The verdict on an answer, as the outcome table or whoever made the answer sees it.
///
/// A service or a proxy that knows more than a status can say puts a `Mark` into the *extensions of its response*; it
/// wins over the table. A proxy that could not connect says [`Mark::NothingSent`], and the guard frees the key; one that
/// sent the request and got no answer says [`Mark::Lost`]. With a [`ProblemKind`](crate::problem::ProblemKind) beside
/// it the guard tells the problem in its own words, with the identity, instead of the answer that carries them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Mark {
    /// The effect took place, or was refused for good: record the answer and replay it.
    Keep,
    /// Known not to have happened; the attempt counts.
    Release,
    /// No byte of the request reached the service; the attempt is given back.
    NothingSent,
    /// Nobody can tell. Never run again by itself.
    Unknown,
    /// The request went out and its answer was lost: the connection broke, or the time was up. Unknown, or free again
    /// where the rule says that a failure leaves nothing behind
    /// ([`Classify::failed`](crate::classify::Classify::failed)).
    Lost,
}

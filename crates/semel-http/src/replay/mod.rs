//! An answer as it is recorded and as it is given again: status, ordered header lines as bytes, body bytes, trailers.

mod encode;
mod fields;

pub(crate) use encode::{Head, encode_head};
pub use fields::ReplayHeaders;

use http::StatusCode;
use semel_core::record::{Format, Outcome};

/// The status of a recorded HTTP answer; `None` for another kind of outcome, or one of a version this program does not know.
#[must_use]
pub fn recorded_status(outcome: &Outcome) -> Option<StatusCode> {
    (outcome.format == Format::HTTP).then(|| Head::decode(outcome.head.clone())).flatten().map(|head| head.status)
}

//! An answer as it is recorded and as it is given again: status, ordered header lines as bytes, body bytes, trailers.

mod encode;
mod fields;

pub(crate) use encode::{Head, encode_head};
pub use fields::ReplayHeaders;

//! What Semel's stores and engine are proved with. For tests only.
//!
//! - [`mod@conformance`]: one suite of cases, the same for every store; [`conformance!`] makes tests of it.
//! - [`clock`]: clocks that a test moves.
//! - [`faults`]: a store that loses replies, fails, waits, and counts its calls.

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod faults;

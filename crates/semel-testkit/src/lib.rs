//! What Semel's stores and engine are proved with. For tests only.
//!
//! - [`mod@conformance`]: one suite of cases, the same for every store; [`conformance!`] makes tests of it.
//! - [`clock`]: clocks that a test moves.
//! - [`faults`]: a store that loses replies, fails, waits, and counts its calls.
//! - [`sim`]: a seeded world of machines, and a store behind a bad network.

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod faults;
pub mod sim;

//! What Semel's stores and engine are proved with. For tests only.
//!
//! - [`mod@conformance`]: one suite of cases, the same for every store; [`conformance!`] makes tests of it.
//! - [`checker`]: what callers were told and what took place, held against what is promised.
//! - [`clock`]: clocks that a test moves.
//! - [`faults`]: a store that loses replies, fails, waits, and counts its calls.
//! - `memory` (a feature): what something takes in memory.
//! - `servers` (a feature): real servers, private to a test.
//! - [`sim`]: a seeded world of machines, and a store behind a bad network.

pub mod checker;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod faults;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "servers")]
pub mod servers;
pub mod sim;

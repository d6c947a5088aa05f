//! The engine under simulated time: thousands of seeded worlds, and interleavings that shuttle chooses.

mod client;
mod interleaving;
mod ledger;
mod regressions;
mod simulation;

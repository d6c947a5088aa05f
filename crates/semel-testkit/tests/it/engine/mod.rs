//! The engine under simulated time: thousands of seeded worlds, and interleavings that shuttle chooses.

mod client;
mod crowd;
mod interleaving;
mod kinds;
mod regressions;
mod reports;
mod simulation;

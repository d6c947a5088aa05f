//! Gateways before one store and one service, and whatever can happen to them: each is killed, paused and cut off, replies
//! are lost, stores restart and forget. Callers report to the checker of `semel-testkit`, and so does the service; when all
//! is healed and quiet, the history is held against what is promised.
//!
//! `SEMEL_TEST_SEED` repeats the order of the faults of a run that failed (not its timing); `SEMEL_TEST_SCALE=10` makes
//! each run ten times longer.
#![expect(clippy::unwrap_used, reason = "tests, and what only they call")]

mod alone;
mod apart;
mod backing;
mod calls;
mod cluster;
mod end;
mod fates;
mod field;
mod load;
mod mariadb;
mod network;
mod postgres;
mod redis;
mod sentinel;
mod standby;
mod storms;
mod told;

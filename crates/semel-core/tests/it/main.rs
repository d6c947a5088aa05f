//! The engine under paused time: every test is deterministic and takes milliseconds, whatever its hours.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking; most of these are in functions that tests share")]

mod beside;
mod bounds;
mod breaker;
mod claiming;
mod drain;
mod forgotten;
mod inline;
mod keeping;
mod leaving;
mod observed;
mod open;
mod renewals;
mod running;
mod settling;
mod shared;
mod stage;
mod store_loss;
mod strays;
mod tier;
mod timeouts;
mod waiting;

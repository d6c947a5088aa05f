//! The guard in front of small services, in process.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod admission;
mod bodies;
mod copies;
mod cors;
mod documents;
mod large;
mod leaving;
mod log;
mod mismatch;
mod outage;
mod outcomes;
mod replays;
mod room;
mod routers;
mod support;
mod suspects;

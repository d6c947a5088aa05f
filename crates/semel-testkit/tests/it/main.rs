//! The suite against the memory store, and the suite itself against stores that are wrong.

mod memory;

//! The suite against the memory store, and the suite itself against stores that are wrong.

mod engine;
mod faults;
mod memory;
mod mutants;
mod snippets;
mod table;

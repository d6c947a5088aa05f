//! PostgreSQL: the conformance suite straight and through a transaction pooler, and what only this store has to show.

mod asking;
mod audit;
mod bed;
mod changes;
#[path = "../../../src/postgres/codes.rs"]
mod codes;
mod conformance;
mod counted;
mod errors;
mod growth;
mod marks;
mod migrations;
mod mutants;
mod servers;
mod waking;

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
mod lost_replies;
mod marks;
mod migrations;
mod mutants;
mod second_look;
mod servers;
mod waking;

//! PostgreSQL: the conformance suite straight and through a transaction pooler, and what only this store has to show.

mod bed;
mod conformance;

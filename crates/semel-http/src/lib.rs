//! Semel as a tower layer.

mod mark;

pub use mark::Mark;

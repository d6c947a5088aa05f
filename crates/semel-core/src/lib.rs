//! The engine of Semel.

//! The HTTP gateway of Semel.

pub mod config;
pub mod forward;
pub mod pool;
pub mod serve;
mod signal;
pub mod wiring;

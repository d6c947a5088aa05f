//! The commands behind the one binary `semel`.
//!
//! Each command is a module with an `Args` (its flags) and a `run` that ends in an [`exit::Exit`]; `main.rs` only maps
//! one to the other. What a command finds out goes to stdout, what it says about itself to stderr.

pub mod address;
pub mod check;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod exit;
pub mod gateway;
pub mod keys;
mod logs;
pub mod migrate;
mod progress;
pub mod prove;
pub mod span;
pub mod stop;
pub mod term;

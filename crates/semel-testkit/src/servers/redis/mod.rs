//! Private Redis servers: one alone, a set under Sentinel, a Cluster.

mod cluster;
mod monitor;
mod resp;
mod sentinels;
mod server;

pub use cluster::Cluster;
pub use monitor::Monitor;
pub use resp::{Said, ask};
pub use sentinels::{PRIMARY_NAME, Sentinels, Ways};
pub use server::{Redis, Setup, is_modern};

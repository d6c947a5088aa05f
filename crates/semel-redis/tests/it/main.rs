//! The store on real servers.

mod alone;
mod beds;
mod calls;
mod changes;
mod cluster;
#[path = "../../src/verdict/codes.rs"]
mod codes;
mod damaged;
mod errors;
mod held;
mod inspected;
mod lossy;
mod marks;
mod mutants;
mod parts;
mod purge;
mod questions;
mod reckoned;
mod recover;
mod refusals;
mod replicas;
mod room;
mod sentinel;
#[cfg(feature = "tls")]
mod tls;
mod users;
mod wake;

//! The store on real servers.

mod alone;
mod beds;
mod cluster;
mod sentinel;

//! The store on a MariaDB of these tests' own.

mod audit;
mod calls;
mod conformance;
mod cost;
mod errors;
mod growth;
mod locks;
mod lost_replies;
mod mutants;
mod opening;
pub(crate) mod place;
mod restart;

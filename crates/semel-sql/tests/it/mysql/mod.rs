//! The store on a MariaDB of these tests' own.

mod audit;
mod calls;
mod conformance;
mod cost;
mod errors;
mod locks;
mod lost_replies;
mod mutants;
mod opening;
mod place;
mod restart;

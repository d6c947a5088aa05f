//! The store on a MariaDB of these tests' own.

mod audit;
mod autocommit;
mod calls;
mod compared;
mod conformance;
mod cost;
mod errors;
mod growth;
mod locks;
mod lost_replies;
mod mutants;
#[path = "../../../src/mysql/numbers.rs"]
mod numbers;
mod opening;
pub(crate) mod place;
mod restart;

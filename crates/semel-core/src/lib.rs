//! The engine of Semel: **many identical requests, one effect.** No network and no disk in this crate.
//!
//! - [`identity`]: what makes two requests the same intent; [`fingerprint`]: what was asked.
//! - [`record`]: the one record that serves every entrance.
//! - [`store`]: the contract with whatever keeps records, and the memory store; [`transition`]: its exact meaning.
//! - [`judge`]: what a record that is there already means to the one who asks.
//! - [`env`]: the one seam to the outside.

pub mod env;
pub mod fingerprint;
pub mod identity;
mod ids;
pub mod judge;
pub mod record;
pub mod store;
pub mod transition;

pub use ids::{Fence, Owner, StoreTime};

//! The engine of Semel: **many identical requests, one effect.** No network and no disk in this crate.
//!
//! - [`identity`]: what makes two requests the same intent; [`fingerprint`]: what was asked.
//! - [`record`]: the one record that serves every entrance.
//! - [`store`]: the contract with whatever keeps records, and the memory store; [`transition`]: its exact meaning.
//! - [`judge`]: what a record that is there already means to the one who asks.
//! - [`engine`]: claim, execute, settle, with a [`policy`]; what callers are refused with: [`refusal`].
//! - [`observe`]: typed events.
//! - [`mod@env`]: the one seam to the outside.
//! - `testing` (feature `testing`): time that a test moves, and `assert_once`.

pub mod engine;
pub mod env;
pub mod fingerprint;
pub mod identity;
mod ids;
pub mod judge;
pub mod lanes;
pub mod observe;
mod pinned;
pub mod policy;
pub mod record;
pub mod refusal;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transition;

pub use ids::{Fence, Owner, StoreTime};
pub use pinned::{boxed, pinned};

//! Health, readiness and metrics on an address of their own: a library, for the gateway and for applications alike.
//!
//! - [`Metrics`]: typed handles, made once, fed by the engine's events ([`semel_core::observe::Observer`]) and by [`Measured`], which
//!   times a store's calls.
//! - [`Readiness`]: whether this process should get traffic, and why not.
//! - [`router`] and [`Listener`]: `/healthz`, `/readyz`, `/metrics`. Loopback only: there is no token and no mTLS yet.

mod census;
mod measured;
pub mod metrics;
mod ready;
mod server;

pub use census::Counts;
pub use measured::Measured;
pub use metrics::Metrics;
pub use ready::{Readiness, Reason};
pub use server::{BindError, Listener, router};

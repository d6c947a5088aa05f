//! The HTTP gateway of Semel, as a library; the command `semel gateway` only reads flags and prints.
//!
//! - [`config`]: `semel.toml`, checked and explained.
//! - [`serve`]: what comes in: connections, limits, what is refused before anything else sees it, the drain.
//! - [`forward`] and [`pool`]: what goes out: heads written anew, connections that are kept, what is known of a failure.
//! - [`named`]: files that people name, read up to a limit.
//! - [`probe`]: what the way to the gateway does to a request, for whoever has the secret.
//! - [`stores`]: the store that a configuration names.
//! - [`wiring`]: all of it and the guard of `semel-http` put together from a configuration.

pub mod config;
pub mod forward;
pub mod named;
pub mod pool;
pub mod probe;
pub mod serve;
mod signal;
pub mod stores;
pub mod wiring;

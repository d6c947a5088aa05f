//! The gateway: its file, and its transport against upstreams and clients that speak bytes.
#![expect(clippy::disallowed_methods, reason = "tests run their own peers beside the server")]
#![expect(clippy::unwrap_used, reason = "the helpers are tests, too")]

mod bodies;
mod config;
mod crowd;
mod drain;
mod entire;
mod failures;
mod half_closed;
mod limits;
mod manners;
mod marks;
mod payments;
mod peers;
mod reuse;
mod settings;
mod slow_bodies;
mod smuggling;
mod store_tls;
mod upgrade;

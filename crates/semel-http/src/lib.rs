//! Semel as a tower layer: **many identical requests, one effect**, for any HTTP service.
//!
//! A client sends an `Idempotency-Key` with each intent and the same one with each retry. The guard runs the inner service
//! once per intent; every later copy gets the recorded answer, a copy of something under way waits for it, and what
//! nobody can know is never run again by itself.
//!
//! Five lines in axum (feature `axum`):
//!
//! ```no_run
//! use axum::{Router, http::HeaderName, routing::post};
//! use semel_core::engine::Engine;
//! use semel_http::{GuardLayer, Rule, principal::trusted_header};
//! # async fn create() {}
//! # async fn example(listener: tokio::net::TcpListener) -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::memory();
//! let rule = Rule::key().payment().principal(trusted_header(HeaderName::from_static("x-user"))).build()?;
//! let app = Router::new().route("/orders", post(create)).route_layer(GuardLayer::new(engine.clone(), rule));
//! // Without a shutdown the server never ends, and the next line is never reached.
//! axum::serve(listener, app).with_graceful_shutdown(async { _ = tokio::signal::ctrl_c().await }).await?;
//! engine.drain(std::time::Duration::from_secs(10)).await; // what still runs, its client gone, comes to its end
//! # Ok(())
//! # }
//! ```
//!
//! `x-user` is set by the authenticating proxy in front. On a store that forgets at its end, as this one does, a rule with
//! [`payment`](RuleBuilder::payment) says so in the log.
//!
//! # Where it stands
//!
//! Limits, authentication, authorisation, **the guard**, the operation log, the handler. A replay passes the same checks
//! as a fresh call, and is no line in the business's log. The example `layer_order` shows it.
//!
//! # What passes and what is guarded
//!
//! Safe methods and CONNECT stream through untouched. Other requests are guarded if they carry a key; without one,
//! [`MissingKey`] decides. The request's body is read whole, up to a cap and within a time ([`Bodies`]), before anything is claimed: a client that
//! leaves earlier has claimed nothing, one that leaves later does not stop the work. Answers are recorded up to a cap;
//! larger ones are passed on while they come and recorded without their body, and so are `text/event-stream` answers.
//!
//! # What an answer means
//!
//! [`classify::Outcomes`] is the table. A service that knows better says so with a [`Mark`] in its response's extensions
//! or, from behind a proxy, with `Semel-Outcome: keep | release | unknown`.
//!
//! # What the service sees
//!
//! The key's header field as it came, and `Semel-Identity`, `Semel-Fence`, `Semel-Attempt`; the same names from clients
//! are removed. In the request's extensions is the [`Run`](semel_core::engine::Run) it belongs to (with
//! [`GuardLayer::proxied`] only in its body).
//!
//! # Cost
//!
//! What passes is polled in place. A guarded request is boxed, and polled by the server that waits for its answer; it
//! moves into a task of the engine where the client leaves, or where its answer goes ahead. It costs two calls of the
//! store when fresh and one when it is a duplicate.

pub mod classify;
mod cors;
pub mod fingerprint;
pub mod key;
mod layer;
mod mark;
pub mod names;
pub mod path;
pub mod principal;
pub mod problem;
mod replay;
mod rule;
mod suspect;
mod time;
mod view;

pub use cors::{BadOrigin, Cors};
pub use layer::{Bodies, BoxError, Guard, GuardLayer, HeldBodies, Overdue, RequestBody, ResponseBody, ResponseFuture};
pub use mark::Mark;
pub use replay::{ReplayHeaders, recorded_status};
pub use rule::{Caps, Methods, MissingKey, RejectStatus, Rule, RuleBuilder, RuleError, Rules};
pub use suspect::Suspect;
pub use view::RequestView;

/// The Rust of the project's README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

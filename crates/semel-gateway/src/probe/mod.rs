//! Requests that `semel doctor --through` sends from outside, to learn what the way to the gateways does to a request.
//!
//! A request whose path ends in [`PATH`] is the gateway's own, whatever its method: no rule and no service ever sees one, so
//! a probe has no effect. What it says is told to nobody but a holder of the deployment's secret: the question carries a
//! [`Mark`] made with it, and the answer a seal.
//!
//! Copies of one probe run once, like copies of any request: each is claimed in the gateway's own store. What ran where says
//! whether gateways share one.

mod answer;
mod mark;
mod report;
mod service;

pub use self::mark::{ASK, BadMark, Mark, Wish};
pub use self::report::{Broken, Field, Report, Saw, StoreSeen, Took};
pub(crate) use self::service::{Host, Probing};

/// How the path of a probe ends.
pub const PATH: &str = "/.semel-probe";

/// Whether a request is the gateway's own.
pub(crate) fn is_ours(path: &str) -> bool {
    path.ends_with(PATH)
}

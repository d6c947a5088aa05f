//! From a configuration to a running gateway.

mod engine;
mod events;
mod orphans;
mod own_upstream;
#[cfg(test)]
mod presets;
mod reach;
mod rules;
mod stack;
mod start;
mod transport;

pub use start::{Gateway, Stopped, start};

use std::fmt;
use std::net::SocketAddr;

use semel_core::store::Finding;

use crate::pool::AddressError;
use crate::serve::BindError;
use crate::stores::OpenError;

/// Why a gateway could not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The store cannot be opened.
    Store(OpenError),
    /// The store works, and keeps less than a rule asks of it; each finding has its cure.
    Unfit(Vec<Finding>),
    /// A rule that the file's checks let pass, and the guard does not take.
    Rule(String, String),
    /// An upstream that the file's checks let pass, and the pool does not take.
    Upstream(String, AddressError),
    /// An upstream that leads to the gateway itself.
    OwnUpstream {
        /// The upstream's name in the file.
        upstream: String,
        /// Its address as it was given.
        url: String,
        /// The gateway's address that it leads to.
        own: SocketAddr,
    },
    /// The address for requests cannot be used.
    Listen(BindError),
    /// The admin address cannot be used.
    Admin(semel_admin::BindError),
    /// The system refused a thread or a runtime.
    System(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Unfit(findings) => {
                let told: Vec<_> = findings.iter().map(Finding::to_string).collect();
                f.write_str(&told.join("\n"))
            }
            Self::Rule(name, why) => write!(f, "rule `{name}`: {why}"),
            Self::Upstream(name, why) => write!(f, "upstream `{name}`: {why}"),
            Self::OwnUpstream { upstream, url, own } => write!(
                f,
                "this gateway would be its own upstream: `{upstream}` is {url}, and the gateway listens on {own}, so every \
                 request would come back to it. Name the service's address, or listen on another port"
            ),
            Self::Listen(error) => error.fmt(f),
            Self::Admin(error) => error.fmt(f),
            Self::System(error) => write!(f, "the system refused a thread or a runtime: {error}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Upstream(_, error) => Some(error),
            Self::Listen(error) => Some(error),
            Self::Admin(error) => Some(error),
            Self::System(error) => Some(error),
            Self::Rule(..) | Self::Unfit(_) | Self::OwnUpstream { .. } => None,
        }
    }
}

//! Where requests go: an address with all that was found out about it beforehand.

use std::net::SocketAddr;
use std::sync::Arc;

use super::target::Target;
use super::trust::{Secure, Trust};

/// A target, its addresses, and how its server is believed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Place {
    /// What was asked for.
    pub target: Arc<Target>,
    pub(crate) addresses: Arc<[SocketAddr]>,
    pub(crate) secure: Option<Secure>,
}

impl Place {
    /// Resolves the target once, so that a round does not measure the resolver.
    ///
    /// # Errors
    /// In words: the name does not resolve; https:// on a machine that trusts nobody.
    pub async fn find(target: Target, trust: &Trust) -> Result<Self, String> {
        let secure = trust.secure(&target)?;
        let addresses = target.resolve().await?.into();
        Ok(Self { target: Arc::new(target), addresses, secure })
    }
}

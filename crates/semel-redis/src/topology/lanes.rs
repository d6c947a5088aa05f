//! A connection for each runtime that calls.
//!
//! A connection is served by a task of the runtime that made it. A gateway has a runtime for each core: on another core's
//! connection each call wakes a second thread, and each answer wakes the first one again, two system calls and two switches
//! more than the call itself takes.

use std::{fmt, sync::Arc};

use parking_lot::RwLock;
use tokio::runtime::{Handle, Id};

use crate::{
    address::Host,
    link::{Dialer, Link, Target},
};

/// More than any machine has cores: runtimes that are gone are forgotten then, and with them those that are not, which connect
/// again.
const MOST: usize = 256;

/// One server, and the connections to it.
pub(crate) struct Lanes {
    dialer: Arc<Dialer>,
    target: Target,
    /// As many as there are runtimes: few, so that looking at all costs less than hashing.
    links: RwLock<Vec<(Option<Id>, Arc<Link>)>>,
}

impl Lanes {
    pub(super) fn new(dialer: Arc<Dialer>, target: Target) -> Self {
        Self { dialer, target, links: RwLock::default() }
    }

    pub(super) fn to_node(dialer: Arc<Dialer>, host: Host) -> Self {
        Self::new(dialer, Target::Node(host))
    }

    /// That of the caller's runtime.
    pub(super) fn here(&self) -> Arc<Link> {
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        let of = |links: &[(Option<Id>, Arc<Link>)]| {
            links.iter().find(|(id, _)| *id == here).map(|(_, link)| Arc::clone(link))
        };
        if let Some(link) = of(&self.links.read()) {
            return link;
        }
        let mut links = self.links.write();
        if let Some(link) = of(&links) {
            return link;
        }
        if links.len() == MOST {
            links.clear();
        }
        let link = Link::new(Arc::clone(&self.dialer), self.target.clone());
        links.push((here, Arc::clone(&link)));
        link
    }

    /// Gives all connections up: the server is not the one to talk to any more.
    pub(super) fn hang_up(&self) {
        for (_, link) in &*self.links.read() {
            link.hang_up();
        }
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.links.read().iter().map(|(_, link)| link)).finish()
    }
}

//! What a rule that looks for suspects does when a request is about to run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use semel_core::observe::{Event, What};

use super::admit::Ticket;
use crate::suspect::{Asked, Suspect};

/// A run that its rule remembers. Dropped, it has ended.
pub(super) struct Watched {
    ticket: Arc<Ticket>,
    asked: Asked,
    left_nothing: AtomicBool,
}

/// The run may begin, and is remembered; or it is refused as a suspect for that long.
#[inline(never)]
pub(super) fn begin(ticket: &Arc<Ticket>, asked: &Asked) -> Result<Option<Box<Watched>>, Duration> {
    let Some(suspects) = &ticket.rule.suspects else { return Ok(None) };
    let engine = &ticket.shared.engine;
    if let Some(left) = suspects.begin(*asked, &ticket.identity, engine.env().clock.now()) {
        let rejected = suspects.what == Suspect::Reject;
        engine.tell(&Event::new(&ticket.identity, ticket.rule.name(), What::Suspect { rejected }));
        if rejected {
            return Err(left);
        }
    }
    let ticket = Arc::clone(ticket);
    Ok(Some(Box::new(Watched { ticket, asked: *asked, left_nothing: AtomicBool::new(false) })))
}

impl Watched {
    /// Nothing took effect.
    pub(super) fn leaves_nothing(&self) {
        self.left_nothing.store(true, Relaxed);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let Ticket { shared, rule, identity, .. } = &*self.ticket;
        if let Some(suspects) = &rule.suspects {
            suspects.end(self.asked, identity, shared.engine.env().clock.now(), self.left_nothing.load(Relaxed));
        }
    }
}

//! When all is healed: what became of each order in the end.

use std::{sync::Arc, time::Duration};

use semel_testkit::{
    checker::{Last, Promise, Told},
    sim::Seeded,
};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{
    backing::Backing,
    field::{Field, HURRY, LEASE},
    load::{Callers, QUESTIONS},
};

/// What a caller may be told, instead of its outcome, of an order that is done: nothing was run, for a reason of the moment,
/// or the connection broke.
pub(super) const AFTER_SUCCESS: &[&str] = &["store-unavailable", "store-full", "not connected", "broken off", "left"];

/// The same where the disk gets full: an outcome for which there was no room is recorded without its body.
const AFTER_SUCCESS_FULL: &[&str] =
    &["store-unavailable", "store-full", "not connected", "broken off", "left", "outcome-unavailable"];

/// On a shared store, in trouble: a copy that joined a question to which the store then did not answer, or that lost a race
/// for a row time and again, is told that somebody is at it. So is one that waited for as long as copies wait.
pub(super) const SHARED: Promise = Promise {
    in_trouble: &["in-flight"],
    patience: HURRY.saturating_sub(Duration::from_millis(100)),
    lingers: LEASE,
    ..Promise::strict(AFTER_SUCCESS)
};

/// The same where the disk gets full.
pub(super) const SHARED_FULL: Promise = Promise { after_success: AFTER_SUCCESS_FULL, ..SHARED };

/// What callers are told in every run with faults in it.
pub(super) const SEEN: &[&str] = &["fresh", "replayed", "waited", "in-flight", "key-reused", "outcome-unknown", "left"];

/// The same where the disk gets full.
pub(super) const SEEN_FULL: &[&str] =
    &["fresh", "replayed", "waited", "in-flight", "key-reused", "outcome-unknown", "left", "store-full"];

/// The same where the rule says to run without the store.
pub(super) const SEEN_OPEN: &[&str] = &["fresh", "replayed", "waited", "in-flight", "key-reused", "left", "bypassed"];

/// How many are asked about at once.
const AT_ONCE: usize = 16;

/// Longer than a lease, what a waiter waits and what the slowest order takes.
const PATIENCE: Duration = Duration::from_secs(20);

impl<B: Backing> Field<B> {
    /// Asks about every order until it is in no state that ends by itself, and tells the collector.
    pub(super) async fn end(&self, random: &Seeded) {
        let seats = Arc::new(Semaphore::new(AT_ONCE));
        let mut asking = JoinSet::new();
        for order in self.callers.orders() {
            let seat = Arc::clone(&seats).acquire_owned().await.expect("it is never closed");
            let (callers, random) = (self.callers.clone(), random.fork());
            asking.spawn(async move {
                let last = last(&callers, order, &random).await;
                callers.collector.last(format!("order-{order}"), last);
                drop(seat);
            });
        }
        asking.join_all().await;
    }
}

async fn last(callers: &Callers, order: u64, random: &Seeded) -> Last {
    let pause = Duration::from_millis(100);
    let mut said = None;
    // The question that ran is not known here: the wrong one is refused, and tells nothing.
    for n in 0..PATIENCE.as_millis() / pause.as_millis() {
        let question = QUESTIONS[usize::from(n % 2 == 1)];
        said = callers.ask("the end", order, question, None, random).await;
        match said.as_ref().map(|(told, label)| (told, label.as_str())) {
            Some((Told::Fresh(value) | Told::Replayed(value), _)) => return Last::Done(Some(value.clone())),
            Some((_, "outcome-unknown")) => return Last::Unknown,
            Some((_, "outcome-unavailable")) => return Last::Done(None),
            Some((_, "parked")) => return Last::Parked,
            Some((Told::Mismatch, _)) => {}
            _ => tokio::time::sleep(pause).await,
        }
    }
    assert_eq!(said.map(|(_, label)| label).as_deref(), Some("in-flight"), "order {order}");
    Last::InFlight
}

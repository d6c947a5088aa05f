//! What people change is told to whoever remembers, in every process.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use semel_core::store::{Changes, Store};
use tokio::{sync::Notify, time::timeout};

use super::prelude::*;

/// How long a store may take to tell: not what it takes, but what no machine that is merely busy needs.
const AT_LAST: Duration = Duration::from_secs(120);

/// What an engine would be told.
#[derive(Default)]
struct Spy {
    told: Mutex<Told>,
    more: Notify,
}

#[derive(Default)]
struct Told {
    changed: BTreeSet<[u8; 32]>,
    missed: usize,
}

impl Changes for Spy {
    fn changed(&self, digest: &[u8; 32]) {
        self.told.lock().changed.insert(*digest);
        self.more.notify_one();
    }

    fn missed(&self) {
        self.told.lock().missed += 1;
        self.more.notify_one();
    }
}

impl Spy {
    fn of(store: &dyn Store) -> Arc<Self> {
        let spy = Arc::new(Self::default());
        let changes: Arc<dyn Changes> = Arc::clone(&spy) as _;
        let weak: Weak<dyn Changes> = Arc::downgrade(&changes);
        store.tell_changes(weak);
        spy
    }

    /// Waits until it was told enough.
    async fn until(&self, is_enough: impl Fn(&Told) -> bool) {
        let waits = async {
            while !is_enough(&self.told.lock()) {
                self.more.notified().await;
            }
        };
        timeout(AT_LAST, waits).await.expect("it is told");
    }
}

pub async fn what_people_change_is_told_to_every_client<B: Bed>(s: &Stage<B>) {
    let other = s.bed.client().await;
    let spies = [Spy::of(&*s.store), Spy::of(&*other)];
    let tells = s.store.facts().tells_changes;
    if tells {
        for spy in &spies {
            // Whoever begins to listen has missed what came before.
            spy.until(|told| told.missed > 0).await;
        }
    }
    let (done_with, unclear, failed_one) = (s.hold(1).await, s.hold(2).await, s.hold(3).await);
    stands(s.settle(&done_with, done("x")).await);
    stands(s.settle(&unclear, nobody_knows()).await);
    stands(s.settle(&failed_one, nobody_knows()).await);
    let _ = s.store.issue(&token(4)).await.expect("the store works");
    let running = s.hold(5).await;
    // What is refused has changed nothing.
    assert!(!s.store.delete(&id(5), StateCode::Done).await.expect("the store works"));
    assert!(!s.store.withdraw(&id(1)).await.expect("the store works"));
    assert!(s.store.delete(&id(1), StateCode::Done).await.expect("the store works"));
    resolved(s.resolve(&s.the_record(2).await, 2, completed()).await);
    resolved(s.resolve(&s.the_record(3).await, 3, failed()).await);
    assert!(s.store.withdraw(&id(4)).await.expect("the store works"));
    let changed: BTreeSet<_> = (1..=4).map(|n| *id(n).digest()).collect();
    for spy in &spies {
        if tells {
            spy.until(|told| told.changed.len() >= changed.len()).await;
            assert_eq!(spy.told.lock().changed, changed);
        } else {
            assert!(spy.told.lock().changed.is_empty(), "a store that tells says so in its facts");
        }
    }
    stands(s.settle(&running, done("x")).await);
}

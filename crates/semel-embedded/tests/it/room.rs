//! Room on the disk is given back when records have ended, and bounded while some live on.

use std::{fs, path::Path, sync::Arc, time::Duration};

use semel_core::{
    env::Env,
    record::StateCode,
    store::{Store, StoreAdmin},
};
use semel_embedded::{EmbeddedStore, Options};
use semel_testkit::clock::ManualClock;

use crate::keys::{HOUR, ask, claim, done, now, options, quick_dir, record};

const SEGMENT: u64 = 16 << 10;

fn open(dir: &Path, clock: &ManualClock) -> EmbeddedStore {
    let env = Env { clock: Arc::new(clock.clone()), ..Env::system() };
    EmbeddedStore::open(dir, &env, &Options { segment: SEGMENT, ..options() }).unwrap()
}

fn run(store: &EmbeddedStore, n: u64) {
    drop(now(store.settle(&claim(store, &ask(n, 0)), &done(7, 100))).unwrap());
}

fn segments(dir: &Path) -> usize {
    let names = fs::read_dir(dir.join("journal")).unwrap().map(|e| e.unwrap().path());
    names.filter(|p| p.extension().is_some_and(|e| e == "log")).count()
}

/// Purges, as a sweeper does, until so few segments are there; nothing else is called.
fn sweep_until(store: &EmbeddedStore, most: usize) {
    for _ in 0..1_000 {
        while now(store.purge(100)).unwrap().removed > 0 {}
        if segments(store.dir()) <= most {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    panic!("{} segments are left", segments(store.dir()));
}

#[test]
fn an_idle_store_gives_its_room_back_when_its_records_have_ended() {
    let (dir, clock) = (quick_dir(), ManualClock::new());
    let store = open(dir.path(), &clock);
    (0..500).for_each(|n| run(&store, n));
    assert!(segments(dir.path()) > 10);
    clock.advance(2 * HOUR);
    sweep_until(&store, 1);
    assert_eq!(now(store.health()).unwrap().records, Some(0));
    drop(store);
    let store = open(dir.path(), &clock);
    assert!(record(&store, 1).is_none());
    run(&store, 1);
}

#[test]
fn what_lives_on_among_ended_records_is_kept_and_takes_little_room() {
    let (dir, clock) = (quick_dir(), ManualClock::new());
    let store = open(dir.path(), &clock);
    // One in thirty is still in flight when the others have ended.
    let running: Vec<_> = (0..20)
        .map(|n| {
            (0..29).for_each(|i| run(&store, 1_000 + n * 29 + i));
            claim(&store, &ask(n, 0))
        })
        .collect();
    clock.advance(HOUR + HOUR / 2);
    sweep_until(&store, 7);
    for claim in &running[..10] {
        drop(now(store.settle(claim, &done(9, 10))).unwrap());
    }
    drop(store);
    let store = open(dir.path(), &clock);
    for n in 0..20 {
        let expected = if n < 10 { StateCode::Done } else { StateCode::InFlight };
        assert_eq!(record(&store, n).unwrap().state, expected, "{n}");
    }
}

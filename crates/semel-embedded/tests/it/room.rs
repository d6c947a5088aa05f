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

/// Calls nothing until so few segments are there.
fn wait_until(dir: &Path, most: usize) {
    for _ in 0..2_000 {
        if segments(dir) <= most {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    panic!("{} segments are left", segments(dir));
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

/// It was said as of the last look for room: who asked twice got two numbers although nothing had been written in between.
#[test]
fn what_a_store_takes_is_said_as_it_is() {
    // The clock stands still: nobody looks.
    let (dir, env) = (quick_dir(), Env { clock: Arc::new(ManualClock::new()), ..Env::system() });
    let options = Options { reserve: 0, headroom: 1 << 20, ..Options::default() };
    let store = EmbeddedStore::open(dir.path(), &env, &options).unwrap();
    let bytes = || now(store.health()).unwrap().bytes.unwrap();
    let mut before = bytes();
    for n in 0..5 {
        run(&store, n);
        let after = bytes();
        assert!(after > before + 200, "a claim and an outcome of 100 bytes: {before}, then {after}");
        assert_eq!(bytes(), after);
        before = after;
    }
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

/// `semel keys purge` on a stopped store said how many records it had removed, and the next process had them all again.
#[test]
fn what_was_purged_is_not_there_for_the_next_process() {
    let (dir, clock) = (quick_dir(), ManualClock::new());
    let store = open(dir.path(), &clock);
    // In one segment with a record that stays.
    let _running = claim(&store, &ask(0, 0));
    (1..50).for_each(|n| run(&store, n));
    drop(store);
    clock.advance(HOUR + HOUR / 2);
    let store = open(dir.path(), &clock);
    assert_eq!(now(store.purge(1_000)).unwrap().removed, 49);
    drop(store);
    let store = open(dir.path(), &clock);
    assert_eq!(now(store.health()).unwrap().records, Some(1));
    assert_eq!(now(store.purge(1_000)).unwrap().removed, 0);
    assert_eq!(record(&store, 0).unwrap().state, StateCode::InFlight);
}

/// A gateway that was started again more often than its sweeper ran gave nothing back, ever.
#[test]
fn a_start_gives_back_what_ended_before_it_though_nobody_asks() {
    let (dir, clock) = (quick_dir(), ManualClock::new());
    let store = open(dir.path(), &clock);
    (0..500).for_each(|n| run(&store, n));
    drop(store);
    assert!(segments(dir.path()) > 10);
    clock.advance(2 * HOUR);
    let store = open(dir.path(), &clock);
    wait_until(dir.path(), 1);
    // What the store did by itself is told to the next who asks.
    assert_eq!(now(store.purge(1_000)).unwrap().removed, 500);
    assert_eq!(now(store.purge(1_000)).unwrap().removed, 0);
}

/// What lives on was copied out of old segments a little with each batch, and an idle store writes none: it gave back a
/// segment a minute.
#[test]
fn one_purge_is_enough_for_an_idle_store_to_give_back_all_that_it_wastes() {
    let (dir, clock) = (quick_dir(), ManualClock::new());
    let store = open(dir.path(), &clock);
    let _running: Vec<_> = (0..60)
        .map(|n| {
            (0..29).for_each(|i| run(&store, 1_000 + n * 29 + i));
            claim(&store, &ask(n, 0))
        })
        .collect();
    assert!(segments(dir.path()) > 40);
    clock.advance(HOUR + HOUR / 2);
    assert_eq!(now(store.purge(10_000)).unwrap().removed, 60 * 29);
    wait_until(dir.path(), 7);
    for n in 0..60 {
        assert_eq!(record(&store, n).unwrap().state, StateCode::InFlight, "{n}");
    }
}

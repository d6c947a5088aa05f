//! What is answered when, and what is there after the end of the process or a power cut.

use semel_core::{
    record::StateCode,
    store::{Filter, Issued, NewToken, Resolution, Resolved, StoreAdmin, Target},
};

use super::*;
use crate::{Power, disk::faulty::Fault};

#[test]
fn an_answered_claim_and_completion_survive_a_power_cut() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &options());
    run(&store, 1, 10, MINUTE);
    let running = claim(&store, &ask(2, 0));
    let disk = disk.after(true);
    let store = on(&disk, &clock, &options());
    assert_eq!(found(&store, &ask(1, 1)).state, StateCode::Done);
    let left = found(&store, &ask(2, 1));
    assert_eq!((left.state, left.fence), (StateCode::InFlight, Some(running.fence())));
    assert_eq!(left.reads_as(store.shared.now()), StateCode::Unknown);
    // The one who ran it may still say how it ended.
    settle(&store, &running, &done(1, MINUTE));
    assert_eq!(found(&store, &ask(2, 1)).state, StateCode::Done);
}

#[test]
fn with_process_durability_a_power_cut_turns_a_completion_into_unknown_and_no_less() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let process = Options { durability: Power::Process, ..options() };
    let store = on(&disk, &clock, &process);
    run(&store, 1, 10, MINUTE);
    assert_eq!(disk.counts(), (2, 1));
    let after_kill = on(&disk.after(false), &clock, &process);
    assert_eq!(found(&after_kill, &ask(1, 1)).state, StateCode::Done);
    let after_cut = on(&disk.after(true), &clock, &process);
    assert_eq!(found(&after_cut, &ask(1, 1)).reads_as(after_cut.shared.now()), StateCode::Unknown);
}

fn token(n: u64) -> NewToken {
    NewToken { identity: identity(n), ttl: MINUTE, max_life: MINUTE, rest: Rest::write(&meta(), &Payload::Nothing) }
}

/// Whoever was told of a token may come with it, whatever happened in between.
#[test]
fn an_issued_token_survives_a_power_cut_and_is_claimed_once() {
    for durability in [Power::Power, Power::Process] {
        let (disk, clock) = (Faulty::new(), Hands::at(1_000));
        let options = Options { durability, ..options() };
        let store = on(&disk, &clock, &options);
        assert!(matches!(now(store.issue(&token(1))), Ok(Issued::Issued { .. })));
        assert_eq!(disk.counts(), (1, 1), "{durability:?}: synced before its answer");
        let disk = disk.after(true);
        let store = on(&disk, &clock, &options);
        let needs = |copy| asking(1, copy, true);
        let first = claim(&store, &needs(0));
        assert_eq!(found(&store, &needs(1)).fence, Some(first.fence()));
        // What nobody issued is still nothing.
        let other = now(store.claim(&asking(2, 0, true))).unwrap();
        assert!(matches!(other, Claimed::Found { record: None, .. }), "{other:?}");
        // The claim as well is there after the next one.
        let store = on(&disk.after(true), &clock, &options);
        assert_eq!(found(&store, &needs(2)).reads_as(store.shared.now()), StateCode::Unknown, "{durability:?}");
    }
}

/// A disk that does not come to its sync: nobody has a token yet.
#[test]
fn a_token_is_not_told_before_its_sync() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &options());
    disk.fail(Fault::Sync, 1);
    assert!(now(store.issue(&token(1))).is_err(), "the sync failed");
    assert!(disk.after(true).records().is_empty(), "and a power cut leaves nothing of it");
}

#[test]
fn a_synced_claim_carries_every_earlier_release() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let process = Options { durability: Power::Process, ..options() };
    let store = on(&disk, &clock, &process);
    let first = claim(&store, &ask(1, 0));
    assert!(matches!(now(store.release(&free(&first))), Ok(Settled::Ok { .. })));
    let _other = claim(&store, &ask(2, 0));
    let store = on(&disk.after(true), &clock, &process);
    let again = claim(&store, &ask(1, 1));
    assert_eq!(again.attempt(), 2);
    assert!(again.fence() > first.fence());
}

#[test]
fn the_clock_set_back_does_not_take_store_time_back() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000_000));
    let store = on(&disk, &clock, &options());
    clock.advance(MINUTE);
    let first = claim(&store, &ask(1, 0));
    assert!(matches!(now(store.release(&free(&first))), Ok(Settled::Ok { .. })));
    let before = store.shared.now();
    let disk = disk.after(true);
    let back = Hands::at(10);
    let store = on(&disk, &back, &options());
    assert!(store.shared.now() >= before, "{:?} {before:?}", store.shared.now());
    let second = claim(&store, &ask(1, 1));
    assert!(second.fence() > first.fence());
}

#[test]
fn renewals_write_nothing_and_a_restart_ends_every_lease() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &options());
    let claim = claim(&store, &ask(1, 0));
    let before = disk.counts();
    clock.advance(MINUTE / 2);
    let batch = [semel_core::store::Renewal { claim: &claim, lease: MINUTE, keep: MINUTE }];
    let renewed = store.renew(&batch).try_ready().expect("no I/O").unwrap();
    assert!(matches!(renewed[..], [Ok(semel_core::store::Renewed::Left(left))] if left == MINUTE));
    assert_eq!(disk.counts(), before);
    let store = on(&disk.after(false), &clock, &options());
    assert_eq!(found(&store, &ask(1, 1)).lease_until, store.shared.now());
}

#[test]
fn an_end_of_a_record_in_flight_is_not_its_leases_and_purge_takes_it_then() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &options());
    let _running = claim(&store, &ask(1, 0));
    clock.advance(2 * MINUTE);
    assert_eq!(now(store.purge(10)).unwrap().removed, 0);
    clock.advance(MINUTE);
    let purged = now(store.purge(10)).unwrap();
    assert_eq!((purged.removed, purged.unresolved), (1, vec![identity(1)]));
    assert!(disk.records().is_empty());
}

#[test]
fn purge_takes_what_has_ended_in_bounded_steps_and_writes_nothing() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &Options { cache: 0, ..options() });
    for n in 0..700 {
        run(&store, n, 10, if n < 600 { MINUTE } else { 10 * MINUTE });
    }
    assert_eq!(now(store.purge(1_000)).unwrap().removed, 0);
    clock.advance(2 * MINUTE);
    let before = disk.counts();
    assert_eq!(now(store.purge(300)).unwrap().removed, 300);
    assert_eq!(now(store.purge(1_000)).unwrap().removed, 300);
    assert_eq!(now(store.purge(1_000)).unwrap().removed, 0);
    assert_eq!((disk.records().len(), disk.counts()), (100, before));
    assert_eq!(store.shared.records(), Some(100));
}

#[test]
fn an_unknown_that_left_memory_is_told_at_its_end_and_once() {
    for reopened in [false, true] {
        let (disk, clock) = (Faulty::new(), Hands::at(1_000));
        let first = on(&disk, &clock, &Options { cache: 0, ..options() });
        for n in 0..3 {
            let rest = Rest::write(&meta(), &Payload::Words("reset".into()));
            let unknown = Settlement::Unknown { fingerprint: Fingerprint::NONE, rest, ttl: MINUTE };
            settle(&first, &claim(&first, &ask(n, 0)), &unknown);
        }
        // A person resolves one.
        let (id, fence) = (identity(1), found(&first, &ask(1, 1)).fence.unwrap());
        let target = Target { identity: &id, fence, resolver: Owner::from_bytes([9; 16]) };
        let failed = Resolution::Failed { keep: MINUTE, rest: meta() };
        assert!(matches!(now(first.resolve(target, &failed)), Ok(Resolved::Ok(_))));
        let store = if reopened { on(&disk.after(true), &clock, &options()) } else { first };
        assert_eq!(now(store.purge(10)).unwrap().removed, 0);
        clock.advance(2 * MINUTE);
        // One is claimed again after its end, and that tells it.
        let again = now(store.claim(&ask(0, 2))).unwrap();
        assert!(matches!(again, Claimed::Granted { unresolved: true, .. }), "{again:?}");
        let purged = now(store.purge(10)).unwrap();
        assert_eq!((purged.removed, purged.unresolved), (2, vec![identity(2)]), "{reopened}");
        assert_eq!(now(store.purge(10)).unwrap().removed, 0);
    }
}

#[test]
fn a_listing_in_pages_shows_each_record_once_wherever_it_is() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &Options { cache: 40_000, ..options() });
    for n in 0..300 {
        run(&store, n, 10, MINUTE);
    }
    let running: Vec<_> = (300..350).map(|n| claim(&store, &ask(n, 0))).collect();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = now(store.list(&Filter::default(), after.as_ref(), 7)).unwrap();
        assert!(page.entries.len() <= 7);
        seen.extend(page.entries.iter().map(|e| *e.identity.digest()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 300 + running.len());
    assert!(seen.is_sorted());
    seen.dedup();
    assert_eq!(seen.len(), 350);
    let unknown = Filter { state: Some(StateCode::Unknown), ..Filter::default() };
    assert!(now(store.list(&unknown, None, 7)).unwrap().entries.is_empty());
}

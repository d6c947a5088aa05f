//! A disk that fails: nobody is told of what is not there, and what is there is still answered.

use semel_core::{
    record::StateCode,
    store::{Did, Filter, StoreAdmin, StoreErrorKind},
};

use super::*;
use crate::disk::faulty::Fault;

fn refused(e: &StoreError) -> (Did, StoreErrorKind) {
    (e.did, e.kind)
}

#[test]
fn after_a_failed_sync_or_write_claims_fail_and_replays_go_on() {
    for fault in [Fault::Sync, Fault::Write, Fault::Panic] {
        let (disk, clock) = (Faulty::new(), Hands::at(1_000));
        let store = on(&disk, &clock, &options());
        run(&store, 1, 10, MINUTE);
        let running = claim(&store, &ask(2, 0));
        disk.fail(fault, 1);
        let failed = now(store.claim(&ask(3, 0))).unwrap_err();
        assert_eq!(refused(&failed), (Did::Unknown, StoreErrorKind::ReadOnly), "{fault:?}");
        // Whoever asks again as the same owner is not granted what never got to the disk.
        let again = now(store.claim(&ask(3, 0))).unwrap_err();
        assert_eq!(refused(&again), (Did::Unknown, StoreErrorKind::ReadOnly), "{fault:?}");
        let new = now(store.claim(&ask(4, 0))).unwrap_err();
        assert_eq!(refused(&new), (Did::Nothing, StoreErrorKind::ReadOnly), "{fault:?}");
        let settling = now(store.settle(&running, &done(1, MINUTE))).unwrap_err();
        assert_eq!(refused(&settling), (Did::Nothing, StoreErrorKind::ReadOnly), "{fault:?}");
        assert_eq!(found(&store, &ask(1, 1)).state, StateCode::Done, "{fault:?}");
        assert_eq!(found(&store, &ask(2, 1)).state, StateCode::InFlight, "{fault:?}");
        assert!(now(store.get(&identity(1))).unwrap().record.is_some());
        assert!(!now(store.list(&Filter::default(), None, 10)).unwrap().entries.is_empty());
        let health = now(store.health()).unwrap();
        assert!(!health.writable && health.trouble.contains("restart"), "{health:?}");
        store.close();
        // What was answered is there, whatever became of the rest.
        let store = on(&disk.after(true), &clock, &options());
        assert_eq!(found(&store, &ask(1, 1)).state, StateCode::Done, "{fault:?}");
        assert_eq!(found(&store, &ask(2, 1)).state, StateCode::InFlight, "{fault:?}");
    }
}

#[test]
fn every_write_and_sync_can_fail_and_none_breaks_a_promise() {
    for fault in [Fault::Write, Fault::Sync] {
        for at in 1..=12 {
            let (disk, clock) = (Faulty::new(), Hands::at(1_000));
            let store = on(&disk, &clock, &options());
            disk.fail(fault, at);
            let (mut granted, mut completed) = (Vec::new(), Vec::new());
            for n in 0..8 {
                let Ok(Claimed::Granted { claim, .. }) = now(store.claim(&ask(n, 0))) else { continue };
                granted.push(n);
                if now(store.settle(&claim, &done(5, MINUTE))).is_ok() {
                    completed.push(n);
                }
            }
            assert!(granted.len() < 8, "{fault:?} {at}: the fault came up");
            for power_cut in [true, false] {
                let store = on(&disk.after(power_cut), &clock, &options());
                for n in &granted {
                    assert_ne!(found(&store, &ask(*n, 1)).state, StateCode::Free, "{fault:?} {at}");
                }
                for n in &completed {
                    assert_eq!(found(&store, &ask(*n, 1)).state, StateCode::Done, "{fault:?} {at}");
                }
            }
        }
    }
}

#[test]
fn a_duplicate_is_refused_by_a_claim_on_its_way_and_its_own_copy_waits() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &options());
    disk.hold();
    let (first, copy, other) = (ask(1, 0), ask(1, 0), ask(1, 1));
    let granted = store.claim(&first);
    let duplicate = store.claim(&other).try_ready().expect("it is refused at once").unwrap();
    assert!(matches!(duplicate, Claimed::Found { record: Some(r), .. } if r.state == StateCode::InFlight));
    let Err(again) = store.claim(&copy).try_ready() else { panic!("it must wait for the disk") };
    disk.go_on();
    assert!(matches!(now(granted), Ok(Claimed::Granted { .. })));
    assert!(matches!(now(again), Ok(Claimed::Found { record: Some(r), .. }) if r.owner == first.owner()));
}

#[test]
fn an_outcome_on_its_way_is_shown_when_it_is_there() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &options());
    let claim = claim(&store, &ask(1, 0));
    disk.hold();
    let outcome = done(5, MINUTE);
    let settling = store.settle(&claim, &outcome);
    let (duplicate, id) = (ask(1, 1), identity(1));
    let Err(replay) = store.claim(&duplicate).try_ready() else { panic!("not before it is on the disk") };
    let Err(seen) = store.get(&id).try_ready() else { panic!("not before it is on the disk") };
    disk.go_on();
    assert!(matches!(now(settling), Ok(Settled::Ok { .. })));
    assert!(matches!(now(replay), Ok(Claimed::Found { record: Some(r), .. }) if r.state == StateCode::Done));
    assert!(now(seen).unwrap().record.is_some());
}

#[test]
fn what_waits_during_a_sync_shares_the_next_one() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &options());
    disk.hold();
    let asks: Vec<_> = (0..100).map(|n| ask(n, 0)).collect();
    let replies: Vec<_> = asks.iter().map(|a| store.claim(a)).collect();
    disk.go_on();
    for reply in replies {
        assert!(matches!(now(reply), Ok(Claimed::Granted { .. })));
    }
    assert!(disk.counts().1 <= 3, "{:?}", disk.counts());
}

#[test]
fn a_queue_that_is_full_refuses_claims_before_it_refuses_settlements() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &Options { max_waiting: 4, ..options() });
    let running: Vec<_> = (100..104).map(|n| claim(&store, &ask(n, 0))).collect();
    disk.hold();
    let asks: Vec<_> = (0..9).map(|n| ask(n, 0)).collect();
    // The writer may have taken one batch already.
    let (mut waiting, mut busy) = (Vec::new(), 0);
    for ask in &asks {
        match store.claim(ask).try_ready() {
            Ok(answer) => {
                let e = answer.unwrap_err();
                assert_eq!(refused(&e), (Did::Nothing, StoreErrorKind::Unavailable));
                assert!(e.retry_after.is_some());
                busy += 1;
            }
            Err(reply) => waiting.push(reply),
        }
    }
    assert!(busy > 0);
    let outcome = done(1, MINUTE);
    let settling: Vec<_> = running.iter().map(|c| store.settle(c, &outcome)).collect();
    disk.go_on();
    for reply in settling {
        assert!(matches!(now(reply), Ok(Settled::Ok { .. })));
    }
    for reply in waiting {
        assert!(matches!(now(reply), Ok(Claimed::Granted { .. })));
    }
}

#[test]
fn a_dropped_future_loses_only_the_answer() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &options());
    disk.hold();
    let ask1 = ask(1, 0);
    drop(store.claim(&ask1));
    disk.go_on();
    assert_eq!(found(&store, &ask1).owner, ask1.owner());
    store.close();
    assert_eq!(disk.records().len(), 1);
}

#[test]
fn a_closed_store_says_so_and_has_written_everything() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &options());
    let ask1 = ask(1, 0);
    disk.hold();
    let granted = store.claim(&ask1);
    disk.go_on();
    store.close();
    assert!(matches!(now(granted), Ok(Claimed::Granted { .. })));
    let e = now(store.claim(&ask(2, 0))).unwrap_err();
    assert_eq!(refused(&e), (Did::Nothing, StoreErrorKind::Closed));
    assert_eq!(disk.after(true).records().len(), 1);
}

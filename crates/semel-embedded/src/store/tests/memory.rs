//! What is kept in memory, and what is read from the disk.

use semel_core::record::StateCode;

use super::*;

#[test]
fn a_record_finished_lately_is_answered_without_a_future() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &options());
    run(&store, 1, 10, MINUTE);
    let duplicate = ask(1, 1);
    assert!(store.claim(&duplicate).try_ready().is_ok());
}

#[test]
fn the_cache_stays_within_its_bytes_and_keeps_what_is_asked_for() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let cache = 1 << 20;
    let store = on(&disk, &clock, &Options { cache, ..options() });
    for n in 0..4_000 {
        run(&store, n, 1_000, MINUTE);
        let _ = found(&store, &ask(0, 1));
    }
    let shards = store.shared.shards.iter().map(|s| s.lock());
    let (mut slots, mut hot) = (0, false);
    for shard in shards {
        slots += shard.iter().count();
        hot |= shard.iter().any(|(d, _)| d == identity(0).digest());
    }
    assert!((500..=cache / 1_000).contains(&slots), "{slots}");
    assert!(hot, "a key that is asked for all the time stays");
    // The others are on the disk.
    for n in 0..4_000 {
        assert_eq!(found(&store, &ask(n, 1)).state, StateCode::Done);
    }
}

#[test]
fn a_key_that_is_claimed_and_freed_for_ever_leaves_nothing_behind() {
    let (disk, clock) = (Faulty::new(), Hands::at(1_000));
    let store = on(&disk, &clock, &options());
    let _neighbours = (1..50).map(|n| run(&store, n, 1, MINUTE)).count();
    for copy in 0..3_000 {
        let claim = claim(&store, &ask(0, copy));
        assert!(matches!(now(store.release(&free(&claim))), Ok(Settled::Ok { .. })));
    }
    assert_eq!(disk.records().len(), 50);
    let longest = store.shared.shards.iter().map(|s| s.lock().ring_len()).max();
    assert!(longest < Some(300), "{longest:?}");
}

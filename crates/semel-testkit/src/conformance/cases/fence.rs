//! Fences: the numbers of the grants of one record only rise.

use super::{admin::purge_all, prelude::*};

pub async fn a_fence_follows_the_stores_clock<B: Bed>(s: &Stage<B>) {
    let before = s.now().await;
    let fence = s.hold(1).await.fence();
    let after = s.now().await;
    let micros = i64::try_from(fence.get()).expect("fences fit");
    let off = i64::try_from(B::RECKONED_WITHIN.as_micros()).expect("a short while");
    assert!((before.as_micros() - off..=after.as_micros() + off).contains(&micros), "{before:?} {fence} {after:?}");
    assert!(fence.get() < 1 << 53, "a double still holds it");
}

pub async fn a_fence_rises_with_every_grant<B: Bed>(s: &Stage<B>) {
    let mut last = 0;
    for _ in 0..200 {
        let claim = s.hold(1).await;
        assert!(claim.fence().get() > last);
        last = claim.fence().get();
        stands(s.release(free(&claim)).await);
    }
}

pub async fn a_fence_rises_over_expiry_purge_and_flush<B: Bed>(s: &Stage<B>) {
    // So many grants at once that the fence runs ahead of a clock that hardly moves.
    let mut last = s.hold(1).await;
    for _ in 0..50 {
        stands(s.release(free(&last)).await);
        last = s.hold(1).await;
    }
    stands(s.release(free(&last)).await);
    let mut fences = vec![last.fence()];
    s.advance(TTL + AFTER).await;
    let expired = s.hold(1).await;
    fences.push(expired.fence());
    stands(s.settle(&expired, done("x")).await);
    s.advance(TTL + AFTER).await;
    purge_all(s, 7).await;
    let purged = s.hold(1).await;
    fences.push(purged.fence());
    s.forget(1).await;
    s.advance(SECOND).await;
    let flushed = s.hold(1).await;
    fences.push(flushed.fence());
    stands(s.settle(&flushed, done("x")).await);
    assert!(s.store.delete(&id(1), StateCode::Done).await.expect("the store works"));
    s.advance(SECOND).await;
    fences.push(s.hold(1).await.fence());
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

/// An expired record that nobody swept is still the floor of the next fence.
pub async fn an_expired_record_is_the_floor_of_the_next_fence<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.settle(&claim, done("x")).await);
    let ahead = Fence::new(claim.fence().get() + (1 << 45)).expect("it is not zero");
    let ended = s.now().await - AFTER;
    s.plant(1, &Record { fence: Some(ahead), expires_at: ended, ..s.the_record(1).await }).await;
    assert!(s.record(1).await.is_none());
    assert_eq!(s.hold(1).await.fence().get(), ahead.get() + 1);
}

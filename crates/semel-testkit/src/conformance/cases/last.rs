//! What survives the end of the store's process. A store that keeps nothing says so in its facts.

use semel_core::store::Durability;

use super::prelude::*;

/// The stage after the store came back; `None` for a store that keeps nothing, as it said.
async fn reopened<B: Bed>(s: &Stage<B>) -> Option<std::sync::Arc<dyn semel_core::store::StoreAdmin>> {
    let came_back = s.bed.reopen().await;
    assert_eq!(came_back, s.store.facts().durability != Durability::None, "facts and bed disagree");
    if came_back { Some(s.bed.client().await) } else { None }
}

pub async fn what_was_acknowledged_is_there_after_reopening<B: Bed>(s: &Stage<B>) {
    let claims = [s.hold(1).await, s.hold(2).await, s.hold(3).await, s.hold(4).await];
    stands(s.settle(&claims[0], done("kept")).await);
    stands(s.settle(&claims[1], nobody_knows()).await);
    stands(s.release(free(&claims[2])).await);
    stands(s.release(park(&claims[3])).await);
    let _ = s.store.issue(&token(5)).await.expect("the store works");
    let mut was = Vec::new();
    for n in 1..6 {
        was.push(s.the_record(n).await);
    }
    let before = s.now().await;
    let Some(store) = reopened(s).await else { return };
    assert!(store.health().await.expect("the store works").now >= before, "store time ran back");
    for (n, was) in (1..).zip(&was) {
        same(&store.get(&id(n)).await.expect("the store works").record.expect("it was acknowledged"), was);
    }
    stands(store.settle(&claims[0], &done("again")).await);
    stands(store.settle(&claims[1], &done("found out")).await);
}

pub async fn a_claim_is_still_its_owners_after_reopening<B: Bed>(s: &Stage<B>) {
    let (one, two) = (s.hold(1).await, s.hold(2).await);
    let was = s.the_record(1).await;
    let Some(store) = reopened(s).await else { return };
    let (record, _) = found(store.claim(&s.ask(about(1))).await);
    // Its lease may be over; all else stands.
    let r = record.expect("a claim is durable before it is answered");
    same(&Record { lease_until: was.lease_until, ..r }, &was);
    let batch = [Renewal { claim: &one, lease: LEASE, keep: KEEP }];
    let renewed = store.renew(&batch).await.expect("the store works").remove(0).expect("the store works");
    left(&renewed, LEASE);
    stands(store.settle(&one, &done("after all")).await);
    stands(store.release(&free(&two)).await);
}

pub async fn what_was_removed_stays_away_after_reopening<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.settle(&claim, done("x")).await);
    assert!(s.store.delete(&id(1), StateCode::Done).await.expect("the store works"));
    let _ = s.store.issue(&token(2)).await.expect("the store works");
    assert!(s.store.withdraw(&id(2)).await.expect("the store works"));
    let Some(store) = reopened(s).await else { return };
    for n in [1, 2] {
        assert!(store.get(&id(n)).await.expect("the store works").record.is_none());
    }
}

pub async fn a_fence_rises_over_reopening<B: Bed>(s: &Stage<B>) {
    let mut last = s.hold(1).await;
    for _ in 0..50 {
        stands(s.release(free(&last)).await);
        last = s.hold(1).await;
    }
    stands(s.release(free(&last)).await);
    let Some(store) = reopened(s).await else { return };
    let next = granted(store.claim(&s.ask(about(1))).await);
    assert!(next.fence() > last.fence());
    assert_eq!(next.attempt(), last.attempt() + 1);
}

pub async fn what_people_did_is_known_after_reopening<B: Bed>(s: &Stage<B>) {
    s.store.audit("resolved").await.expect("the store works");
    let Some(store) = reopened(s).await else { return };
    assert_eq!(store.audited(10).await.expect("the store works"), ["resolved"]);
}

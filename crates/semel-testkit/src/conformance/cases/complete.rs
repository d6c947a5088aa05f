//! Completions: what is recorded, over what, and what they never touch.

use super::prelude::*;

pub async fn a_completion_is_what_every_duplicate_gets<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    let before = s.now().await;
    stands(s.settle(&claim, done("the answer")).await);
    let r = in_state(s.record(1).await, StateCode::Done);
    assert!(r.belongs_to(claim.owner(), claim.fence()) && r.fingerprint.same(&asked(1)));
    assert_eq!((r.flags, r.attempt, &r.rest), (Flags::BODY_KEPT, 1, &answer("the answer")));
    near_time(r.expires_at, before + TTL);
    for _ in 0..3 {
        let ask = s.ask(about(1));
        let replay = judged(&ask, found(s.store.claim(&ask).await));
        let Judgement::Replay(kept) = replay else { panic!("it is there: {replay:?}") };
        assert_eq!(kept.outcome.body, semel_core::record::Body::Whole(Bytes::from_static(b"the answer")));
        near(kept.left, TTL);
    }
    let other = s.ask(AskFor { fingerprint: asked(2), ..about(1) });
    assert!(matches!(judged(&other, found(s.store.claim(&other).await)), Judgement::Mismatch));
}

pub async fn a_completion_without_its_body_says_so<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    let to = Settlement::Done { fingerprint: asked(1), rest: words("too large"), body_kept: false, ttl: TTL };
    stands(s.settle(&claim, to).await);
    assert_eq!(in_state(s.record(1).await, StateCode::Done).flags, Flags::NONE);
    let ask = s.ask(about(1));
    assert!(matches!(judged(&ask, found(s.store.claim(&ask).await)), Judgement::Unavailable { .. }));
}

pub async fn a_completion_sent_again_is_ok_and_changes_nothing<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.settle(&claim, done("first")).await);
    let was = s.the_record(1).await;
    s.advance(AFTER).await;
    stands(s.settle(&claim, done("second")).await);
    same(&s.the_record(1).await, &was);
}

pub async fn the_time_to_live_counts_from_settlement<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    s.advance(2 * LEASE).await;
    let settled = s.now().await;
    stands(s.settle(&claim, done("x")).await);
    near_time(s.the_record(1).await.expires_at, settled + TTL);
    s.advance(TTL - AFTER).await;
    assert_eq!(s.the_record(1).await.state, StateCode::Done);
    s.advance(2 * AFTER).await;
    assert!(s.record(1).await.is_none());
}

pub async fn a_completion_after_a_dead_lease_is_recorded<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    s.advance(LEASE + HOLD + AFTER).await;
    stands(s.settle(&claim, done("late")).await);
    assert_eq!(s.the_record(1).await.rest, answer("late"));
}

pub async fn a_completion_turns_unknown_into_done<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.settle(&claim, nobody_knows()).await);
    stands(s.settle(&claim, done("found out")).await);
    assert_eq!(in_state(s.record(1).await, StateCode::Done).rest, answer("found out"));
}

pub async fn a_completion_over_a_free_record_is_recorded<B: Bed>(s: &Stage<B>) {
    // Its own: released, and the outcome became known after all.
    let claim = s.hold(1).await;
    stands(s.release(free(&claim)).await);
    stands(s.settle(&claim, done("known after all")).await);
    assert_eq!(in_state(s.record(1).await, StateCode::Done).rest, answer("known after all"));
    // A later owner's, under a higher fence: nobody runs, and the outcome is known.
    let first = granted(s.claim(AskFor { takeover: true, ..about(2) }).await);
    s.advance(LEASE + AFTER).await;
    let second = s.hold(2).await;
    stands(s.release(free(&second)).await);
    restored(s.settle(&first, done("from the first")).await);
    let r = in_state(s.record(2).await, StateCode::Done);
    assert!(r.belongs_to(first.owner(), first.fence()) && r.fingerprint.same(&asked(1)));
    assert_eq!((r.attempt, &r.rest), (1, &answer("from the first")));
}

pub async fn a_completion_after_store_loss_is_recorded<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    s.forget(1).await;
    let before = s.now().await;
    restored(s.settle(&claim, done("x")).await);
    let r = in_state(s.record(1).await, StateCode::Done);
    assert!(r.belongs_to(claim.owner(), claim.fence()) && r.fingerprint.same(&asked(1)));
    assert_eq!((r.flags, r.attempt, &r.rest), (Flags::BODY_KEPT, 1, &answer("x")));
    near_time(r.expires_at, before + TTL);
    found(s.claim(about(1)).await);
    stands(s.settle(&claim, done("x")).await);
}

pub async fn a_completion_past_the_end_is_recorded<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    s.advance(LEASE + HOLD + KEEP + AFTER).await;
    restored(s.settle(&claim, done("very late")).await);
    assert_eq!(in_state(s.record(1).await, StateCode::Done).rest, answer("very late"));
}

/// A backup came back: the record shows an owner from before the one who finishes now.
pub async fn an_older_record_restored_does_not_refuse_the_newer_owner<B: Bed>(s: &Stage<B>) {
    let states = [StateCode::InFlight, StateCode::Unknown, StateCode::Parked, StateCode::Free];
    for (n, state) in (0..).zip(states) {
        let older = older_record(s, n, state).await;
        let newer = s.hold(n).await;
        s.plant(n, &older).await;
        restored(s.settle(&newer, done("by the newer")).await);
        let r = in_state(s.record(n).await, StateCode::Done);
        assert!(r.belongs_to(newer.owner(), newer.fence()), "over {state:?}: {r:?}");
    }
}

/// A record of an earlier grant in `state`, of which the store then knows nothing.
pub(super) async fn older_record<B: Bed>(s: &Stage<B>, n: u64, state: StateCode) -> Record {
    let older = s.hold(n).await;
    match state {
        StateCode::InFlight => {}
        StateCode::Unknown => stands(s.settle(&older, nobody_knows()).await),
        StateCode::Parked => stands(s.release(park(&older)).await),
        StateCode::Free => stands(s.release(free(&older)).await),
        StateCode::Done => stands(s.settle(&older, done("the older")).await),
    }
    let record = s.the_record(n).await;
    s.forget(n).await;
    s.advance(SECOND).await;
    record
}

pub async fn a_completion_never_overwrites_an_outcome<B: Bed>(s: &Stage<B>) {
    let older = older_record(s, 1, StateCode::Done).await;
    let newer = s.hold(1).await;
    s.plant(1, &older).await;
    let record = lost(s.settle(&newer, done("another")).await);
    same(&record, &older);
    same(&s.the_record(1).await, &older);
}

pub async fn a_completion_over_a_newer_claim_is_refused<B: Bed>(s: &Stage<B>) {
    let states = [StateCode::InFlight, StateCode::Unknown, StateCode::Parked, StateCode::Done];
    for (n, state) in (0..).zip(states) {
        let older = s.hold(n).await;
        s.forget(n).await;
        s.advance(SECOND).await;
        let newer = older_record(s, n, state).await;
        s.plant(n, &newer).await;
        same(&lost(s.settle(&older, done("too late")).await), &newer);
        same(&s.the_record(n).await, &newer);
    }
}

pub async fn what_its_owner_parked_is_not_completed<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.release(park(&claim)).await);
    let was = s.the_record(1).await;
    lost(s.settle(&claim, done("x")).await);
    same(&s.the_record(1).await, &was);
}

//! Unknown: an outcome that nobody can tell.

use super::{complete::older_record, prelude::*};

pub async fn an_unknown_outcome_stands_in_the_way<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    let before = s.now().await;
    stands(s.settle(&claim, nobody_knows()).await);
    let r = in_state(s.record(1).await, StateCode::Unknown);
    assert!(r.belongs_to(claim.owner(), claim.fence()) && r.fingerprint.same(&asked(1)));
    assert_eq!((r.attempt, &r.rest), (1, &words("connection reset")));
    near_time(r.lease_until, before);
    near_time(r.expires_at, before + TTL);
    let ask = s.ask(AskFor { takeover: true, ..about(1) });
    let answer = judged(&ask, found(s.store.claim(&ask).await));
    let Judgement::Unknown { since, last } = answer else { panic!("nobody can tell: {answer:?}") };
    assert_eq!((since, last.as_deref()), (r.lease_until, Some("connection reset")));
    s.advance(TTL + AFTER).await;
    assert_eq!(s.hold(1).await.attempt(), 1);
}

pub async fn unknown_sent_again_is_ok_and_changes_nothing<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.settle(&claim, nobody_knows()).await);
    let was = s.the_record(1).await;
    s.advance(AFTER).await;
    stands(s.settle(&claim, nobody_knows()).await);
    same(&s.the_record(1).await, &was);
}

pub async fn unknown_never_overwrites_done<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.settle(&claim, done("x")).await);
    let was = s.the_record(1).await;
    stands(s.settle(&claim, nobody_knows()).await);
    same(&s.the_record(1).await, &was);
    // Nor another's, whatever its fence.
    let older = older_record(s, 2, StateCode::Done).await;
    let newer = s.hold(2).await;
    s.plant(2, &older).await;
    same(&lost(s.settle(&newer, nobody_knows()).await), &older);
    same(&s.the_record(2).await, &older);
}

pub async fn unknown_after_a_dead_lease_is_recorded<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    s.advance(LEASE + HOLD + AFTER).await;
    stands(s.settle(&claim, nobody_knows()).await);
    near_time(in_state(s.record(1).await, StateCode::Unknown).lease_until, s.now().await);
}

pub async fn unknown_after_store_loss_is_recorded<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    s.forget(1).await;
    restored(s.settle(&claim, nobody_knows()).await);
    let r = in_state(s.record(1).await, StateCode::Unknown);
    assert!(r.belongs_to(claim.owner(), claim.fence()) && r.fingerprint.same(&asked(1)));
    assert_eq!((r.attempt, &r.rest), (1, &words("connection reset")));
    found(s.claim(about(1)).await);
}

pub async fn unknown_is_recorded_over_an_older_claim<B: Bed>(s: &Stage<B>) {
    for (n, state) in (0..).zip([StateCode::InFlight, StateCode::Free]) {
        let older = older_record(s, n, state).await;
        let newer = s.hold(n).await;
        s.plant(n, &older).await;
        restored(s.settle(&newer, nobody_knows()).await);
        let r = in_state(s.record(n).await, StateCode::Unknown);
        assert!(r.belongs_to(newer.owner(), newer.fence()), "over {state:?}: {r:?}");
    }
}

pub async fn unknown_leaves_what_others_said<B: Bed>(s: &Stage<B>) {
    for (n, state) in (0..).zip([StateCode::Unknown, StateCode::Parked]) {
        let older = older_record(s, n, state).await;
        let newer = s.hold(n).await;
        s.plant(n, &older).await;
        same(&lost(s.settle(&newer, nobody_knows()).await), &older);
        same(&s.the_record(n).await, &older);
    }
}

pub async fn unknown_over_a_newer_claim_is_refused<B: Bed>(s: &Stage<B>) {
    let states = [StateCode::InFlight, StateCode::Unknown, StateCode::Parked, StateCode::Done, StateCode::Free];
    for (n, state) in (0..).zip(states) {
        let older = s.hold(n).await;
        s.forget(n).await;
        s.advance(SECOND).await;
        let newer = older_record(s, n, state).await;
        s.plant(n, &newer).await;
        same(&lost(s.settle(&older, nobody_knows()).await), &newer);
        same(&s.the_record(n).await, &newer);
    }
}

pub async fn what_its_owner_released_does_not_become_unknown<B: Bed>(s: &Stage<B>) {
    let (freed, parked) = (s.hold(1).await, s.hold(2).await);
    stands(s.release(free(&freed)).await);
    stands(s.release(park(&parked)).await);
    lost(s.settle(&freed, nobody_knows()).await);
    lost(s.settle(&parked, nobody_knows()).await);
    assert_eq!(s.the_record(1).await.state, StateCode::Free);
    assert_eq!(s.the_record(2).await.state, StateCode::Parked);
}

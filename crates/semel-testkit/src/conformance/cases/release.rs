//! Releases: a claim given back, parked, or abandoned.

use super::prelude::*;

pub async fn a_released_claim_leaves_a_free_record<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    let before = s.now().await;
    let rest = words("not sent");
    let what = Releasing::Held { claim: &claim, counts: true, park: false, keep: TTL, rest: rest.clone() };
    stands(s.release(what).await);
    let r = in_state(s.record(1).await, StateCode::Free);
    assert!(r.belongs_to(claim.owner(), claim.fence()));
    assert_eq!((r.fingerprint.version().algorithm, r.fingerprint.digest()), (0, &[0; 32]));
    assert_eq!((r.attempt, r.flags, &r.rest), (1, Flags::NONE, &rest));
    near_time(r.expires_at, before + TTL);
}

pub async fn an_attempt_that_does_not_count_is_given_back<B: Bed>(s: &Stage<B>) {
    for (expected, counts) in [(1, false), (1, false), (1, true), (2, false), (2, true), (3, true)] {
        let claim = s.hold(1).await;
        assert_eq!(claim.attempt(), expected);
        let rest = plain();
        stands(s.release(Releasing::Held { claim: &claim, counts, park: false, keep: TTL, rest }).await);
    }
}

pub async fn a_release_sent_again_is_ok_and_changes_nothing<B: Bed>(s: &Stage<B>) {
    let (freed, parked) = (s.hold(1).await, s.hold(2).await);
    stands(s.release(free(&freed)).await);
    stands(s.release(park(&parked)).await);
    let was = (s.the_record(1).await, s.the_record(2).await);
    s.advance(AFTER).await;
    stands(s.release(free(&freed)).await);
    stands(s.release(park(&parked)).await);
    same(&s.the_record(1).await, &was.0);
    same(&s.the_record(2).await, &was.1);
    // The other way is another call, and there is nothing in flight for it.
    lost(s.release(park(&freed)).await);
    lost(s.release(free(&parked)).await);
}

pub async fn a_parked_record_waits_for_a_person<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    let before = s.now().await;
    stands(s.release(park(&claim)).await);
    let r = in_state(s.record(1).await, StateCode::Parked);
    assert!(r.belongs_to(claim.owner(), claim.fence()));
    assert_eq!((r.fingerprint.digest(), r.attempt, &r.rest), (&[0; 32], 1, &words("failed ten times")));
    near_time(r.expires_at, before + TTL);
    let ask = s.ask(about(1));
    let answer = judged(&ask, found(s.store.claim(&ask).await));
    assert!(matches!(answer, Judgement::Parked { attempt: 1, .. }), "{answer:?}");
}

pub async fn a_free_record_ends_in_its_time<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.release(free(&claim)).await);
    s.advance(TTL + AFTER).await;
    assert!(s.record(1).await.is_none());
    assert_eq!(s.hold(1).await.attempt(), 1);
}

pub async fn a_release_by_another_owner_is_refused<B: Bed>(s: &Stage<B>) {
    let other = s.hold(2).await;
    let stranger = Ask::new(other.owner(), about(1));
    s.hold(1).await;
    let was = s.the_record(1).await;
    let forged = stranger.grant(was.fence.expect("it was granted"), 1);
    lost(s.release(free(&forged)).await);
    lost(s.release(park(&forged)).await);
    lost(s.release(abandon(&stranger)).await);
    same(&s.the_record(1).await, &was);
}

pub async fn a_release_under_another_fence_is_refused<B: Bed>(s: &Stage<B>) {
    let ask = s.ask(about(1));
    let claim = granted(s.store.claim(&ask).await);
    let older = ask.grant(Fence::new(claim.fence().get() - 1).expect("fences are large"), 1);
    lost(s.release(free(&older)).await);
    assert_eq!(s.the_record(1).await.state, StateCode::InFlight);
}

pub async fn a_release_of_nothing_is_ok_and_creates_nothing<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    s.forget(1).await;
    stands(s.release(free(&claim)).await);
    stands(s.release(park(&claim)).await);
    assert!(s.record(1).await.is_none());
    let claim = s.hold(2).await;
    s.advance(LEASE + HOLD + KEEP + AFTER).await;
    stands(s.release(park(&claim)).await);
    assert!(s.record(2).await.is_none());
}

pub async fn a_claim_whose_lease_is_over_can_be_released<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    s.advance(LEASE + AFTER).await;
    stands(s.release(free(&claim)).await);
    assert_eq!(s.the_record(1).await.state, StateCode::Free);
}

pub async fn what_is_settled_is_not_released<B: Bed>(s: &Stage<B>) {
    let asks = [s.ask(about(0)), s.ask(about(1))];
    let claims = [granted(s.store.claim(&asks[0]).await), granted(s.store.claim(&asks[1]).await)];
    stands(s.settle(&claims[0], done("x")).await);
    stands(s.settle(&claims[1], nobody_knows()).await);
    for ((n, claim), ask) in (0..).zip(&claims).zip(&asks) {
        let was = s.the_record(n).await;
        lost(s.release(free(claim)).await);
        lost(s.release(park(claim)).await);
        lost(s.release(abandon(ask)).await);
        same(&s.the_record(n).await, &was);
    }
}

/// The reply to a claim never came. Whether the claim arrives before the word that gives it up or after, nobody is left
/// holding the record.
pub async fn an_abandoned_claim_frees_the_record_in_either_order<B: Bed>(s: &Stage<B>) {
    let not_after = s.now().await + LEASE;
    let (early, late_one) = (s.ask(AskFor { not_after, ..about(1) }), s.ask(AskFor { not_after, ..about(2) }));
    granted(s.store.claim(&early).await);
    s.advance(LEASE + AFTER).await;
    stands(s.release(abandon(&early)).await);
    let r = in_state(s.record(1).await, StateCode::Free);
    assert_eq!((r.owner, r.attempt), (early.owner(), 0));
    stands(s.release(abandon(&early)).await);
    stands(s.release(abandon(&late_one)).await);
    late(s.store.claim(&late_one).await);
    assert!(s.record(2).await.is_none());
    for n in [1, 2] {
        assert_eq!(s.hold(n).await.attempt(), 1);
    }
    // Whoever holds it now is not the one who gave up.
    lost(s.release(abandon(&early)).await);
    assert_eq!(s.the_record(1).await.state, StateCode::InFlight);
}

pub async fn an_abandoned_claim_that_took_over_gives_its_count_back<B: Bed>(s: &Stage<B>) {
    granted(s.claim(AskFor { takeover: true, ..about(1) }).await);
    s.advance(LEASE + AFTER).await;
    let ask = s.ask(about(1));
    granted(s.store.claim(&ask).await);
    stands(s.release(abandon(&ask)).await);
    assert_eq!(in_state(s.record(1).await, StateCode::Free).attempt, 1);
    assert_eq!(s.hold(1).await.attempt(), 2);
}

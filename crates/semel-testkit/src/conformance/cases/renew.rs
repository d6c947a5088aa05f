//! Renewals: they move the end of a lease and nothing else.

use super::prelude::*;

pub async fn a_renewal_moves_the_end_of_the_lease_and_nothing_else<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    let was = s.the_record(1).await;
    s.advance(LEASE / 2).await;
    left(&s.renew(&claim, 2 * LEASE).await, 2 * LEASE);
    let is = s.the_record(1).await;
    near_time(is.lease_until, s.now().await + 2 * LEASE);
    same(&Record { lease_until: was.lease_until, ..is }, &was);
}

pub async fn a_renewal_never_shortens_a_lease<B: Bed>(s: &Stage<B>) {
    let claim = granted(s.claim(AskFor { lease: 5 * LEASE, ..about(1) }).await);
    let was = s.the_record(1).await;
    left(&s.renew(&claim, LEASE).await, 5 * LEASE);
    same(&s.the_record(1).await, &was);
}

pub async fn a_renewal_stops_at_max_hold<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    let was = s.the_record(1).await;
    left(&s.renew(&claim, HOLD - AFTER).await, HOLD - AFTER);
    s.advance(HOLD - 2 * AFTER).await;
    left(&s.renew(&claim, 100 * LEASE).await, LEASE + 2 * AFTER);
    let is = s.the_record(1).await;
    assert_eq!((is.expires_at, is.expires_at.since(is.lease_until)), (was.expires_at, KEEP));
    s.advance(LEASE + 3 * AFTER).await;
    left(&s.renew(&claim, LEASE).await, Duration::ZERO);
    assert_eq!(s.the_record(1).await.reads_as(s.now().await), StateCode::Unknown);
}

pub async fn a_lease_that_is_over_is_renewed_while_nobody_acted_on_it<B: Bed>(s: &Stage<B>) {
    let claim = granted(s.claim(AskFor { takeover: true, ..about(1) }).await);
    s.advance(LEASE + AFTER).await;
    left(&s.renew(&claim, LEASE).await, LEASE);
    found(s.claim(AskFor { takeover: true, ..about(1) }).await);
}

pub async fn a_renewal_sent_again_is_answered_alike<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    left(&s.renew(&claim, 2 * LEASE).await, 2 * LEASE);
    left(&s.renew(&claim, 2 * LEASE).await, 2 * LEASE);
}

pub async fn a_renewal_of_what_is_settled_is_lost<B: Bed>(s: &Stage<B>) {
    let claims = [s.hold(0).await, s.hold(1).await, s.hold(2).await, s.hold(3).await];
    stands(s.settle(&claims[0], done("x")).await);
    stands(s.settle(&claims[1], nobody_knows()).await);
    stands(s.release(free(&claims[2])).await);
    stands(s.release(park(&claims[3])).await);
    let states = [StateCode::Done, StateCode::Unknown, StateCode::Free, StateCode::Parked];
    for ((n, claim), state) in (0..).zip(&claims).zip(states) {
        let was = s.the_record(n).await;
        let record = taken_from(s.renew(claim, LEASE).await);
        assert_eq!(record.state, state);
        same(&s.the_record(n).await, &was);
    }
}

pub async fn a_renewal_after_store_loss_says_missing_and_creates_nothing<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    s.forget(1).await;
    assert!(matches!(s.renew(&claim, LEASE).await, Renewed::Missing));
    assert!(s.record(1).await.is_none());
    s.hold(1).await;
}

/// The engine answers *missing* with a claim by the same owner; the grant before it is then an older one.
pub async fn the_same_owner_claims_again_after_store_loss<B: Bed>(s: &Stage<B>) {
    let ask = s.ask(about(1));
    let first = granted(s.store.claim(&ask).await);
    s.forget(1).await;
    s.advance(SECOND).await;
    let second = granted(s.store.claim(&ask).await);
    assert!(second.fence() > first.fence());
    assert_eq!((second.attempt(), second.owner()), (1, first.owner()));
    let record = taken_from(s.renew(&first, LEASE).await);
    assert!(record.belongs_to(second.owner(), second.fence()));
    lost(s.release(free(&first)).await);
    lost(s.settle(&first, done("under the older fence")).await);
    left(&s.renew(&second, LEASE).await, LEASE);
    stands(s.settle(&second, done("x")).await);
}

pub async fn a_renewal_past_the_end_says_missing_and_creates_nothing<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    s.advance(LEASE + HOLD + KEEP + AFTER).await;
    assert!(matches!(s.renew(&claim, LEASE).await, Renewed::Missing));
    assert!(s.record(1).await.is_none());
}

pub async fn a_batch_of_renewals_is_answered_in_its_order<B: Bed>(s: &Stage<B>) {
    let (long, gone, settled, short) = (s.hold(1).await, s.hold(2).await, s.hold(3).await, s.hold(4).await);
    s.forget(2).await;
    stands(s.settle(&settled, done("x")).await);
    let batch: Vec<_> = [(&long, 5 * LEASE), (&gone, LEASE), (&settled, LEASE), (&short, LEASE)]
        .map(|(claim, lease)| Renewal { claim, lease, keep: KEEP })
        .into();
    let answers = answers(s.store.renew(&batch).await);
    assert_eq!(answers.len(), 4);
    left(&answers[0], 5 * LEASE);
    assert!(matches!(answers[1], Renewed::Missing));
    assert!(matches!(&answers[2], Renewed::Lost(r) if r.state == StateCode::Done));
    left(&answers[3], LEASE);
    assert!(s.store.renew(&[]).await.expect("the store works").is_empty());
}

/// Where a part of the store does not answer, its renewals have an error each and the others their answers; renewals of
/// another part, in a call of their own, are not even held up.
pub async fn a_part_that_is_away_holds_up_no_other_lease<B: Bed>(s: &Stage<B>) {
    let mut claims = Vec::new();
    for n in 0..32 {
        claims.push(s.hold(n).await);
    }
    let parts: Vec<_> = claims.iter().map(|claim| s.store.part(claim.identity())).collect();
    let away = s.bed.take_part_away(claims[0].identity()).await;
    let is_away = |n: usize| away && parts[n] == parts[0];
    let renewal = |claim| Renewal { claim, lease: 2 * LEASE, keep: KEEP };
    let others: Vec<_> = (0..claims.len()).filter(|n| !is_away(*n)).map(|n| renewal(&claims[n])).collect();
    assert!(!others.is_empty());
    for answer in answers(s.store.renew(&others).await) {
        left(&answer, 2 * LEASE);
    }
    let all: Vec<_> = claims.iter().map(renewal).collect();
    let all = s.store.renew(&all).await.expect("the parts that are there answer");
    assert_eq!(all.len(), claims.len());
    for (n, answer) in all.into_iter().enumerate() {
        match answer {
            Err(error) => assert!(is_away(n), "{n}: {error}"),
            Ok(answer) => {
                assert!(!is_away(n), "{n}: {answer:?}");
                left(&answer, 2 * LEASE);
            }
        }
    }
}

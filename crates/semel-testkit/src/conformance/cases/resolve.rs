//! A person's word about an unclear record.

use super::prelude::*;

pub async fn a_live_claim_cannot_be_resolved<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    let was = s.the_record(1).await;
    same(&conflict(s.resolve(&was, 1, completed()).await).expect("it is there"), &was);
    same(&conflict(s.resolve(&was, 1, failed()).await).expect("it is there"), &was);
    same(&s.the_record(1).await, &was);
    stands(s.settle(&claim, done("x")).await);
}

pub async fn an_unknown_outcome_is_settled_by_a_persons_word<B: Bed>(s: &Stage<B>) {
    for (n, to) in [(1, completed()), (2, failed())] {
        let claim = s.hold(n).await;
        stands(s.settle(&claim, nobody_knows()).await);
        check_word(s, n, to).await;
    }
}

pub async fn a_parked_record_is_settled_by_a_persons_word<B: Bed>(s: &Stage<B>) {
    for (n, to) in [(1, completed()), (2, failed())] {
        let claim = s.hold(n).await;
        stands(s.release(park(&claim)).await);
        check_word(s, n, to).await;
    }
}

pub async fn a_claim_whose_lease_is_over_is_settled_by_a_persons_word<B: Bed>(s: &Stage<B>) {
    for (n, to) in [(1, completed()), (2, failed())] {
        let claim = s.hold(n).await;
        s.advance(LEASE + AFTER).await;
        check_word(s, n, to).await;
        taken_from(s.renew(&claim, LEASE).await);
        lost(s.release(free(&claim)).await);
        lost(s.settle(&claim, nobody_knows()).await);
    }
}

async fn check_word<B: Bed>(s: &Stage<B>, n: u64, to: semel_core::store::Resolution) {
    use semel_core::store::Resolution;
    let was = s.the_record(n).await;
    let target = Target { identity: &id(n), fence: was.fence.expect("it was granted"), resolver: s.owner() };
    let before = s.now().await;
    let raised = resolved(s.store.resolve(target, &to).await);
    assert!(raised > target.fence);
    let r = s.the_record(n).await;
    assert!(r.belongs_to(target.resolver, raised), "{r:?}");
    near_time(r.expires_at, before + TTL);
    assert_eq!(r.attempt, was.attempt);
    match to {
        Resolution::Completed { rest, .. } => {
            assert_eq!((r.state, r.flags, r.rest), (StateCode::Done, Flags::BODY_KEPT, rest));
            assert_eq!(r.fingerprint.digest(), was.fingerprint.digest());
            found(s.claim(about(n)).await);
        }
        Resolution::Failed { rest, .. } => {
            assert_eq!((r.state, r.flags, r.rest), (StateCode::Free, Flags::NONE, rest));
            assert_eq!(r.fingerprint.digest(), &[0; 32]);
            let next = granted(s.claim(AskFor { fingerprint: asked(2), ..about(n) }).await);
            assert_eq!(next.attempt(), was.attempt + 1);
        }
        other => panic!("no such word in this suite: {other:?}"),
    }
}

pub async fn a_word_about_what_was_not_seen_is_a_conflict<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.settle(&claim, nobody_knows()).await);
    let was = s.the_record(1).await;
    for off in [-1, 1] {
        let fence = Fence::new(claim.fence().get().saturating_add_signed(off));
        conflict(s.resolve(&Record { fence, ..was.clone() }, 1, completed()).await);
    }
    same(&s.the_record(1).await, &was);
}

pub async fn a_word_about_nothing_is_a_conflict<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.settle(&claim, nobody_knows()).await);
    let was = s.the_record(1).await;
    assert!(conflict(s.resolve(&was, 2, completed()).await).is_none());
    s.advance(TTL + AFTER).await;
    conflict(s.resolve(&was, 1, failed()).await);
    assert!(s.record(1).await.is_none() && s.record(2).await.is_none());
}

pub async fn what_is_clear_cannot_be_resolved<B: Bed>(s: &Stage<B>) {
    let (finished, freed) = (s.hold(1).await, s.hold(2).await);
    stands(s.settle(&finished, done("x")).await);
    stands(s.release(free(&freed)).await);
    for n in [1, 2] {
        let was = s.the_record(n).await;
        conflict(s.resolve(&was, n, completed()).await);
        conflict(s.resolve(&was, n, failed()).await);
        same(&s.the_record(n).await, &was);
    }
}

pub async fn the_second_word_is_a_conflict<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.settle(&claim, nobody_knows()).await);
    let was = s.the_record(1).await;
    resolved(s.resolve(&was, 1, completed()).await);
    let said = s.the_record(1).await;
    conflict(s.resolve(&was, 1, failed()).await);
    same(&s.the_record(1).await, &said);
}

/// The owner comes back after a person spoke: *it took place* stands; *it did not* gives way to what is known.
pub async fn a_completion_after_a_persons_word<B: Bed>(s: &Stage<B>) {
    let (one, two) = (s.hold(1).await, s.hold(2).await);
    stands(s.settle(&one, nobody_knows()).await);
    stands(s.settle(&two, nobody_knows()).await);
    resolved(s.resolve(&s.the_record(1).await, 1, completed()).await);
    resolved(s.resolve(&s.the_record(2).await, 2, failed()).await);
    let said = s.the_record(1).await;
    same(&lost(s.settle(&one, done("the owner's")).await), &said);
    same(&s.the_record(1).await, &said);
    restored(s.settle(&two, done("the owner's")).await);
    assert_eq!(in_state(s.record(2).await, StateCode::Done).rest, answer("the owner's"));
}

//! One-time tokens: issued, used once, extended, withdrawn.

use super::prelude::*;

fn used(n: u64) -> AskFor {
    AskFor { needs_token: true, ..about(n) }
}

#[track_caller]
fn issued(answer: Result<Issued, semel_core::store::StoreError>) -> StoreTime {
    match answer {
        Ok(Issued::Issued { expires_at }) => expires_at,
        other => panic!("expected a token, got {other:?}"),
    }
}

pub async fn an_issued_token_is_free_and_nobodys<B: Bed>(s: &Stage<B>) {
    let before = s.now().await;
    let end = issued(s.store.issue(&token(1)).await);
    near_time(end, before + TTL);
    let r = in_state(s.record(1).await, StateCode::Free);
    assert_eq!((r.expires_at, r.attempt, r.flags, r.fence), (end, 0, Flags::ISSUED, None));
    assert_eq!((r.fingerprint.digest(), &r.rest), (&[0; 32], &plain()));
}

pub async fn a_token_never_lives_longer_than_it_may<B: Bed>(s: &Stage<B>) {
    let before = s.now().await;
    let end = issued(s.store.issue(&NewToken { ttl: 5 * TTL, max_life: TTL, ..token(1) }).await);
    near_time(end, before + TTL);
}

pub async fn a_token_is_used_once<B: Bed>(s: &Stage<B>) {
    issued(s.store.issue(&token(1)).await);
    let claim = granted(s.claim(used(1)).await);
    assert_eq!((claim.attempt(), s.the_record(1).await.flags), (1, Flags::ISSUED));
    found(s.claim(used(1)).await);
    stands(s.settle(&claim, done("used")).await);
    let r = in_state(s.record(1).await, StateCode::Done);
    assert_eq!(r.flags, Flags::ISSUED.with(Flags::BODY_KEPT));
    let ask = s.ask(used(1));
    assert!(matches!(judged(&ask, found(s.store.claim(&ask).await)), Judgement::Replay(_)));
}

pub async fn a_token_can_be_claimed_by_who_needs_none<B: Bed>(s: &Stage<B>) {
    issued(s.store.issue(&token(1)).await);
    s.hold(1).await;
    found(s.claim(used(1)).await);
}

pub async fn what_was_not_issued_is_not_granted<B: Bed>(s: &Stage<B>) {
    let ask = s.ask(used(1));
    let (record, now) = found(s.store.claim(&ask).await);
    assert!(record.is_none() && matches!(judged(&ask, (record, now)), Judgement::NotIssued));
    assert!(s.record(1).await.is_none());
    // A record that is free but was never a token is none.
    let claim = s.hold(1).await;
    stands(s.release(free(&claim)).await);
    let ask = s.ask(used(1));
    assert!(matches!(judged(&ask, found(s.store.claim(&ask).await)), Judgement::NotIssued));
    s.hold(1).await;
}

pub async fn a_token_whose_time_is_over_was_not_issued<B: Bed>(s: &Stage<B>) {
    issued(s.store.issue(&token(1)).await);
    s.advance(TTL + AFTER).await;
    let ask = s.ask(used(1));
    assert!(matches!(judged(&ask, found(s.store.claim(&ask).await)), Judgement::NotIssued));
    assert!(s.record(1).await.is_none());
    issued(s.store.issue(&token(1)).await);
    granted(s.claim(used(1)).await);
}

pub async fn a_released_token_is_issued_again<B: Bed>(s: &Stage<B>) {
    issued(s.store.issue(&token(1)).await);
    let first = granted(s.claim(used(1)).await);
    stands(s.release(free(&first)).await);
    assert_eq!(in_state(s.record(1).await, StateCode::Free).flags, Flags::ISSUED);
    let second = granted(s.claim(used(1)).await);
    assert_eq!(second.attempt(), 2);
    assert!(second.fence() > first.fence());
    // Also after a person said that it did not take place.
    stands(s.settle(&second, nobody_knows()).await);
    assert!(s.the_record(1).await.flags.has(Flags::ISSUED));
    resolved(s.resolve(&s.the_record(1).await, 1, failed()).await);
    granted(s.claim(used(1)).await);
}

pub async fn an_abandoned_use_leaves_the_token<B: Bed>(s: &Stage<B>) {
    issued(s.store.issue(&token(1)).await);
    let ask = s.ask(used(1));
    granted(s.store.claim(&ask).await);
    stands(s.release(abandon(&ask)).await);
    assert_eq!(granted(s.claim(used(1)).await).attempt(), 1);
}

pub async fn what_is_there_is_not_issued_again<B: Bed>(s: &Stage<B>) {
    issued(s.store.issue(&token(0)).await);
    let claims = [s.hold(1).await, s.hold(2).await, s.hold(3).await, s.hold(4).await];
    stands(s.settle(&claims[1], done("x")).await);
    stands(s.settle(&claims[2], nobody_knows()).await);
    stands(s.release(free(&claims[3])).await);
    for n in 0..5 {
        let was = s.the_record(n).await;
        assert_eq!(s.store.issue(&token(n)).await.expect("the store works"), Issued::Exists);
        same(&s.the_record(n).await, &was);
    }
}

pub async fn an_extension_goes_to_the_end_of_the_tokens_life_and_never_back<B: Bed>(s: &Stage<B>) {
    let start = s.now().await;
    let end = issued(s.store.issue(&token(1)).await);
    let was = s.the_record(1).await;
    assert_eq!(until(s.store.extend(&id(1), TTL / 2).await), end);
    same(&s.the_record(1).await, &was);
    near_time(until(s.store.extend(&id(1), 2 * TTL).await), start + 2 * TTL);
    near_time(until(s.store.extend(&id(1), 9 * TTL).await), start + 3 * TTL);
    near_time(s.the_record(1).await.expires_at, start + 3 * TTL);
    s.advance(3 * TTL - AFTER).await;
    near_time(until(s.store.extend(&id(1), TTL).await), start + 3 * TTL);
    granted(s.claim(used(1)).await);
}

pub async fn only_an_unused_token_is_extended<B: Bed>(s: &Stage<B>) {
    assert!(no_token(s.store.extend(&id(0), TTL).await).is_none());
    let claims = [s.hold(0).await, s.hold(1).await];
    stands(s.release(free(&claims[1])).await);
    issued(s.store.issue(&token(2)).await);
    granted(s.claim(used(2)).await);
    for n in 0..3 {
        let was = s.the_record(n).await;
        same(&no_token(s.store.extend(&id(n), 9 * TTL).await).expect("it is there"), &was);
        same(&s.the_record(n).await, &was);
    }
    issued(s.store.issue(&token(3)).await);
    s.advance(TTL + AFTER).await;
    assert!(no_token(s.store.extend(&id(3), TTL).await).is_none());
    assert!(s.record(3).await.is_none());
}

pub async fn an_unused_token_can_be_withdrawn<B: Bed>(s: &Stage<B>) {
    issued(s.store.issue(&token(1)).await);
    assert!(s.store.withdraw(&id(1)).await.expect("the store works"));
    assert!(s.record(1).await.is_none());
    assert!(!s.store.withdraw(&id(1)).await.expect("the store works"));
    let ask = s.ask(used(1));
    assert!(matches!(judged(&ask, found(s.store.claim(&ask).await)), Judgement::NotIssued));
    issued(s.store.issue(&token(1)).await);
}

pub async fn only_an_unused_token_is_withdrawn<B: Bed>(s: &Stage<B>) {
    let claims = [s.hold(0).await, s.hold(1).await];
    stands(s.release(free(&claims[1])).await);
    issued(s.store.issue(&token(2)).await);
    let running = granted(s.claim(used(2)).await);
    for n in 0..3 {
        let was = s.the_record(n).await;
        assert!(!s.store.withdraw(&id(n)).await.expect("the store works"));
        same(&s.the_record(n).await, &was);
    }
    stands(s.settle(&running, done("x")).await);
    assert!(!s.store.withdraw(&id(2)).await.expect("the store works"));
    assert_eq!(s.the_record(2).await.state, StateCode::Done);
}

//! Takeover: another owner after the lease, where the record says so.

use super::prelude::*;

const GRACE: Duration = Duration::from_secs(120);

fn takeover(n: u64) -> AskFor {
    AskFor { takeover: true, grace: GRACE, ..about(n) }
}

pub async fn the_record_decides_on_takeover_not_the_claimant<B: Bed>(s: &Stage<B>) {
    granted(s.claim(about(1)).await);
    granted(s.claim(takeover(2)).await);
    s.advance(LEASE + GRACE + AFTER).await;
    found(s.claim(takeover(1)).await);
    // The newcomer does not ask for it, the record allows it; and what the newcomer wants holds from now on.
    let next = granted(s.claim(AskFor { grace: GRACE, ..about(2) }).await);
    assert_eq!((next.attempt(), s.the_record(2).await.flags), (2, Flags::NONE));
    s.advance(LEASE + GRACE + AFTER).await;
    found(s.claim(takeover(2)).await);
}

pub async fn a_takeover_waits_for_the_lease_and_the_grace<B: Bed>(s: &Stage<B>) {
    let first = granted(s.claim(takeover(1)).await);
    let ask = s.ask(takeover(1));
    s.advance(LEASE - AFTER / 2).await;
    assert!(matches!(judged(&ask, found(s.store.claim(&ask).await)), Judgement::InFlight(_)));
    s.advance(AFTER).await;
    let answer = judged(&ask, found(s.store.claim(&ask).await));
    let Judgement::InFlight(running) = answer else { panic!("the grace is not over: {answer:?}") };
    near(running.left, GRACE - AFTER / 2);
    s.advance(GRACE).await;
    let second = granted(s.store.claim(&ask).await);
    assert_eq!(second.attempt(), 2);
    assert!(second.fence() > first.fence());
}

pub async fn a_takeover_begins_a_lease_and_an_end_of_its_own<B: Bed>(s: &Stage<B>) {
    granted(s.claim(takeover(1)).await);
    s.advance(LEASE + GRACE + AFTER).await;
    let ask = s.ask(AskFor { rest: words("the second"), ..takeover(1) });
    let before = s.now().await;
    let claim = granted(s.store.claim(&ask).await);
    let r = in_state(s.record(1).await, StateCode::InFlight);
    assert!(r.belongs_to(ask.owner(), claim.fence()));
    near_time(r.lease_until, before + LEASE);
    assert_eq!((r.expires_at.since(r.lease_until), r.flags, &r.rest), (HOLD + KEEP, Flags::TAKEOVER, &ask.rest));
    found(s.claim(takeover(1)).await);
}

pub async fn a_takeover_asks_the_same_question<B: Bed>(s: &Stage<B>) {
    granted(s.claim(takeover(1)).await);
    s.advance(LEASE + GRACE + AFTER).await;
    let was = s.the_record(1).await;
    let other = s.ask(AskFor { fingerprint: asked(2), ..takeover(1) });
    assert!(matches!(judged(&other, found(s.store.claim(&other).await)), Judgement::Mismatch));
    let version = semel_core::fingerprint::Version { algorithm: 2, parameters: 0 };
    let fingerprint = semel_core::fingerprint::Fingerprint::stored(version, [1; 32]);
    found(s.claim(AskFor { fingerprint, ..takeover(1) }).await);
    same(&s.the_record(1).await, &was);
    granted(s.claim(takeover(1)).await);
}

pub async fn a_renewed_lease_is_not_taken_over<B: Bed>(s: &Stage<B>) {
    let claim = granted(s.claim(takeover(1)).await);
    for _ in 0..3 {
        s.advance(LEASE + GRACE - AFTER / 2).await;
        left(&s.renew(&claim, LEASE).await, LEASE);
    }
    found(s.claim(takeover(1)).await);
    stands(s.settle(&claim, done("x")).await);
}

pub async fn a_completion_after_takeover_is_refused<B: Bed>(s: &Stage<B>) {
    let first = granted(s.claim(takeover(1)).await);
    s.advance(LEASE + GRACE + AFTER).await;
    let second = granted(s.claim(takeover(1)).await);
    let was = s.the_record(1).await;
    let newer = lost(s.settle(&first, done("late")).await);
    assert!(newer.belongs_to(second.owner(), second.fence()));
    lost(s.settle(&first, nobody_knows()).await);
    lost(s.release(free(&first)).await);
    lost(s.release(park(&first)).await);
    let newer = taken_from(s.renew(&first, LEASE).await);
    assert!(newer.belongs_to(second.owner(), second.fence()));
    same(&s.the_record(1).await, &was);
    stands(s.settle(&second, done("second")).await);
    lost(s.settle(&first, done("late")).await);
    assert_eq!(s.the_record(1).await.rest, answer("second"));
}

//! Claims: who is granted, who finds what is there.

use super::prelude::*;

pub async fn the_first_claim_is_granted<B: Bed>(s: &Stage<B>) {
    let ask = s.ask(AskFor { rest: words("whatever core wrote"), ..about(1) });
    let before = s.now().await;
    let claim = granted(s.store.claim(&ask).await);
    assert_eq!((claim.identity(), claim.owner(), claim.attempt()), (&ask.identity, ask.owner(), 1));
    let r = in_state(s.record(1).await, StateCode::InFlight);
    assert!(r.is_readable() && r.belongs_to(claim.owner(), claim.fence()) && r.fingerprint.same(&asked(1)));
    assert_eq!((r.attempt, r.flags, &r.rest), (1, Flags::NONE, &ask.rest));
    near_time(r.lease_until, before + LEASE);
    assert_eq!(r.expires_at.since(r.lease_until), HOLD + KEEP);
}

pub async fn a_grant_says_what_is_left_of_it<B: Bed>(s: &Stage<B>) {
    match s.claim(about(1)).await {
        Ok(semel_core::store::Claimed::Granted { left, now, .. }) => {
            near(left, LEASE);
            near_time(now, s.now().await);
        }
        other => panic!("expected a grant, got {other:?}"),
    }
}

pub async fn a_second_claim_finds_the_first<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    let was = s.the_record(1).await;
    let second = s.ask(about(1));
    let (record, now) = found(s.store.claim(&second).await);
    same(&record.clone().expect("the first one is there"), &was);
    let Judgement::InFlight(running) = judged(&second, (record, now)) else { panic!("somebody runs") };
    near(running.left, LEASE);
    assert_eq!(running.fence, Some(claim.fence()));
    same(&s.the_record(1).await, &was);
}

pub async fn identities_do_not_meet<B: Bed>(s: &Stage<B>) {
    for n in 0..100 {
        assert_eq!(s.hold(n).await.attempt(), 1);
    }
}

pub async fn every_client_sees_the_same_records<B: Bed>(s: &Stage<B>) {
    let other = s.bed.client().await;
    let claim = s.hold(1).await;
    found(other.claim(&s.ask(about(1))).await);
    stands(other.settle(&claim, &done("by the other")).await);
    same(&s.the_record(1).await, &other.get(&id(1)).await.expect("the store works").record.expect("it is here"));
    assert_eq!(s.the_record(1).await.state, StateCode::Done);
}

pub async fn a_late_claim_is_refused<B: Bed>(s: &Stage<B>) {
    let not_after = s.now().await + AFTER;
    let ask = s.ask(AskFor { not_after, ..about(1) });
    s.advance(2 * AFTER).await;
    late(s.store.claim(&ask).await);
    assert!(s.record(1).await.is_none());
    // Nor is it told what is there.
    s.hold(1).await;
    late(s.store.claim(&ask).await);
}

pub async fn a_claim_in_time_is_not_late<B: Bed>(s: &Stage<B>) {
    let not_after = s.now().await + 2 * AFTER;
    s.advance(AFTER).await;
    granted(s.claim(AskFor { not_after, ..about(1) }).await);
}

/// A lost reply: the same owner asks again and is told what was granted.
pub async fn a_claim_sent_again_finds_its_own_grant<B: Bed>(s: &Stage<B>) {
    let ask = s.ask(about(1));
    let first = granted(s.store.claim(&ask).await);
    let was = s.the_record(1).await;
    let again = judged(&ask, found(s.store.claim(&ask).await));
    let Judgement::Again { claim, left } = again else { panic!("it is its own grant: {again:?}") };
    assert_eq!((claim.fence(), claim.attempt(), claim.owner()), (first.fence(), 1, first.owner()));
    near(left, LEASE);
    same(&s.the_record(1).await, &was);
    stands(s.settle(&claim, done("once")).await);
}

pub async fn a_claim_sent_again_after_its_lease_finds_its_own_grant<B: Bed>(s: &Stage<B>) {
    let ask = s.ask(AskFor { takeover: true, ..about(1) });
    granted(s.store.claim(&ask).await);
    s.advance(LEASE + AFTER).await;
    let again = judged(&ask, found(s.store.claim(&ask).await));
    assert!(matches!(again, Judgement::Again { left: Duration::ZERO, .. }), "{again:?}");
}

/// A copy of a claim that wandered about while its call was settled takes nothing, even where the record is free.
pub async fn a_stray_copy_of_a_settled_claim_takes_nothing<B: Bed>(s: &Stage<B>) {
    for (n, settle) in ["free", "parked", "done", "unknown"].into_iter().enumerate() {
        let n = n as u64;
        let ask = s.ask(about(n));
        let claim = granted(s.store.claim(&ask).await);
        stands(match settle {
            "free" => s.release(free(&claim)).await,
            "parked" => s.release(park(&claim)).await,
            "done" => s.settle(&claim, done("x")).await,
            _ => s.settle(&claim, nobody_knows()).await,
        });
        let was = s.the_record(n).await;
        let stray = judged(&ask, found(s.store.claim(&ask).await));
        assert!(matches!(stray, Judgement::Late), "{settle}: {stray:?}");
        same(&s.the_record(n).await, &was);
    }
}

pub async fn a_free_record_takes_another_body<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.release(free(&claim)).await);
    let other = granted(s.claim(AskFor { fingerprint: asked(2), ..about(1) }).await);
    assert_eq!(other.attempt(), 2);
    assert!(s.the_record(1).await.fingerprint.same(&asked(2)));
}

pub async fn a_record_in_flight_does_not_expire_before_its_unknown<B: Bed>(s: &Stage<B>) {
    s.hold(1).await;
    s.advance(LEASE + HOLD + KEEP - AFTER).await;
    let was = s.the_record(1).await;
    let ask = s.ask(about(1));
    let answer = judged(&ask, found(s.store.claim(&ask).await));
    let Judgement::Unknown { since, .. } = answer else { panic!("nobody can tell: {answer:?}") };
    assert_eq!(since, was.lease_until);
    s.advance(2 * AFTER).await;
    assert!(s.record(1).await.is_none());
    assert_eq!(s.hold(1).await.attempt(), 1);
}

pub async fn a_lease_that_is_over_is_no_leave_to_run<B: Bed>(s: &Stage<B>) {
    s.hold(1).await;
    s.advance(LEASE + AFTER).await;
    let was = s.the_record(1).await;
    assert_eq!(was.reads_as(s.now().await), StateCode::Unknown);
    let ask = s.ask(AskFor { takeover: true, ..about(1) });
    let answer = judged(&ask, found(s.store.claim(&ask).await));
    assert!(matches!(answer, Judgement::Unknown { .. }), "{answer:?}");
    same(&s.the_record(1).await, &was);
}

pub async fn a_record_that_ended_is_as_good_as_none<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.settle(&claim, done("x")).await);
    s.advance(TTL + AFTER).await;
    assert!(s.record(1).await.is_none());
    let ask = s.ask(AskFor { fingerprint: asked(2), ..about(1) });
    assert_eq!(granted(s.store.claim(&ask).await).attempt(), 1);
    assert_eq!(s.the_record(1).await.flags, Flags::NONE);
}

pub async fn what_is_settled_is_never_claimed<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.settle(&claim, done("x")).await);
    let claim = s.hold(2).await;
    stands(s.settle(&claim, nobody_knows()).await);
    let claim = s.hold(3).await;
    stands(s.release(park(&claim)).await);
    let states = [StateCode::Done, StateCode::Unknown, StateCode::Parked];
    for (n, state) in (1..).zip(states) {
        let was = in_state(s.record(n).await, state);
        s.advance(LEASE + AFTER).await;
        for fingerprint in [asked(1), asked(2)] {
            let (record, _) = found(s.claim(AskFor { fingerprint, takeover: true, ..about(n) }).await);
            same(&record.expect("it is there"), &was);
        }
        same(&s.the_record(n).await, &was);
    }
}

/// What the store wrote is counted where it can be; its records are compared in any case.
pub async fn a_duplicate_writes_nothing<B: Bed>(s: &Stage<B>) {
    let running = s.hold(1).await;
    let claim = s.hold(2).await;
    stands(s.settle(&claim, done("x")).await);
    let settled = s.hold(3).await;
    stands(s.settle(&settled, nobody_knows()).await);
    let (was, written) = ([1, 2, 3], s.bed.written().await);
    let mut before = Vec::new();
    for n in was {
        before.push(s.the_record(n).await);
    }
    let size = s.store.health().await.expect("the store works");
    for _ in 0..20 {
        for n in was {
            found(s.claim(about(n)).await);
            found(s.claim(AskFor { fingerprint: asked(2), takeover: true, ..about(n) }).await);
        }
    }
    assert_eq!(s.bed.written().await, written);
    let after = s.store.health().await.expect("the store works");
    assert_eq!((after.records, after.bytes), (size.records, size.bytes));
    for (n, before) in was.into_iter().zip(&before) {
        same(&s.the_record(n).await, before);
    }
    stands(s.settle(&running, done("still mine")).await);
}

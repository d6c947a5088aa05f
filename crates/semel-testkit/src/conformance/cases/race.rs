//! Many at once: whoever comes together, one is granted, and every answer fits one order of events.

use std::sync::Arc;

use semel_core::store::{Claim, Claimed, Settled, StoreAdmin};
use tokio::task::JoinSet;

use super::prelude::*;

/// As many tasks at once as there are in `asks`, on `clients` in turn.
async fn claim_at_once<B: Bed>(s: &Stage<B>, asks: Vec<Ask>) -> Vec<Claimed> {
    let clients: Vec<Arc<dyn StoreAdmin>> = vec![Arc::clone(&s.store), s.bed.client().await];
    let start = Arc::new(tokio::sync::Barrier::new(asks.len()));
    let mut tasks = JoinSet::new();
    for (n, ask) in asks.into_iter().enumerate() {
        let (store, start) = (Arc::clone(&clients[n % clients.len()]), Arc::clone(&start));
        tasks.spawn(async move {
            start.wait().await;
            store.claim(&ask).await.expect("the store works")
        });
    }
    tasks.join_all().await
}

fn grants(answers: Vec<Claimed>) -> Vec<Claim> {
    let grant = |answer| match answer {
        Claimed::Granted { claim, .. } => Some(claim),
        Claimed::Found { .. } | Claimed::Late { .. } => None,
    };
    answers.into_iter().filter_map(grant).collect()
}

pub async fn of_many_claims_at_once_one_is_granted<B: Bed>(s: &Stage<B>) {
    for n in 0..20 {
        let asks = (0..40).map(|_| s.ask(about(n))).collect();
        let granted = grants(claim_at_once(s, asks).await);
        let [claim] = granted.as_slice() else { panic!("{} were granted", granted.len()) };
        assert!(s.the_record(n).await.belongs_to(claim.owner(), claim.fence()));
    }
}

pub async fn of_many_copies_of_one_claim_one_is_granted<B: Bed>(s: &Stage<B>) {
    for n in 0..20 {
        let ask = s.ask(about(n));
        let granted = grants(claim_at_once(s, vec![ask; 20]).await);
        assert_eq!(granted.len(), 1);
    }
}

pub async fn of_many_takeovers_at_once_one_is_granted<B: Bed>(s: &Stage<B>) {
    let takeover = |n| AskFor { takeover: true, ..about(n) };
    for n in 0..10 {
        granted(s.claim(takeover(n)).await);
    }
    s.advance(LEASE + AFTER).await;
    for n in 0..10 {
        let asks = (0..40).map(|_| s.ask(takeover(n))).collect();
        let granted = grants(claim_at_once(s, asks).await);
        assert_eq!(granted.iter().map(Claim::attempt).collect::<Vec<_>>(), [2]);
    }
}

pub async fn of_many_uses_of_a_token_at_once_one_is_granted<B: Bed>(s: &Stage<B>) {
    for n in 0..10 {
        let _ = s.store.issue(&token(n)).await.expect("the store works");
        let asks = (0..40).map(|_| s.ask(AskFor { needs_token: true, ..about(n) })).collect();
        assert_eq!(grants(claim_at_once(s, asks).await).len(), 1);
    }
}

pub async fn claims_of_different_keys_do_not_wait_for_each_other<B: Bed>(s: &Stage<B>) {
    let asks = (0..400).map(|n| s.ask(about(n))).collect();
    assert_eq!(grants(claim_at_once(s, asks).await).len(), 400);
}

/// Owners that claim and release in turn: never two at once, and the fences tell the order.
pub async fn a_claim_and_a_release_never_overlap<B: Bed>(s: &Stage<B>) {
    let holders = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..16_u8 {
        let (store, holders) = (s.bed.client().await, Arc::clone(&holders));
        let owners: Vec<_> = (0..40).map(|_| s.owner()).collect();
        tasks.spawn(async move {
            let mut fences = Vec::new();
            for owner in owners {
                let ask = Ask::new(owner, AskFor { fingerprint: asked(task), ..about(1) });
                if let Claimed::Granted { claim, .. } = store.claim(&ask).await.expect("the store works") {
                    use std::sync::atomic::Ordering::SeqCst;
                    assert_eq!(holders.fetch_add(1, SeqCst), 0, "two hold one claim");
                    tokio::task::yield_now().await;
                    assert_eq!(holders.fetch_sub(1, SeqCst), 1, "two hold one claim");
                    stands(store.release(&free(&claim)).await);
                    fences.push((claim.fence(), claim.attempt()));
                }
                tokio::task::yield_now().await;
            }
            assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
            fences
        });
    }
    let mut fences: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    fences.sort_unstable();
    let attempts: Vec<_> = fences.iter().map(|(_, attempt)| *attempt).collect();
    let expected: Vec<_> = (1..).take(fences.len()).collect();
    assert!(!fences.is_empty() && attempts == expected, "fence and attempt tell different orders: {fences:?}");
}

/// An owner that was slow and another that took over settle at the same moment: one outcome, and the other is told.
pub async fn of_two_settlements_at_once_one_stands<B: Bed>(s: &Stage<B>) {
    for n in 0..20 {
        let takeover = || AskFor { takeover: true, ..about(n) };
        let first = granted(s.claim(takeover()).await);
        s.advance(LEASE + AFTER).await;
        let second = granted(s.claim(takeover()).await);
        let mut tasks = JoinSet::new();
        for (claim, body) in [(first, "first"), (second, "second")] {
            let store = s.bed.client().await;
            tasks.spawn(async move { (body, store.settle(&claim, &done(body)).await.expect("the store works")) });
        }
        let stood: Vec<_> =
            tasks.join_all().await.into_iter().filter(|(_, a)| matches!(a, Settled::Ok { .. })).collect();
        assert_eq!(stood.iter().map(|(body, _)| *body).collect::<Vec<_>>(), ["second"]);
        assert_eq!(s.the_record(n).await.rest, answer("second"));
    }
}

/// A claim that finds nothing free and the release that frees it: whatever the order, the record is as one of them left it.
pub async fn a_settlement_and_an_abandonment_at_once_fit_one_order<B: Bed>(s: &Stage<B>) {
    for n in 0..40 {
        let ask = s.ask(about(n));
        let claim = granted(s.store.claim(&ask).await);
        let (settler, quitter) = (s.bed.client().await, s.bed.client().await);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { settler.settle(&claim, &done("x")).await.expect("the store works") });
        tasks.spawn(async move { quitter.release(&abandon(&ask)).await.expect("the store works") });
        let answers = tasks.join_all().await;
        // The outcome is known: it stands over a free record as over one in flight.
        assert_eq!(in_state(s.record(n).await, StateCode::Done).rest, answer("x"));
        let refused = answers.iter().filter(|a| matches!(a, Settled::Lost(r) if r.state == StateCode::Done)).count();
        let stood = answers.iter().filter(|a| matches!(a, Settled::Ok { restored: false })).count();
        assert!(stood + refused == 2 && stood >= 1, "{answers:?}");
    }
}

pub async fn of_two_words_at_once_one_stands<B: Bed>(s: &Stage<B>) {
    for n in 0..20 {
        let claim = s.hold(n).await;
        stands(s.settle(&claim, nobody_knows()).await);
        let fence = claim.fence();
        let mut tasks = JoinSet::new();
        for to in [completed(), failed()] {
            let (store, resolver) = (s.bed.client().await, s.owner());
            tasks.spawn(async move {
                let identity = id(n);
                let target = Target { identity: &identity, fence, resolver };
                store.resolve(target, &to).await.expect("the store works")
            });
        }
        let answers = tasks.join_all().await;
        let stood = answers.iter().filter(|a| matches!(a, semel_core::store::Resolved::Ok(_))).count();
        assert_eq!(stood, 1, "{answers:?}");
    }
}

/// The caller went away in the middle: the call took place or did not, and the store goes on.
pub async fn a_dropped_call_loses_only_its_answer<B: Bed>(s: &Stage<B>) {
    use std::{future::Future, task::Context};
    for n in 0..40 {
        let ask = s.ask(about(n));
        {
            let mut call = std::pin::pin!(s.store.claim(&ask));
            let mut cx = Context::from_waker(std::task::Waker::noop());
            for _ in 0..n % 3 {
                if call.as_mut().poll(&mut cx).is_ready() {
                    break;
                }
            }
        }
        let claim = match s.store.claim(&ask).await.expect("the store works") {
            Claimed::Granted { claim, .. } => claim,
            Claimed::Found { record, now } => match judged(&ask, (record, now)) {
                Judgement::Again { claim, .. } => claim,
                other => panic!("neither taken nor free: {other:?}"),
            },
            late @ Claimed::Late { .. } => panic!("it was in time: {late:?}"),
        };
        assert_eq!(claim.attempt(), 1);
        stands(s.settle(&claim, done("x")).await);
    }
}

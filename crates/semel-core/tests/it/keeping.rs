//! Leases: renewed, overdue, lost, forgotten by the store; the keeper and its runtime.

use std::{sync::Arc, time::Duration};

use semel_core::{
    engine::{Answer, Begin, Broken, Engine, Kept, Ran, Run, Verdict},
    env::Env,
    identity::Secret,
    policy::{OnInFlight, Policy},
    record::StateCode,
    refusal::Refusal,
    store::{Capacity, Did, MemoryStore, Resolution, StoreAdmin, Target},
    testing,
};
use semel_testkit::{
    clock::ManualClock,
    faults::{Fault, Faults, Op},
};
use tokio::{runtime::Runtime, task::JoinHandle};

use crate::shared::Away;
use crate::stage::{Ignore as _, Stage, after, answer, call_on, go, millis, outcome, refusal, said, secs, text};

#[tokio::test(start_paused = true)]
async fn a_lease_is_held_through_work_ten_leases_long() {
    let stage = Stage::new();
    let neighbour = stage.neighbour();
    let running = stage.run(stage.call(1), secs(100), "charged");
    for _ in 0..9 {
        after(secs(10)).await;
        let met = neighbour.engine.begin(stage.call_with(1, Policy::key().on_in_flight(OnInFlight::Reject))).await;
        assert!(matches!(met, Begin::Refused(Refusal::InFlight { .. })), "{met:?}");
    }
    assert_eq!(answer(&running.await.unwrap()), "charged");
    assert_eq!(stage.told(), ["granted 1", "settled keep Stored"]);
    let renewals = stage.store.count(Op::Renew);
    assert!((23..=30).contains(&renewals), "{renewals}");
}

#[tokio::test(start_paused = true)]
async fn what_is_due_soon_is_renewed_with_what_is_due() {
    let stage = Stage::new();
    let running: Vec<_> = (0..100).map(|n| stage.run(stage.call(n), secs(100), "charged")).collect();
    for run in running {
        assert_eq!(answer(&run.await.unwrap()), "charged");
    }
    // 100 leases are due about 27 times each.
    let calls = stage.store.count(Op::Renew);
    assert!(calls < 150, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_tells_the_work_whose_completion_is_accepted_all_the_same() {
    let stage = Stage::new();
    let start = tokio::time::Instant::now();
    let running = {
        let engine = stage.engine.clone();
        let call = stage.call(1);
        go(async move {
            let work = async move |run: Run| {
                run.lost().cancelled().await;
                assert!(!run.still_good());
                let told_after = start.elapsed();
                after(secs(60)).await;
                Ran { value: told_after, verdict: Verdict::Keep(outcome("charged")) }
            };
            engine.run(call, work).await
        })
    };
    after(secs(1)).await;
    stage.store.outage(Some(Did::Nothing));
    after(secs(30)).await;
    assert!(stage.told().contains(&"leaseoverdue".to_owned()));
    assert_eq!(stage.state(1).await, Some((StateCode::Unknown, 1)));
    stage.store.outage(None);
    let Answer::Executed { value, kept } = running.await.unwrap() else { panic!("not run") };
    assert_eq!(kept, Kept::Stored);
    assert!((millis(9_500)..millis(9_510)).contains(&value), "told after {value:?}");
    assert_eq!(stage.state(1).await, Some((StateCode::Done, 1)));
    stage.is_quiet().await;
}

/// The lease of a record whose part of the store is away ends; those of all others are renewed, with one call for each part.
#[tokio::test(start_paused = true)]
async fn a_part_of_the_store_that_is_away_costs_no_other_lease() {
    for how in [Away::Failing, Away::Silent] {
        let stage = Stage::far();
        let running: Vec<_> = (0..4)
            .map(|n| {
                let (engine, call) = (stage.engine.clone(), stage.call(n));
                let work = async move |run: Run| {
                    after(secs(60)).await;
                    Ran { value: run.still_good(), verdict: Verdict::Keep(outcome("charged")) }
                };
                go(async move { engine.run(call, work).await })
            })
            .collect();
        after(secs(1)).await;
        stage.store.inner().take_away(stage.id(0), how);
        for (n, run) in running.into_iter().enumerate() {
            let Answer::Executed { value, kept } = run.await.unwrap() else { panic!("not run") };
            assert_eq!((value, kept), (n != 0, Kept::Stored), "{n}");
        }
        let told = stage.told();
        assert_eq!(told.iter().filter(|what| *what == "leaseoverdue").count(), 1, "{told:?}");
        assert!(!told.iter().any(|what| what.contains("breaker")), "{told:?}");
        stage.is_quiet().await;
    }
}

/// A renewal that hangs is no reason to hear of a deadline late.
#[tokio::test(start_paused = true)]
async fn a_slow_renewal_delays_nobodys_deadline() {
    let stage = Stage::new();
    let short = stage.call_with(1, Policy::key().lease(millis(300)));
    for nth in 1..=20 {
        stage.store.fail(Op::Renew, nth, Fault::HoldCall);
    }
    let start = tokio::time::Instant::now();
    let (engine, call) = (stage.engine.clone(), short);
    let work = async move |run: Run| {
        run.lost().cancelled().await;
        Ran { value: start.elapsed(), verdict: Verdict::Keep(outcome("charged")) }
    };
    let Answer::Executed { value, .. } = engine.run(call, work).await else { panic!("not run") };
    // The renewal is sent after 100 ms at least, and given up 250 ms later; the deadline is at 285 ms.
    assert!(value <= millis(287), "told after {value:?}");
    assert!(stage.told().contains(&"leaseoverdue".to_owned()));
}

/// Another took over: the late settlement is refused with what is recorded instead, and the work was told.
#[tokio::test(start_paused = true)]
async fn a_lost_lease_refuses_to_settle() {
    let stage = Stage::new();
    let neighbour = stage.neighbour();
    let call = || stage.call_with(1, Policy::key().takeover(Duration::ZERO));
    let (engine, mine) = (stage.engine.clone(), call());
    let running = go(async move {
        let work = async move |run: Run| {
            run.lost().cancelled().await;
            after(secs(5)).await;
            said("mine")
        };
        engine.run(mine, work).await
    });
    after(secs(1)).await;
    // For the store the lease is over, and by local time it is not.
    stage.store_clock.step(secs(60));
    assert_eq!(answer(&neighbour.ran(call(), secs(1), "theirs").await), "theirs");
    let Answer::Executed { kept: Kept::Lost { recorded: Some(recorded) }, .. } = running.await.unwrap() else {
        panic!("not lost")
    };
    assert_eq!(text(&recorded), "theirs");
    assert_eq!(stage.told(), ["granted 1", "leaselost", "latesettlementrefused", "settled keep Lost"]);
    assert_eq!(stage.state(1).await, Some((StateCode::Done, 2)));
    stage.is_quiet().await;
}

/// A lost lease was forgotten by the keeper, and with it `max_hold`: work that does not listen ran for good.
#[tokio::test(start_paused = true)]
async fn max_hold_stops_work_whose_lease_was_lost() {
    let stage = Stage::new();
    let neighbour = stage.neighbour();
    let call = || stage.call_with(1, Policy::key().takeover(Duration::ZERO).max_hold(secs(60)));
    let running = stage.run(call(), secs(1_000_000), "never");
    after(secs(1)).await;
    stage.store_clock.step(secs(60));
    assert_eq!(answer(&neighbour.ran(call(), secs(1), "theirs").await), "theirs");
    assert!(matches!(running.await.unwrap(), Answer::Broken(Broken::Overheld)));
    assert_eq!(stage.effects(), 1);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_completion_after_a_persons_word_is_refused_and_told() {
    let stage = Stage::new();
    let Begin::Granted(grant) = stage.engine.begin(stage.call(1)).await else { panic!("not granted") };
    stage.store.outage(Some(Did::Nothing));
    after(secs(11)).await;
    let record = stage.record(1).await.unwrap();
    let resolver = semel_core::Owner::from_bytes([9; 16]);
    let target = Target { identity: &stage.id(1), fence: record.fence.unwrap(), resolver };
    let failed = Resolution::Failed { keep: secs(60), rest: stage.record_meta() };
    let _resolved = stage.store.inner().resolve(target, &failed).await.unwrap();
    let _next = stage.neighbour().ran(stage.call(1), secs(1), "another").await;
    stage.store.outage(None);
    stage.told();
    let kept = grant.settle(Verdict::Keep(outcome("late"))).await;
    assert!(matches!(&kept, Kept::Lost { recorded: Some(r) } if text(r) == "another"), "{kept:?}");
    assert_eq!(stage.told(), ["latesettlementrefused", "settled keep Lost"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_lost_is_claimed_again_by_the_same_owner() {
    let stage = Stage::new();
    let (engine, call) = (stage.engine.clone(), stage.call(1));
    let running = go(async move {
        let work = async move |run: Run| {
            let before = run.fence();
            after(secs(30)).await;
            assert!(run.still_good());
            assert_eq!(run.fence(), before);
            said("charged")
        };
        engine.run(call, work).await
    });
    after(secs(1)).await;
    let before = stage.record(1).await.unwrap();
    stage.forget(1);
    assert_eq!(stage.state(1).await, None);
    after(secs(10)).await;
    let again = stage.record(1).await.unwrap();
    assert_eq!((again.state, again.owner), (StateCode::InFlight, before.owner));
    assert!(again.fence > before.fence);
    let got = running.await.unwrap();
    assert!(matches!(got, Answer::Executed { kept: Kept::Stored, .. }), "{got:?}");
    let done = stage.record(1).await.unwrap();
    assert_eq!((done.state, done.fence), (StateCode::Done, again.fence));
    assert_eq!(stage.told(), ["granted 1", "recordmissing", "store forgot", "settled keep Stored"]);
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "never").await), "charged");
    stage.is_quiet().await;
}

/// The reply to claiming again was lost too, both times: the record is ours under a fence that nobody here has seen.
#[tokio::test(start_paused = true)]
async fn a_settlement_finds_the_fence_of_a_claim_whose_reply_was_lost() {
    for work in [millis(4_600), secs(30)] {
        let stage = Stage::new();
        let running = stage.run(stage.call(1), work, "charged");
        after(secs(1)).await;
        stage.forget(1);
        stage.store.fail(Op::Claim, 1, Fault::LoseReply);
        stage.store.fail(Op::Claim, 2, Fault::LoseReply);
        let got = running.await.unwrap();
        assert!(matches!(got, Answer::Executed { kept: Kept::Stored, .. }), "{got:?}");
        assert_eq!(stage.store.pending(), 0);
        assert_eq!(stage.state(1).await, Some((StateCode::Done, 1)));
        let told = stage.told();
        assert!(!told.contains(&"leaselost".to_owned()), "{told:?}");
        stage.is_quiet().await;
    }
}

/// Lost is only what the store calls another's: no answer is no loss.
#[tokio::test(start_paused = true)]
async fn claiming_again_goes_on_until_the_store_answers() {
    let stage = Stage::new();
    let running = stage.run(stage.call(1), secs(60), "charged");
    after(secs(1)).await;
    stage.forget(1);
    for n in 1..=3 {
        stage.store.fail(Op::Claim, n, Fault::Refuse);
    }
    after(secs(20)).await;
    assert_eq!(stage.state(1).await, Some((StateCode::InFlight, 1)));
    let got = running.await.unwrap();
    assert!(matches!(got, Answer::Executed { kept: Kept::Stored, .. }), "{got:?}");
    let told = stage.told();
    assert!(told.contains(&"store forgot".to_owned()) && !told.contains(&"leaselost".to_owned()), "{told:?}");
}

/// While the claim was on its way, the keeper found it due and not there, again and again without a pause.
#[tokio::test(start_paused = true)]
async fn a_keeper_does_not_spin_while_a_claim_is_away() {
    let stage = Stage::new();
    let running = stage.run(stage.call(1), secs(60), "charged");
    after(secs(1)).await;
    stage.forget(1);
    stage.store.fail(Op::Claim, 1, Fault::HoldCall);
    stage.store.fail(Op::Claim, 2, Fault::HoldCall);
    let before = stage.looks();
    after(secs(10)).await;
    let looks = stage.looks() - before;
    assert!(looks < 200, "{looks}");
    assert_eq!(answer(&running.await.unwrap()), "charged");
}

#[tokio::test(start_paused = true)]
async fn what_the_store_lost_and_gave_to_another_is_lost() {
    let stage = Stage::new();
    let neighbour = stage.neighbour();
    let running = stage.run(stage.call(1), secs(30), "mine");
    after(secs(1)).await;
    stage.forget(1);
    assert_eq!(answer(&neighbour.ran(stage.call(1), secs(1), "theirs").await), "theirs");
    let got = running.await.unwrap();
    assert!(matches!(got, Answer::Executed { kept: Kept::Lost { recorded: Some(_) }, .. }), "{got:?}");
    assert!(stage.told().contains(&"leaselost".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_completion_of_what_the_store_lost_is_restored() {
    let stage = Stage::new();
    let running = stage.run(stage.call(1), secs(2), "charged");
    after(secs(1)).await;
    stage.forget(1);
    let got = running.await.unwrap();
    assert!(matches!(got, Answer::Executed { kept: Kept::Restored, .. }), "{got:?}");
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "never").await), "charged");
}

#[tokio::test(start_paused = true)]
async fn settling_waits_for_a_renewal_on_its_way() {
    let stage = Stage::new();
    stage.store.fail(Op::Renew, 1, Fault::HoldReply);
    let store = stage.store.clone();
    let (engine, call) = (stage.engine.clone(), stage.call(1));
    let running = go(async move {
        let work = async move |_run: Run| {
            while store.count(Op::Renew) == 0 {
                after(millis(1)).await;
            }
            said("charged")
        };
        engine.run(call, work).await
    });
    while stage.store.count(Op::Renew) == 0 {
        after(millis(1)).await;
    }
    after(millis(100)).await;
    assert_eq!(stage.store.count(Op::Settle), 0);
    stage.store.let_go();
    assert_eq!(answer(&running.await.unwrap()), "charged");
    assert_eq!(stage.store.count(Op::Settle), 1);
}

#[tokio::test(start_paused = true)]
async fn the_keeper_sleeps_when_nothing_is_held() {
    let stage = Stage::new();
    stage.ran(stage.call(1), secs(1), "charged").await.ignore();
    after(secs(60)).await;
    let before = stage.looks();
    after(secs(86_400)).await;
    assert_eq!(stage.looks(), before);
    assert_eq!(answer(&stage.ran(stage.call(2), secs(60), "charged").await), "charged");
    assert!(stage.store.count(Op::Renew) > 10);
}

/// A process may run several runtimes, or one after the other: the keeper, and a renewal on its way, die with theirs.
#[test]
fn the_keeper_starts_again_when_its_runtime_is_gone() {
    let clock = ManualClock::new();
    let env = Env { clock: Arc::new(clock.clone()), ..testing_env() };
    let store = Arc::new(Faults::new(MemoryStore::new(&env, Capacity::default())));
    let secret = Secret::from_material(b"the tests' own secret").unwrap();
    let engine = Engine::builder(Arc::clone(&store) as _, secret).env(env).build();
    let call = |n: u64| call_on(&engine, n);

    let first = runtime();
    store.fail(Op::Renew, 1, Fault::HoldReply);
    let grant = first.block_on(async {
        let Begin::Granted(grant) = engine.begin(call(1)).await else { panic!("not granted") };
        while store.count(Op::Renew) == 0 {
            clock.advance(millis(500));
            turns().await;
        }
        grant
    });
    drop(first);

    let second = runtime();
    second.block_on(async {
        // The renewal that died had the claim.
        let settling: JoinHandle<Kept> = go(grant.settle(Verdict::Keep(outcome("charged"))));
        turns().await;
        assert!(settling.is_finished());
        assert_eq!(settling.await.unwrap(), Kept::Stored);
        let Begin::Granted(grant) = engine.begin(call(2)).await else { panic!("not granted") };
        for _ in 0..60 {
            clock.advance(millis(500));
            turns().await;
        }
        assert!(grant.still_good());
        assert_eq!(grant.settle(Verdict::Keep(outcome("charged"))).await, Kept::Stored);
        let drained = engine.drain(secs(1)).await;
        assert_eq!(drained.abandoned, 0);
    });
}

fn testing_env() -> Env {
    Env { rng: Arc::new(testing::Seeded::new(7)), ..Env::system() }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Gives every task some turns.
async fn turns() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_at_max_hold_though_its_holder_keeps_it() {
    let stage = Stage::new();
    let call = || stage.call_with(1, Policy::key().max_hold(secs(60)));
    let Begin::Granted(grant) = stage.engine.begin(call()).await else { panic!("not granted") };
    after(secs(50)).await;
    assert!(grant.still_good());
    let lost = grant.run().lost();
    after(secs(25)).await;
    assert!(!grant.still_good() && lost.is_cancelled());
    let refused = refusal(stage.neighbour().ran(call(), secs(1), "never").await);
    assert!(matches!(refused, Refusal::OutcomeUnknown { .. }), "{refused:?}");
    assert_eq!(grant.settle(Verdict::Keep(outcome("charged"))).await, Kept::Stored);
    stage.is_quiet().await;
}

/// What is left of a lease is left from when it was asked for: the answer may have been on its way for long.
#[tokio::test(start_paused = true)]
async fn a_renewed_lease_counts_from_the_sending_of_its_renewal() {
    let stage = Stage::new();
    stage.store.fail(Op::Renew, 1, Fault::HoldReply);
    let Begin::Granted(grant) = stage.engine.begin(stage.call(1)).await else { panic!("not granted") };
    while stage.store.count(Op::Renew) == 0 {
        after(millis(1)).await;
    }
    let sent = tokio::time::Instant::now();
    after(millis(240)).await;
    stage.store.outage(Some(Did::Nothing));
    stage.store.let_go();
    grant.run().lost().cancelled().await;
    // Ten seconds less five per cent.
    assert!((millis(9_490)..millis(9_510)).contains(&sent.elapsed()), "good for {:?}", sent.elapsed());
    stage.store.outage(None);
    drop(grant);
    stage.is_quiet().await;
}

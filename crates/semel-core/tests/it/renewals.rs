//! Renewals that are not answered, and those that find the record in other hands.

use std::time::Duration;

use semel_core::{
    engine::{Answer, Begin, Kept, Ran, Run, Verdict},
    policy::Policy,
    record::{Record, StateCode},
};
use semel_testkit::faults::{Fault, Op};

use crate::{
    shared::Away,
    stage::{Ignore, Stage, after, answer, go, millis, outcome, secs},
};

/// A process that stood still for longer than its lease: the clock says so before anybody was told.
#[tokio::test(start_paused = true)]
async fn a_lease_is_over_by_the_clock_before_that_is_told() {
    let stage = Stage::new();
    let Begin::Granted(grant) = stage.engine.begin(stage.call(1)).await else { panic!("not granted") };
    assert!(grant.still_good());
    stage.clock.step(secs(10));
    assert!(!grant.still_good() && !grant.run().lost().is_cancelled());
    drop(grant);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_is_tried_again_soon() {
    let stage = Stage::new();
    stage.store.fail(Op::Renew, 1, Fault::Refuse);
    let running = stage.run(stage.call(1), secs(30), "charged");
    while stage.store.count(Op::Renew) == 0 {
        after(millis(1)).await;
    }
    // A twelfth of the lease, and a quarter of that; the usual time is three seconds and more.
    after(millis(1_200)).await;
    assert_eq!(stage.store.count(Op::Renew), 2);
    assert_eq!(answer(&running.await.unwrap()), "charged");
}

/// There is nothing left to renew or to claim where another has taken over.
#[tokio::test(start_paused = true)]
async fn a_lease_that_another_took_over_is_neither_renewed_nor_claimed_again() {
    let stage = Stage::new();
    let neighbour = stage.neighbour();
    let call = || stage.call_with(1, Policy::key().takeover(Duration::ZERO));
    let running = stage.run(call(), secs(60), "mine");
    after(secs(1)).await;
    stage.store_clock.step(secs(60));
    let theirs = neighbour.run(call(), secs(50), "theirs");
    after(secs(6)).await;
    assert!(stage.told().contains(&"leaselost".to_owned()));
    let renewals = stage.store.count(Op::Renew);
    after(secs(30)).await;
    assert_eq!((stage.store.count(Op::Renew), stage.store.count(Op::Claim)), (renewals, 1));
    assert_eq!(answer(&theirs.await.unwrap()), "theirs");
    let got = running.await.unwrap();
    assert!(matches!(got, Answer::Executed { kept: Kept::Lost { recorded: Some(_) }, .. }), "{got:?}");
}

/// The service itself may complete its record, in a transaction of its own: nothing is lost by that.
#[tokio::test(start_paused = true)]
async fn a_record_that_its_own_service_settled_is_not_lost() {
    let stage = Stage::new();
    let (engine, call) = (stage.engine.clone(), stage.call(1));
    let running = go(async move {
        let work = async move |run: Run| {
            after(secs(8)).await;
            Ran { value: run.lost().is_cancelled(), verdict: Verdict::Keep(outcome("charged")) }
        };
        engine.run(call, work).await
    });
    after(secs(1)).await;
    let record = stage.record(1).await.unwrap();
    stage.store.inner().memory().plant(&stage.id(1), Some(Record { state: StateCode::Done, ..record }));
    let got = running.await.unwrap();
    assert!(matches!(got, Answer::Executed { value: false, kept: Kept::Stored }), "{got:?}");
    assert!(!stage.told().contains(&"leaselost".to_owned()));
}

/// What one part of a store does not answer, however often, says nothing about the others.
#[tokio::test(start_paused = true)]
async fn a_part_of_the_store_that_is_silent_does_not_open_the_breaker() {
    let stage = Stage::far();
    let running = stage.run(stage.call_with(1, Policy::key().lease(secs(1))), secs(15), "charged");
    after(millis(10)).await;
    stage.store.inner().take_away(stage.id(1), Away::Silent);
    after(secs(14)).await;
    assert!(stage.store.count(Op::Renew) > 25, "{}", stage.store.count(Op::Renew));
    assert!(!stage.told().contains(&"breakeropened".to_owned()));
    running.await.unwrap().ignore();
}

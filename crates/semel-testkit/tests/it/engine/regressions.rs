//! What the simulation or a reader once found.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use semel_core::{
    Owner,
    engine::{Answer, Begin, Broken, Call, Engine, OnCancel, Ran, Run, Verdict},
    fingerprint::Fingerprint,
    policy::Policy,
    record::{Record, StateCode},
    store::{Capacity, MemoryStore},
};
use semel_testkit::{
    faults::{Fault, Faults, Op},
    sim::{Node, Sim},
};

use super::client::{identity, secret};

struct World {
    sim: Sim,
    node: Node,
    store: Arc<Faults<MemoryStore>>,
    engine: Engine,
}

fn world() -> World {
    let sim = Sim::new(1);
    let node = sim.node();
    let env = sim.env(&node);
    let store = Arc::new(Faults::new(MemoryStore::new(&env, Capacity::default())));
    let engine = Engine::builder(Arc::clone(&store) as _, secret()).env(env).build();
    World { sim, node, store, engine }
}

fn call() -> Call {
    Call::new(identity(1), Fingerprint::NONE, Policy::key().build().expect("the defaults are possible"))
}

impl World {
    fn until<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        let done = Arc::new(parking_lot::Mutex::new(None));
        let out = Arc::clone(&done);
        self.node.start(async move { *out.lock() = Some(task.await) });
        self.sim.run(|| done.lock().is_some()).expect("it ends");
        let value = done.lock().take();
        value.expect("it has ended")
    }

    fn sleep(&self, d: Duration) {
        let clock = self.sim.clock();
        self.until(async move { clock.sleep_until(clock.now() + d).await });
    }

    fn state(&self) -> Option<StateCode> {
        let engine = self.engine.clone();
        self.until(async move { engine.status(&identity(1)).await }).expect("the store works").map(|r| r.state)
    }
}

/// While a claim that the store had lost was claimed again, its renewal stayed due: the keeper looked at it in a busy
/// loop until the store answered; and a store that did not answer at once was taken for another owner.
#[test]
fn the_keeper_sleeps_while_a_lost_claim_is_claimed_again() {
    let w = world();
    let engine = w.engine.clone();
    let Begin::Granted(grant) = w.until(async move { engine.begin(call()).await }) else { panic!("nobody else runs") };
    w.store.inner().plant(&identity(1), None);
    w.store.fail(Op::Claim, 1, Fault::HoldCall);
    w.store.fail(Op::Claim, 2, Fault::HoldCall);
    // Would not come to its end.
    w.sleep(Duration::from_secs(9));
    assert!(w.store.count(Op::Renew) < 6 && grant.still_good());
    drop(grant);
    w.sleep(Duration::from_secs(1));
    assert_eq!(w.state(), Some(StateCode::Unknown));
}

/// A claim of a caller that never ends was renewed for ever: to no effect in the store until its record ended, and then
/// it was claimed again.
#[test]
fn a_claim_is_not_renewed_beyond_max_hold() {
    let w = world();
    let engine = w.engine.clone();
    let Begin::Granted(grant) = w.until(async move { engine.begin(call()).await }) else { panic!("nobody else runs") };
    w.sleep(Duration::from_secs(700));
    let renewals = w.store.count(Op::Renew);
    w.sleep(Duration::from_secs(700));
    assert_eq!(w.store.count(Op::Renew), renewals);
    assert!(!grant.still_good());
    drop(grant);
    w.sleep(Duration::from_secs(1));
    assert_eq!(w.state(), Some(StateCode::Unknown));
}

/// Work whose claim was lost to another owner was forgotten by the keeper, and with it its end at `max_hold`.
#[test]
fn work_ends_at_max_hold_also_when_its_claim_is_lost() {
    let w = world();
    let (engine, ended) = (w.engine.clone(), Arc::new(AtomicUsize::new(0)));
    let flag = Arc::clone(&ended);
    w.node.start(async move {
        let answer = engine.run(call(), async |_| std::future::pending::<Ran<()>>().await).await;
        assert!(matches!(answer, Answer::Broken(Broken::Overheld)), "{answer:?}");
        flag.store(1, Ordering::SeqCst);
    });
    w.sleep(Duration::from_secs(1));
    // Another owner's record comes back from a backup.
    let engine = w.engine.clone();
    let record = w.until(async move { engine.status(&identity(1)).await }).expect("the store works");
    let other = Record { owner: Owner::from_bytes([9; 16]), ..record.expect("it runs") };
    w.store.inner().plant(&identity(1), Some(other));
    w.sleep(Duration::from_secs(700));
    assert_eq!((ended.load(Ordering::SeqCst), w.engine.load().running), (1, 0));
}

/// A closure that panicked while it made the work was taken for work that had not begun.
#[test]
fn a_panic_of_inline_work_before_its_first_poll_is_unknown() {
    let w = world();
    let (engine, begun) = (w.engine.clone(), Arc::new(AtomicUsize::new(0)));
    let counts = Arc::clone(&begun);
    let work = move |_: Run| -> std::future::Ready<Ran<()>> {
        counts.fetch_add(1, Ordering::SeqCst);
        std::panic::resume_unwind(Box::new("as planned"))
    };
    let unwound = w.until(async move {
        let mut run = std::pin::pin!(engine.run_inline(call(), OnCancel::Unknown, work));
        std::future::poll_fn(|cx| {
            let polled = std::panic::catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx)));
            polled.map_or(std::task::Poll::Ready(true), |p| p.map(|_| false))
        })
        .await
    });
    w.sleep(Duration::from_secs(1));
    assert!(unwound && begun.load(Ordering::SeqCst) == 1);
    assert_eq!(w.state(), Some(StateCode::Unknown));
    let engine = w.engine.clone();
    let again = w.until(async move {
        engine.run(call(), async |_| Ran { value: (), verdict: Verdict::Unknown { last: None } }).await
    });
    assert!(matches!(again, Answer::Refused(_)), "{again:?}");
}

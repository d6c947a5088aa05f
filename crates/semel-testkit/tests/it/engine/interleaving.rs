//! The engine under schedules that shuttle chooses: every await is a place where another task goes first.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use semel_core::{
    engine::{Engine, Load},
    env::{BoxFuture, Clock, Env, Tasks},
    policy::Policy,
    store::{Capacity, MemoryStore, Store},
};
use semel_testkit::{
    checker::{Collector, check},
    clock::ManualClock,
    sim::{Climate, GivingWay, Seeded, Weather, give_way},
};
use shuttle::{
    Config, Runner,
    rand::RngCore,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};

use super::{
    client::{Visit, identity, name, secret},
    crowd::Crowd,
    reports,
};

const KEYS: u64 = 2;
const SECOND: Duration = Duration::from_secs(1);

struct ShuttleTasks;

impl Tasks for ShuttleTasks {
    fn spawn(&self, _name: &'static str, future: BoxFuture) -> bool {
        drop(shuttle::future::spawn(future));
        true
    }
}

/// Lets time pass in random steps, as far as the next who sleeps now and then; never so fast that nobody else moves.
async fn time_passes(clock: ManualClock, random: Seeded, over: Arc<AtomicBool>) {
    while !over.load(Ordering::SeqCst) {
        shuttle::future::yield_now().await;
        let next = clock.next_wake().filter(|_| random.one_in(4)).map(|next| next.since(clock.now()));
        clock.advance(next.unwrap_or_default().min(SECOND / 2).max(random.upto(SECOND / 100)));
    }
}

/// Gives up after `turns` of its own.
async fn leaves(turns: u64) {
    for _ in 0..turns {
        give_way().await;
    }
}

fn one_world() {
    let random = Seeded::new(shuttle::rand::thread_rng().next_u64());
    let clock = ManualClock::new();
    let env =
        Env { clock: Arc::new(GivingWay(clock.clone())), rng: Arc::new(random.fork()), tasks: Arc::new(ShuttleTasks) };
    let store = Arc::new(MemoryStore::new(&env, Capacity::default()));
    let weather = Weather::new(Arc::clone(&store), Arc::clone(&env.clock), Arc::new(ShuttleTasks), random.fork());
    let trouble = |often: u64| if random.one_in(2) { often } else { 0 };
    weather.set(Climate { lose_reply: trouble(8), lose_call: trouble(8), refuse: trouble(8), ..Climate::default() });
    let is_far = random.one_in(2);
    if is_far {
        weather.be_shared();
    }
    let policy = Policy::key().max_hold(30 * SECOND).build().expect("the policy is possible");
    let engine = || Engine::builder(Arc::new(weather.clone()), secret()).env(env.clone()).build();
    let engines = [engine(), engine()];
    let (collector, crowd) = (Collector::new(Arc::new(clock.clone())), Arc::new(Crowd::default()));
    shuttle::future::block_on(async {
        let over = Arc::new(AtomicBool::new(false));
        let time = shuttle::future::spawn(time_passes(clock.clone(), random.fork(), Arc::clone(&over)));
        let mut callers = Vec::new();
        for n in 0..2 + random.below(5) {
            let visit = Visit::random(&random, (n % 2) as usize, KEYS, SECOND);
            let going =
                visit.go(engines[(n % 2) as usize].clone(), Arc::clone(&policy), collector.clone(), Arc::clone(&crowd));
            let patience = random.one_in(4).then(|| random.below(40));
            callers.push(shuttle::future::spawn(async move {
                match patience {
                    None => going.await,
                    Some(turns) => {
                        tokio::select! {
                            biased;
                            () = leaves(turns) => {}
                            () = going => {}
                        }
                    }
                }
            }));
        }
        for caller in callers {
            caller.await.expect("a caller is told something");
        }
        weather.set(Climate::default());
        for engine in &engines {
            // Time may pass while those who have work are not let run.
            let mut left = usize::MAX;
            for _ in 0..20 {
                left = engine.drain(30 * SECOND).await.abandoned;
                if left == 0 {
                    break;
                }
            }
            assert_eq!(left, 0, "activities are left");
            assert_eq!(engine.load(), Load { running: 0, waiting: 0 });
        }
        over.store(true, Ordering::SeqCst);
        time.await.expect("time ends by itself");
    });
    clock.advance(20 * SECOND);
    for key in 0..KEYS {
        let seen = store.get(&identity(key)).try_ready().ok().and_then(Result::ok).expect("memory answers at once");
        collector.last(name(key), reports::last(seen.record.as_ref(), seen.now));
    }
    let report = check(&collector, &reports::STRICT);
    assert!(report.violations.is_empty(), "{report}");
    assert_eq!(*crowd.wrongs.lock(), [""; 0]);
}

/// Shuttle prints the schedule of a failure, for `shuttle::replay`.
fn explore(scheduler: impl Scheduler + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    Runner::new(scheduler, config).run(one_world);
}

#[test]
fn no_random_schedule_runs_twice_or_strands_anybody() {
    explore(RandomScheduler::new(300));
}

#[test]
fn no_schedule_with_few_preemptions_runs_twice_or_strands_anybody() {
    explore(PctScheduler::new(3, 150));
}

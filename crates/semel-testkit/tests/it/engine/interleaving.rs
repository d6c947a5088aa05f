//! The engine under schedules that shuttle chooses: every await is a place where another task goes first.
//!
//! Awaits are the only such places: what a task does between two of them, its locks and atomics among it, is one step.
//! A failure prints its schedule; `SEMEL_TEST_SCHEDULE` names a file with that schedule and runs it again.

use std::{
    ffi::OsStr,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
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
    scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler},
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

/// Whether nobody has leapt yet is looked at, and somebody else goes first before the leap.
async fn looks_and_leaps(turns: u64, leapt: Arc<AtomicU64>) {
    leaves(turns).await;
    if leapt.load(Ordering::SeqCst) == 0 {
        give_way().await;
        leapt.fetch_add(1, Ordering::SeqCst);
    }
}

fn one_world() {
    world(false);
}

/// The same with a bug in it that some schedules show.
fn planted_world() {
    world(true);
}

fn world(is_planted: bool) {
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
        let leapt = Arc::new(AtomicU64::new(0));
        if is_planted {
            callers.extend(
                [(); 2].map(|()| shuttle::future::spawn(looks_and_leaps(random.below(30), Arc::clone(&leapt)))),
            );
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
        let (leapt, calls) = (leapt.load(Ordering::SeqCst), collector.calls());
        assert!(leapt < 2, "{leapt} leapt; {calls} calls until {:?}", clock.now());
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

/// Names a file with the schedule of a failure.
const SCHEDULE: &str = "SEMEL_TEST_SCHEDULE";

/// Stands under the schedule that shuttle prints.
struct HowToRepeat;

impl Drop for HowToRepeat {
    #[expect(clippy::print_stderr, reason = "the story of a test that fails")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "to see it again, write what stands between the quotes into a file:\n    \
                 {SCHEDULE}=FILE cargo test -p semel-testkit --test it interleaving"
            );
        }
    }
}

/// Runs the world under schedule after schedule, or under the one that failed.
fn explore(scheduler: impl Scheduler + 'static, world: fn()) {
    let _how = HowToRepeat;
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    match std::env::var_os(SCHEDULE) {
        None => Runner::new(scheduler, config).run(world),
        Some(file) => {
            let schedule = ReplayScheduler::new_from_file(&file);
            let schedule = schedule.unwrap_or_else(|error| panic!("{SCHEDULE}={}: {error}", file.display()));
            Runner::new(schedule, config).run(world)
        }
    };
}

#[test]
fn no_random_schedule_runs_twice_or_strands_anybody() {
    explore(RandomScheduler::new(300), one_world);
}

#[test]
fn no_schedule_with_few_preemptions_runs_twice_or_strands_anybody() {
    explore(PctScheduler::new(3, 150), one_world);
}

/// Says to this test that it is the child, and how schedules are to be found.
const PLANTED: &str = "SEMEL_TEST_PLANTED";

#[test]
fn a_schedule_that_failed_fails_again_when_it_is_replayed() {
    match std::env::var(PLANTED).as_deref() {
        Ok("random") => return explore(RandomScheduler::new_from_seed(1, 300), planted_world),
        Ok("pct") => return explore(PctScheduler::new_from_seed(1, 3, 5_000), planted_world),
        _ => {}
    }
    for how in ["random", "pct"] {
        let found = fails(how, None);
        let (_, schedule) = found.split_once("failing schedule:\n\"\n").expect("it prints a schedule");
        let (schedule, _) = schedule.split_once("\n\"").expect("its end");
        assert!(found.contains(&format!("{SCHEDULE}=FILE")), "how to see it again is told: {found}");
        let file = std::env::temp_dir().join(format!("semel-schedule-{}-{how}", std::process::id()));
        std::fs::write(&file, schedule).expect("the schedule is kept");
        let again = fails(how, Some(&file));
        std::fs::remove_file(&file).expect("it is there");
        assert_eq!(leap(&found), leap(&again), "the same world to its end");
    }
}

/// Runs this test as a child with the planted bug, and returns what it said.
fn fails(how: &str, schedule: Option<&Path>) -> String {
    let mut child = Command::new(std::env::current_exe().expect("this test is a file"));
    let name = "engine::interleaving::a_schedule_that_failed_fails_again_when_it_is_replayed";
    child.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(PLANTED, how).env_remove(SCHEDULE);
    child.envs(schedule.map(|file| (OsStr::new(SCHEDULE), file)));
    let output = child.output().expect("it can be run once more");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{how}: no schedule showed what was planted: {said}");
    said
}

/// What the planted bug did, and what had come about in the world by then.
fn leap(said: &str) -> &str {
    said.lines().find(|line| line.contains("leapt;")).unwrap_or_else(|| panic!("nobody leapt: {said}"))
}

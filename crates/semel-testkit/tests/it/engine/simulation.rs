//! Thousands of small worlds, each from one number: two processes on one store, a bad network, crashes, pauses, outages, a
//! store that forgets, clocks that leap.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use semel_core::{
    engine::{Engine, Limits},
    env::{BoxFuture, Clock, Env, Rng, SystemRng, Tick},
    identity::Kind as KindOfIdentity,
    policy::Policy,
    record::Meta,
    store::{Did, Issued, MemoryStore, NewToken, Store},
};
use semel_testkit::{
    checker::{Collector, Fences, Promise, Report, check},
    sim::{Climate, Happened, Node, Seeded, Sim, Weather},
};

use super::{
    client::{Visit, identity, name, secret},
    crowd::Crowd,
    kinds::Kind,
    reports,
};

const SECOND: Duration = Duration::from_secs(1);
const KEYS: u64 = 3;

/// The store's clock: the world's, and what it leapt.
#[derive(Clone)]
struct Leaping {
    clock: Arc<dyn Clock>,
    ahead: Arc<std::sync::atomic::AtomicU64>,
}

impl Clock for Leaping {
    fn now(&self) -> Tick {
        self.clock.now() + Duration::from_nanos(self.ahead.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, _: Tick) -> BoxFuture {
        Box::pin(std::future::pending())
    }

    fn wall(&self) -> SystemTime {
        self.clock.wall()
    }
}

struct Process {
    node: Node,
    engine: Engine,
}

struct Scene {
    sim: Sim,
    random: Seeded,
    kind: Kind,
    weather: Weather<MemoryStore>,
    policy: Arc<Policy>,
    collector: Collector,
    /// Who works now, and what is wrong beside the history.
    crowd: Arc<Crowd>,
    leap: Leaping,
    processes: [Process; 2],
    network: Node,
    crashed: usize,
    /// Callers who have not been told anything yet and whose process lives.
    waiting: Arc<AtomicUsize>,
}

impl Scene {
    fn set(seed: u64) -> Self {
        let sim = Sim::new(seed);
        let random = sim.random();
        let kind = Kind::random(&random);
        let network = sim.node();
        let leap = Leaping { clock: sim.clock(), ahead: Arc::default() };
        let store_env = Env { clock: Arc::new(leap.clone()), ..sim.env(&network) };
        let store = Arc::new(MemoryStore::new(&store_env, kind.capacity(&random)));
        let weather = Weather::new(store, sim.clock(), Arc::new(network.clone()), sim.random());
        weather.set(kind.climate(&random));
        if kind.far {
            weather.be_shared();
        }
        let policy = kind.policy(&random);
        let start = || Process::start(&sim, &weather, kind);
        let processes = [start(), start()];
        let (collector, waiting) = (Collector::new(sim.clock()), Arc::default());
        let crowd = Arc::new(Crowd::new(kind.takeover || kind.forgets));
        Self { sim, random, kind, weather, policy, collector, crowd, leap, processes, network, crashed: 0, waiting }
    }

    /// Every key has its token, where one is needed.
    fn open(&self) {
        if self.kind.customs.tokens {
            (0..KEYS).for_each(|key| self.issue(key));
        }
    }

    /// Issues a token, unless there is one or something was done with it.
    fn issue(&self, key: u64) {
        let ttl = SECOND + self.random.upto(30 * SECOND);
        let meta = Meta {
            kind: KindOfIdentity::Key,
            parameters: 0,
            max_attempts: self.policy.max_attempts(),
            namespace: "http:sim",
            rule: self.policy.name(),
            key: "",
            credentials: None,
            request: None,
        };
        let token = NewToken { identity: identity(key), ttl, max_life: ttl, rest: meta.rest() };
        let issued = self.weather.inner().issue(&token).try_ready().ok().and_then(Result::ok);
        if matches!(issued, Some(Issued::Issued { .. })) {
            // Where the clock leaps it may end at any time; and stores count in microseconds.
            let holds = if self.kind.leaps { Duration::ZERO } else { ttl - Duration::from_millis(1) };
            self.collector.issued(name(key), holds);
        }
    }

    /// A caller comes to one of the processes, and may leave before it is told anything.
    fn visit(&self) {
        let which = usize::from(self.random.one_in(2));
        let process = &self.processes[which];
        let visit = Visit::random(&self.random, which + 2 * self.crashed, KEYS, 25 * SECOND)
            .under(self.kind.customs, &self.random);
        let going =
            visit.go(process.engine.clone(), Arc::clone(&self.policy), self.collector.clone(), Arc::clone(&self.crowd));
        let until = self.sim.clock().now() + self.random.upto(40 * SECOND);
        let leaves = self.random.one_in(6).then(|| self.sim.clock().sleep_until(until));
        let seat = Seat::take(&self.waiting);
        process.node.start(async move {
            let _seat = seat;
            match leaves {
                None => going.await,
                Some(leaves) => {
                    tokio::select! {
                        biased;
                        () = leaves => {}
                        () = going => {}
                    }
                }
            }
        });
    }

    fn crash(&mut self) {
        let which = usize::from(self.random.one_in(2));
        self.sim.kill(&self.processes[which].node);
        self.processes[which] = Process::start(&self.sim, &self.weather, self.kind);
        self.crashed += 1;
        self.collector.fault("crash");
    }

    fn forget(&self) {
        for key in 0..KEYS {
            if self.random.one_in(2) {
                self.weather.inner().plant(&identity(key), None);
                self.collector.forgot(Some(&name(key)));
                self.collector.fault("forget");
            }
        }
    }

    /// Something happens, now and then.
    fn fate(&mut self) {
        match self.random.below(8) {
            0 if self.kind.crashes => self.crash(),
            1 if self.kind.forgets => self.forget(),
            2 if self.kind.leaps => {
                let by = self.random.upto(30 * SECOND);
                let nanos = u64::try_from(by.as_nanos()).unwrap_or(0);
                self.leap.ahead.fetch_add(nanos, Ordering::SeqCst);
                self.collector.fault("leap");
            }
            3 if self.kind.outages => {
                let did = if self.random.one_in(2) { Did::Unknown } else { Did::Nothing };
                self.weather.outage(Some(did));
                self.collector.fault("outage");
                let (weather, clock) = (self.weather.clone(), self.sim.clock());
                let until = clock.now() + self.random.upto(20 * SECOND);
                self.network.start(async move {
                    clock.sleep_until(until).await;
                    weather.outage(None);
                });
            }
            4 | 5 if self.kind.pauses => self.pause(),
            6 if self.kind.customs.tokens => self.issue(self.random.below(KEYS)),
            _ => self.visit(),
        }
    }

    fn pause(&self) {
        let node = self.processes[usize::from(self.random.one_in(2))].node.clone();
        let (sim, clock) = (self.sim.clone(), self.sim.clock());
        let longer_than_a_lease = if self.random.one_in(2) { 11 * SECOND } else { Duration::ZERO };
        let until = clock.now() + longer_than_a_lease + self.random.upto(20 * SECOND);
        sim.pause(&node);
        self.network.start(async move {
            clock.sleep_until(until).await;
            sim.resume(&node);
        });
        self.collector.fault("pause");
    }

    fn run(&self, until: impl Fn() -> bool, what: &str) {
        if let Err(stuck) = self.sim.run(until) {
            self.crowd.wrongs.lock().push(format!(
                "{what}: {stuck:?}, {} callers wait, {:?}",
                self.waiting.load(Ordering::SeqCst),
                self.load()
            ));
        }
    }

    fn load(&self) -> Vec<semel_core::engine::Load> {
        self.processes.iter().map(|p| p.engine.load()).collect()
    }

    fn sleep(&self, d: Duration) {
        let clock = self.sim.clock();
        let until = clock.now() + d;
        let here = Arc::new(AtomicUsize::new(0));
        let there = Arc::clone(&here);
        let sleep = clock.sleep_until(until);
        self.network.start(async move {
            sleep.await;
            there.store(1, Ordering::SeqCst);
        });
        self.run(|| here.load(Ordering::SeqCst) == 1, "time passes");
    }

    /// The weather clears up; everything that was begun comes to an end.
    fn calm(&self) {
        self.weather.outage(None);
        self.weather.set(Climate::default());
        for process in &self.processes {
            self.sim.resume(&process.node);
        }
        self.run(|| self.waiting.load(Ordering::SeqCst) == 0, "callers wait");
        for process in &self.processes {
            let (engine, drained) = (process.engine.clone(), Arc::new(AtomicUsize::new(usize::MAX)));
            let out = Arc::clone(&drained);
            process.node.start(async move {
                let end = engine.drain(300 * SECOND).await;
                out.store(end.abandoned, Ordering::SeqCst);
            });
            self.run(|| drained.load(Ordering::SeqCst) != usize::MAX, "a drain");
            if drained.load(Ordering::SeqCst) != 0 {
                self.crowd.wrongs.lock().push(format!("{} activities are left", drained.load(Ordering::SeqCst)));
            }
        }
        for load in self.load() {
            if (load.running, load.waiting) != (0, 0) {
                self.crowd.wrongs.lock().push(format!("counters are left: {load:?}"));
            }
        }
        // Leases of the dead end, and so do calls that are late.
        self.sleep(20 * SECOND);
    }

    fn check(&self) -> Report {
        let store = self.weather.inner();
        for key in 0..KEYS {
            let seen = store.get(&identity(key)).try_ready().ok().and_then(Result::ok).expect("memory answers at once");
            self.collector.last(name(key), reports::last(seen.record.as_ref(), seen.now));
        }
        let kind = self.kind;
        // Where the store's clock leaps under a takeover, the effects need not come in the order of their fences.
        let fences = if kind.takeover && kind.leaps { Fences::Advisory } else { Fences::Rise };
        let promise = Promise {
            takeover: kind.takeover,
            open: kind.open,
            unread: kind.customs.versions,
            tokens: kind.customs.tokens,
            fences,
            in_flight_at_the_end: (kind.takeover || kind.open) && self.crashed > 0,
            after_success: reports::after_success(kind.bodies_go(), kind.rejects),
            ..reports::STRICT
        };
        check(&self.collector, &promise)
    }
}

impl Process {
    fn start(sim: &Sim, weather: &Weather<MemoryStore>, kind: Kind) -> Self {
        let node = sim.node();
        let limits = if kind.narrow { Limits { waiters_per_key: 2, ..Limits::default() } } else { Limits::default() };
        let engine = Engine::builder(Arc::new(weather.clone()), secret()).env(sim.env(&node)).limits(limits).build();
        Self { node, engine }
    }
}

/// Counts a caller while it lives.
struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(waiting: &Arc<AtomicUsize>) -> Self {
        waiting.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(waiting))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What one world showed.
struct Shown {
    kind: Kind,
    report: Report,
    wrongs: Vec<String>,
    happened: BTreeMap<Happened, u64>,
}

fn play(seed: u64) -> Shown {
    let mut scene = Scene::set(seed);
    scene.open();
    for _ in 0..4 + scene.random.below(20) {
        scene.fate();
        scene.sleep(scene.random.upto(4 * SECOND));
    }
    scene.calm();
    let report = scene.check();
    let wrongs = scene.crowd.wrongs.lock().clone();
    Shown { kind: scene.kind, report, wrongs, happened: scene.weather.happened() }
}

/// How many worlds that nobody has seen before are played beside those that are the same every time.
const NEW: u64 = 500;

/// The same worlds every time, and others. `SEMEL_TEST_SEED` plays one, `SEMEL_TEST_SEEDS` so many of the same and no others.
fn seeds() -> (Range<u64>, Range<u64>) {
    let number =
        |name: &str| std::env::var(name).ok().map(|v| v.parse::<u64>().unwrap_or_else(|_| panic!("{name}={v}")));
    if let Some(seed) = number("SEMEL_TEST_SEED") {
        return (seed..seed + 1, 0..0);
    }
    if let Some(same) = number("SEMEL_TEST_SEEDS") {
        return (0..same, 0..0);
    }
    let mut bytes = [0; 8];
    SystemRng.fill(&mut bytes);
    let new = u64::from_le_bytes(bytes) >> 20;
    (0..3_000, new..new + NEW)
}

/// Plays one world in which everything has to be as promised.
fn play_right(seed: u64) -> Shown {
    let shown = play(seed);
    let Shown { kind, report, wrongs, .. } = &shown;
    assert!(
        wrongs.is_empty() && report.violations.is_empty(),
        "{wrongs:#?} {report}\nin {kind:?}; to see it again: SEMEL_TEST_SEED={seed}"
    );
    shown
}

#[test]
fn in_every_world_effects_answers_and_records_agree() {
    let (fixed, new) = seeds();
    new.for_each(|seed| drop(play_right(seed)));
    let many = fixed.end - fixed.start >= 1_000;
    let (mut kinds, mut happened, mut faults) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
    let (mut taken_over, mut run_again, mut ended) = (0, 0, 0);
    for seed in fixed {
        let Shown { kind, report, happened: here, .. } = play_right(seed);
        for (what, n) in &report.faults {
            *faults.entry(what.clone()).or_insert(0) += n;
        }
        taken_over += report.doubles.takeover;
        run_again += report.doubles.loss;
        if !kind.forgets && !kind.tight {
            // Every token was issued, and none was lost.
            ended += report.told.get("refused, token-expired").copied().unwrap_or(0);
        }
        kinds.extend(report.told.into_keys());
        for (what, n) in here {
            *happened.entry(what).or_insert(0) += n;
        }
    }
    if many {
        let missing: Vec<_> = EXPECTED.iter().filter(|k| !kinds.contains(**k)).collect();
        assert!(missing.is_empty(), "never seen: {missing:?} in {kinds:?}");
        let unhappened: Vec<_> = Happened::ALL.iter().filter(|h| !happened.contains_key(h)).collect();
        let spared: Vec<_> = FAULTS.iter().filter(|f| !faults.contains_key(**f)).collect();
        assert!(unhappened.is_empty() && spared.is_empty(), "{happened:?} {faults:?}");
        let counts =
            [("taken over", taken_over), ("run again after a loss", run_again), ("tokens past their time", ended)];
        assert!(counts.iter().all(|(_, n)| *n > 0), "{counts:?}");
    }
}

/// What is done to a process or to the store; what the network does is [`Happened`].
const FAULTS: &[&str] = &["crash", "forget", "leap", "outage", "pause"];

/// Every kind of answer; a run that did not see one of them proves less than it says.
const EXPECTED: &[&str] = &[
    "executed, stored",
    "executed, restored",
    "executed, released",
    "executed, unknown",
    "executed, unrecorded",
    "executed, lost",
    "unguarded, stored",
    "unguarded, released",
    "unguarded, unknown",
    "unguarded, unrecorded",
    "unguarded, lost",
    "replayed, waited: true",
    "replayed, waited: false",
    "refused, in-flight",
    "refused, key-reused",
    "refused, outcome-unknown",
    "refused, outcome-unavailable",
    "refused, duplicate",
    "refused, duplicate under way",
    "refused, duplicate of a stranger's",
    "refused, token-expired",
    "refused, store-full",
    "refused, parked",
    "refused, store-unavailable",
    "refused, too-many-running",
    "refused, too-many-waiters",
    "broken, panicked",
    "broken, overheld",
];

#[test]
fn the_same_seed_shows_the_same_world() {
    for seed in 0..40 {
        let (one, two) = (play(seed), play(seed));
        assert_eq!((one.happened, one.wrongs), (two.happened, two.wrongs), "seed {seed}");
        assert_eq!(one.report.to_string(), two.report.to_string(), "seed {seed}");
    }
}

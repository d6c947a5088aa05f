//! Gateways before one store and one service, and a run of everything that can happen to them.

use std::{sync::Arc, time::Duration};

use semel_core::env::{BootClock, Rng, SystemRng};
use semel_testkit::{
    checker::{Collector, Promise, Report, check},
    sim::Seeded,
};

use super::{
    backing::Backing,
    fates::{Fate, shuffle},
    load::{Callers, WORKERS, witness},
    network::Network,
};
use crate::system::{
    alone,
    gateway::{Gateway, Setup},
    rounds,
    upstream::Upstream,
};

/// A second: long enough to be renewed in time on a busy machine, short enough to be outlasted in a test.
pub(super) const LEASE: Duration = Duration::from_secs(1);

/// Of every run with faults in it; a plan adds to it.
pub(super) const RULE: &str = "[drain]\ndeadline = \"1s\"\n[upstream.shop.timeout]\nfirst_byte = \"2s\"\nwhole = \"2s\"\n\
                    [[rule]]\nname = \"orders\"\nmatch = \"/*\"\nlease = \"1s\"\n";

/// Nobody waits long, so that some are told that it is in flight.
const HURRIED: &str = "on_in_flight = { wait = \"500ms\" }\n";

/// How long they wait.
pub(super) const HURRY: Duration = Duration::from_millis(500);

/// A gateway, as long as it runs, and the network between it and the store.
pub(super) struct Node {
    setup: Setup,
    pub(super) gateway: Option<Gateway>,
    pub(super) network: Option<Network>,
}

/// The whole of it.
pub(super) struct Field<B> {
    pub(super) backing: B,
    pub(super) callers: Callers,
    pub(super) nodes: Vec<Node>,
    pub(super) upstream: Upstream,
}

/// What a run is about.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) gateways: usize,
    /// More lines of the rule.
    pub(super) rule: &'static str,
    pub(super) promise: Promise,
    /// Labels of answers without which the run has proved too little.
    pub(super) expected: &'static [&'static str],
}

impl<B: Backing> Field<B> {
    /// `rules` is what comes after the store's section.
    pub(super) async fn set(backing: B, gateways: usize, of_store: &'static str, rules: &str) -> Self {
        let collector = Collector::new(Arc::new(BootClock));
        let upstream = Upstream::witnessed(witness(collector.clone())).await;
        let mut nodes = Vec::new();
        for _ in 0..gateways {
            let network = match backing.wire() {
                Some(wire) => Some(Network::before(&wire).await),
                None => None,
            };
            let url = backing.url(&network.as_ref().map(Network::addresses).unwrap_or_default());
            let setup = Setup::new(&upstream.url(), &url).with(rules);
            let setup = if url.contains("://") { setup.of_store(of_store) } else { setup };
            nodes.push(Node { setup, gateway: None, network });
        }
        let callers = Callers::new(collector);
        let mut field = Self { backing, callers, nodes, upstream };
        for n in 0..gateways {
            field.start(n).await;
        }
        field
    }

    /// Starts a gateway; a store that is about to come back may refuse it at first.
    pub(super) async fn start(&mut self, n: usize) {
        let mut said = String::new();
        for _ in 0..20 {
            let setup = self.nodes[n].setup.clone();
            match tokio::task::spawn_blocking(move || setup.try_start()).await.unwrap() {
                Ok(gateway) => {
                    self.callers.doors.set(n, Some(gateway.http));
                    self.nodes[n].gateway = Some(gateway);
                    return;
                }
                Err(words) => said = words,
            }
            tokio::time::sleep(LEASE / 5).await;
        }
        panic!("gateway {n} does not start: {said}");
    }

    pub(super) fn kill(&mut self, n: usize) {
        self.nodes[n].gateway.take().expect("all run between two fates").kill();
        self.callers.doors.set(n, None);
    }

    /// Asks it to end, while callers still come to its door for a moment.
    pub(super) async fn drain(&mut self, n: usize) {
        let mut gateway = self.nodes[n].gateway.take().expect("all run between two fates");
        gateway.terminate();
        tokio::time::sleep(LEASE / 20).await;
        self.callers.doors.set(n, None);
        tokio::task::spawn_blocking(move || gateway.ended(LEASE * 20)).await.unwrap();
    }

    /// Whatever happens first meets orders that are done: what a store forgets is asked for again at the end at the latest.
    async fn some_are_done(&self) {
        for _ in 0..600 {
            // Those of the callers who are at it now are not done yet.
            if self.upstream.count() > 2 * WORKERS {
                return;
            }
            tokio::time::sleep(LEASE / 20).await;
        }
        panic!("no orders are done, and nothing has happened: {}", self.said());
    }

    /// Whether all was seen that is to be seen; callers who are at it get some time for it.
    async fn shows(&self, plan: &Plan, faults: &[&str]) -> bool {
        for _ in 0..20 {
            // In the middle of it only what is counted counts.
            let report = check(&self.callers.collector, &plan.promise);
            if report.unseen(faults, plan.expected).is_empty() {
                return true;
            }
            tokio::time::sleep(LEASE / 2).await;
        }
        false
    }

    /// What the gateways said, for a run that failed.
    fn said(&self) -> String {
        let said = |(n, node): (usize, &Node)| {
            let text = node.gateway.as_ref().map(Gateway::said).unwrap_or_default();
            let lines: Vec<_> = text.lines().rev().take(15).collect();
            format!("gateway {n}:\n{}\n", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        self.nodes.iter().enumerate().map(said).collect()
    }
}

/// The seed of a run: `SEMEL_TEST_SEED`, or a new one.
fn seed() -> u64 {
    if let Ok(text) = std::env::var("SEMEL_TEST_SEED") {
        return text.parse().unwrap_or_else(|_| panic!("SEMEL_TEST_SEED={text}"));
    }
    let mut bytes = [0; 8];
    SystemRng.fill(&mut bytes);
    u64::from_le_bytes(bytes) >> 32
}

/// What a run showed.
pub(super) struct Shown {
    pub(super) report: Report,
    /// Faults that were to be done, and answers that were expected, and were not seen.
    unseen: Vec<&'static str>,
    said: String,
    seed: u64,
}

/// Lets everything happen once (times the scale), heals, waits until it is quiet, and checks. Fails when anything is
/// not as promised, or when a fault or an expected answer was not seen.
pub(super) async fn play<B: Backing>(backing: B, plan: &Plan) -> Report {
    let Shown { report, unseen, said, seed } = run(backing, plan).await;
    assert!(
        report.violations.is_empty() && unseen.is_empty(),
        "{report}never seen: {unseen:?}\n{said}to see this order of faults again: SEMEL_TEST_SEED={seed}"
    );
    report
}

/// How often everything happens at most, until all was seen that is to be seen.
const MOST: usize = 4;

/// The same without a verdict.
pub(super) async fn run<B: Backing>(backing: B, plan: &Plan) -> Shown {
    let _alone = alone().await;
    let seed = seed();
    // Whatever ends the run from here on, this is how to repeat it.
    tell(&format!("SEMEL_TEST_SEED={seed}"));
    let random = Seeded::new(seed);
    let (of_store, rules) = (backing.of_store(), format!("{RULE}{HURRIED}{}", plan.rule));
    let mut field = Field::set(backing, plan.gateways, of_store, &rules).await;
    let workers = field.callers.start(&random);
    let fates = Fate::all(&field.backing);
    field.some_are_done().await;
    let names = Fate::names(&fates, &field.backing);
    let mut times = 0;
    // What meets whom is chance: it goes on until everything was seen.
    while times < rounds(1) || (times < MOST * rounds(1) && !field.shows(plan, &names).await) {
        let mut order = fates.clone();
        shuffle(&mut order, &random);
        for fate in order {
            tokio::time::sleep(random.upto(LEASE)).await;
            field.happen(fate, &random).await;
        }
        times += 1;
    }
    // Longer than the last fault lingers: who asks then gets every outcome there is.
    tokio::time::sleep(LEASE * 3 / 2).await;
    field.callers.stop();
    workers.join_all().await;
    field.end(&random).await;
    let report = check(&field.callers.collector, &plan.promise);
    let unseen = report.unseen(&names, plan.expected);
    tell(&report.to_string());
    Shown { report, unseen, said: field.said(), seed }
}

#[expect(clippy::print_stderr, reason = "figures of a run, shown with --no-capture")]
fn tell(words: &str) {
    eprintln!("{words}");
}

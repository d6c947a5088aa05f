//! One gateway with a store of its own.

use std::{collections::BTreeSet, net::SocketAddr};

use super::{
    backing::Backing,
    end::{AFTER_SUCCESS, SEEN},
    field::{Plan, play, run},
};
use semel_testkit::checker::{Promise, Property, Report};

/// A store that lives in its gateway.
struct Own(&'static str);

impl Backing for Own {
    fn url(&self, _: &[SocketAddr]) -> String {
        self.0.into()
    }

    fn dies_with_its_gateway(&self) -> bool {
        self.0 == "memory"
    }
}

/// How often a run is repeated at most.
const MOST: usize = 5;

/// Runs until one has shown what is wanted. Each is as promised; what meets whom in it is chance.
async fn until<R: Future<Output = Report>>(run: impl Fn() -> R, wanted: impl Fn(&Report) -> bool) {
    let mut shown = String::new();
    for _ in 0..MOST {
        let report = run().await;
        if wanted(&report) {
            return;
        }
        shown.push_str(&report.to_string());
    }
    panic!("it never came to it: {shown}");
}

const STRICT: Plan = Plan { gateways: 1, rule: "", promise: Promise::strict(AFTER_SUCCESS), expected: SEEN };

#[tokio::test(flavor = "multi_thread")]
async fn on_the_embedded_store_kills_pauses_and_drains_double_nothing() {
    let report = play(Own("embedded"), &STRICT).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_memory_store_only_what_died_with_it_runs_again() {
    // Losses are seen and counted.
    until(|| play(Own("memory"), &STRICT), |report| report.doubles.loss > 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_takeover_a_dead_owners_order_runs_again() {
    let rule = "takeover = true\nupstream_idempotent = true\nsettle_after = \"2s\"\n";
    // What the service broke off is unknown all the same: its owner is not dead.
    let promise = Promise { takeover: true, ..STRICT.promise };
    let plan = Plan { rule, promise, ..STRICT };
    until(|| play(Own("embedded"), &plan), |report| report.doubles.takeover > 0).await;
}

/// That a run can fail at all: two gateways that do not see each other are the classic mistake.
#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_with_a_store_each_are_caught() {
    let caught = |report: &Report| {
        let broken: BTreeSet<_> = report.violations.iter().map(|v| v.property).collect();
        broken.contains(&Property::OneEffect) && broken.contains(&Property::EqualAnswers)
    };
    let plan = Plan { gateways: 2, ..STRICT };
    until(|| async { run(Own("embedded"), &plan).await.report }, caught).await;
}

//! One gateway with a store of its own.

use std::net::SocketAddr;

use super::{
    backing::Backing,
    end::{AFTER_SUCCESS, SEEN},
    field::{Plan, play},
};
use semel_testkit::checker::Promise;

/// A store that lives in its gateway.
struct Own(&'static str);

impl Backing for Own {
    fn url(&self, _: Option<SocketAddr>) -> String {
        self.0.into()
    }

    fn dies_with_its_gateway(&self) -> bool {
        self.0 == "memory"
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_embedded_store_kills_pauses_and_drains_double_nothing() {
    let report =
        play(Own("embedded"), &Plan { gateways: 1, promise: Promise::strict(AFTER_SUCCESS), expected: SEEN }).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_memory_store_only_what_died_with_it_runs_again() {
    let report =
        play(Own("memory"), &Plan { gateways: 1, promise: Promise::strict(AFTER_SUCCESS), expected: SEEN }).await;
    assert!(report.doubles.loss > 0, "losses are seen and counted: {report}");
}

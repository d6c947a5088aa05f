//! `docs/operations.md` names what is there.

use std::collections::BTreeSet;

use semel_admin::metrics::{BodyLoad, Failure, Op, Outcome, Why};
use semel_core::engine::{Load, StoreState};

use crate::{get, parts};

const PAGE: &str = include_str!("../../../../docs/operations.md");

/// The names in backticks of a sentence that begins with `head`.
fn listed(head: &str) -> BTreeSet<&'static str> {
    let (_, rest) = PAGE.split_once(head).expect("the sentence");
    let (sentence, _) = rest.split_once(".\n").expect("its end");
    sentence.split('`').skip(1).step_by(2).collect()
}

#[tokio::test]
async fn the_metrics_in_the_book_are_those_that_are_exposed() {
    let (metrics, readiness) = parts();
    readiness.serving();
    metrics.watch(|| Load { running: 0, waiting: 0 });
    metrics.watch_store(StoreState::default);
    metrics.watch_bodies(BodyLoad::default);
    metrics.watch_upstreams(Vec::new);
    let (_, _, text) = get(&metrics, &readiness, "/metrics").await;
    let exposed: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let (_, part) = PAGE.split_once("## Metrics").expect("the heading");
    let (part, _) = part.split_once("\n## ").expect("the next heading");
    let names = part.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('`').nth(1));
    let in_the_book: BTreeSet<&str> = names.collect();
    assert_eq!(in_the_book, exposed);
}

#[test]
fn the_labels_in_the_book_are_those_of_the_program() {
    assert_eq!(listed("`outcome` is one of: "), Outcome::ALL.iter().map(|o| o.label()).collect());
    assert_eq!(listed("`why` is one of: "), Why::ALL.iter().map(|w| w.label()).collect());
    assert_eq!(listed("`kind` is one of: "), Failure::ALL.iter().map(|f| f.label()).collect());
    assert_eq!(listed("`op` is one of: "), Op::ALL.iter().map(|o| o.label()).collect());
}

//! Storms of copies spread over several gateways before one store: one effect for each key, every time.

use super::{backing::Backing, field::Field};
use crate::system::{alone, client::Ask, rounds, together};

const COPIES: usize = 60;

/// Everybody gets the answer.
const PATIENT: &str = "on_in_flight = { wait = \"20s\" }\n";

/// So many rounds of copies, over two and over three gateways.
pub(super) async fn storms<B: Backing>(mut backing: B) {
    let _alone = alone().await;
    let (mut copies, mut refused) = (0, 0);
    for gateways in [2, 3] {
        let field = Field::set(backing, gateways, PATIENT).await;
        for round in 0..rounds(25) {
            refused += storm(&field, &format!("storm-{gateways}-{round}")).await;
            copies += COPIES;
        }
        backing = field.backing;
    }
    assert!(refused * 10 < copies, "{refused} of {copies} were told that the store is not there");
}

/// One effect and one answer. Returns how many were refused because the store did not answer in its time: a gateway that
/// has just started has its connections still to make.
async fn storm<B: Backing>(field: &Field<B>, key: &str) -> usize {
    let doors: Vec<_> = field.nodes.iter().map(|node| node.gateway.as_ref().unwrap().http).collect();
    let ask = Ask::post("/slow/20").key(key);
    let answers = together(COPIES, move |n| {
        let (ask, door) = (ask.clone(), doors[n % doors.len()]);
        Box::pin(async move { ask.send(door).await })
    });
    let (refused, answers): (Vec<_>, Vec<_>) =
        answers.await.into_iter().partition(|answer| answer.problem() == "store-unavailable");
    assert_eq!(field.upstream.effects(key).len(), 1, "{key}: one effect");
    let first = answers.iter().find(|a| a.idempotency_status() == "fresh").expect("one ran");
    for answer in &answers {
        assert_eq!((answer.status, &answer.body), (201, &first.body), "{key}: {answer:?}");
    }
    assert_eq!(answers.iter().filter(|a| a.idempotency_status() == "fresh").count(), 1, "{key}: {answers:?}");
    refused.len()
}

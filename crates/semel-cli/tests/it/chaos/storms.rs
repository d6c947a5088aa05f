//! Storms of copies spread over several gateways before one store: one effect for each key, every time.

use std::time::Duration;

use super::{backing::Backing, field::Field};
use crate::system::{alone, client::Ask, rounds, together};

const COPIES: usize = 60;

/// Everybody gets the answer, however busy the machine is: whoever is refused here is a finding.
const PATIENT: &str = "[upstream.shop.timeout]\nfirst_byte = \"60s\"\nwhole = \"60s\"\n\
                       [[rule]]\nname = \"orders\"\nmatch = \"/*\"\nlease = \"30s\"\non_in_flight = { wait = \"60s\" }\n";

/// A call of the store has so long.
const OF_STORE: &str = "timeout = \"10s\"";

/// How long after the last answer effects are still counted: somebody may run late.
const LATER: Duration = Duration::from_secs(1);

/// So many rounds of copies, over two and over three gateways.
pub(super) async fn storms<B: Backing>(mut backing: B) {
    let _alone = alone().await;
    for gateways in [2, 3] {
        let field = Field::set(backing, gateways, OF_STORE, PATIENT).await;
        let keys: Vec<_> = (0..rounds(25)).map(|round| format!("storm-{gateways}-{round}")).collect();
        for key in &keys {
            storm(&field, key).await;
        }
        tokio::time::sleep(LATER).await;
        for key in &keys {
            assert_eq!(field.upstream.effects(key).len(), 1, "{key}: one effect, also later");
        }
        assert_eq!(field.upstream.count(), keys.len(), "nothing ran beside the keys");
        backing = field.backing;
    }
}

/// One effect and one answer.
async fn storm<B: Backing>(field: &Field<B>, key: &str) {
    let doors: Vec<_> = field.nodes.iter().map(|node| node.gateway.as_ref().unwrap().http).collect();
    let ask = Ask::post("/slow/20").key(key);
    let answers = together(COPIES, move |n| {
        let (ask, door) = (ask.clone(), doors[n % doors.len()]);
        Box::pin(async move { ask.send(door).await })
    })
    .await;
    assert_eq!(field.upstream.effects(key).len(), 1, "{key}: one effect");
    let first = answers.iter().find(|a| a.idempotency_status() == "fresh").expect("one ran");
    for answer in &answers {
        assert_eq!((answer.status, &answer.body), (201, &first.body), "{key}: {answer:?}");
    }
    assert_eq!(answers.iter().filter(|a| a.idempotency_status() == "fresh").count(), 1, "{key}: {answers:?}");
}

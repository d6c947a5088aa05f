//! That a fault which is about one call of the store meets that call.

use std::sync::Arc;

use parking_lot::Mutex;
use semel_testkit::servers::proxy::Rule;

use super::{
    backing::{Backing, StoreCall},
    field::Field,
};
use crate::system::{alone, client::Ask};

/// Orders that outlast a lease are renewed; others are not, however busy the machine is.
const RULES: &str = "[upstream.shop.timeout]\nfirst_byte = \"60s\"\nwhole = \"60s\"\n\
                     [[rule]]\nname = \"long\"\nmatch = \"/slow/*\"\nlease = \"1s\"\n\
                     [[rule]]\nname = \"short\"\nmatch = \"/*\"\nlease = \"60s\"\n";

/// Nothing is sent twice because it took long.
const OF_STORE: &str = "timeout = \"10s\"";

const ALL: [StoreCall; 3] = [StoreCall::Claim, StoreCall::Renew, StoreCall::Complete];

/// Sends one order of each kind and counts what a [wire](super::backing::Wire) takes its requests for.
pub(super) async fn are_told_apart<B: Backing>(backing: B) {
    let _alone = alone().await;
    let is = backing.wire().expect("a proxy stands before this store").is;
    let field = Field::set(backing, 1, OF_STORE, RULES).await;
    let seen = Arc::new(Mutex::new([0; ALL.len()]));
    let counted = Arc::clone(&seen);
    let rule = move || {
        let counted = Arc::clone(&counted);
        Rule::when(move |request| {
            let taken: Vec<_> = (0..ALL.len()).filter(|n| is(ALL[*n], request)).collect();
            assert!(taken.len() < 2, "one request is taken for two calls: {}", request.bytes.escape_ascii());
            for n in taken {
                counted.lock()[n] += 1;
            }
            false
        })
    };
    let _never = field.nodes[0].network.as_ref().expect("a proxy stands before it").rule(rule);
    let door = field.nodes[0].gateway.as_ref().expect("it was started").http;
    let order = async |target: &str| {
        *seen.lock() = [0; ALL.len()];
        let answer = Ask::post(target).key(&target.replace('/', "-")).send(door).await;
        // A call may be sent again: by another server, with the script's text.
        (answer.status, seen.lock().map(|times| times > 0))
    };
    assert_eq!(order("/status/200").await, (200, [true, false, true]), "a claim and a completion");
    // Its outcome is unknown, and that is not a completion.
    assert_eq!(order("/die").await.1, [true, false, false], "a claim alone");
    // On a busy machine one may be granted too late, or held without a renewal.
    for n in 0..20 {
        if order(&format!("/slow/{}", 1_500 + n)).await == (201, [true; 3]) {
            return;
        }
    }
    panic!("of an order that outlasts its lease not all three calls are seen");
}

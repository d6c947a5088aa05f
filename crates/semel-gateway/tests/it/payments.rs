//! Payments on a Redis that forgets at a restart: the gateway served them, and only its log said what a restart does.

use std::net::SocketAddr;

use semel_gateway::wiring::{Gateway, StartError};
use semel_testkit::servers::redis::{Redis, Setup};

use crate::{
    entire::{connect, keyed, try_entire},
    peers::{Upstream, status},
};

const RULE: &str = "[principal]\nshared = true\n[[rule]]\nname = \"pay\"\nmatch = \"POST /orders\"\n";

/// A gateway with the rule `pay`, under `more`.
async fn paying(server: &Redis, upstream: SocketAddr, more: &str) -> Result<Gateway, StartError> {
    try_entire(&server.url(), upstream, &format!("{RULE}{more}")).await
}

async fn plain() -> Upstream {
    Upstream::start(|_, mut wire| async move {
        while wire.head().await.is_some() {
            wire.body(1).await;
            wire.answer("201 Created", "paid").await;
        }
    })
    .await
}

async fn serves(gateway: Result<Gateway, StartError>) {
    let gateway = gateway.unwrap();
    let mut client = connect(&gateway).await;
    client.send(keyed("k", "x")).await;
    assert_eq!(status(&client.head().await.unwrap()), 201);
    gateway.stop().await;
}

#[tokio::test]
async fn payments_are_refused_on_a_redis_that_forgets_until_it_is_cured() {
    let (server, upstream) = (Redis::start(&Setup::new()).await, plain().await);
    for preset in ["preset = \"payment\"\n", "[defaults]\npreset = \"payment\"\n"] {
        let refused = paying(&server, upstream.address, preset).await.err().unwrap();
        assert!(matches!(refused, StartError::Unfit(_)), "{refused:?}");
        let said = refused.to_string();
        let line = 15 + usize::from(preset.starts_with("[defaults]"));
        for part in [
            &*server.url(),
            &format!("`pay` (line {line})"),
            "nothing is kept on disk",
            "a payment is made again",
            "CONFIG SET appendonly yes",
        ] {
            assert!(said.contains(part), "{part} is missing: {said}");
        }
    }
    server.tell(&["CONFIG", "SET", "appendonly", "yes"]).await;
    serves(paying(&server, upstream.address, "preset = \"payment\"\n").await).await;
}

#[tokio::test]
async fn what_is_no_payment_or_is_kept_in_snapshots_is_served() {
    let (server, upstream) = (Redis::start(&Setup::new()).await, plain().await);
    serves(paying(&server, upstream.address, "").await).await;
    serves(paying(&server, upstream.address, "preset = \"internal\"\n").await).await;
    let off = "mode = \"off\"\n[defaults]\npreset = \"payment\"\n";
    serves(paying(&server, upstream.address, off).await).await;
    server.tell(&["CONFIG", "SET", "save", "3600 1"]).await;
    serves(paying(&server, upstream.address, "preset = \"payment\"\n").await).await;
}

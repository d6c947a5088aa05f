//! Clients that end their side after the request: HTTP/1.1 lets them, and wait for the answer.

use std::time::Duration;

use tokio::{
    io::AsyncWriteExt,
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::{
    entire::{connect, entire, gated, keyed, keyed_head},
    peers::{GET, PATIENCE, SOON, Upstream, Wire, field, status},
};

async fn end_side(wire: &mut Wire) {
    wire.stream.shutdown().await.unwrap();
    // Time for the gateway to see it; whether it did decides nothing where all is right.
    sleep(Duration::from_millis(100)).await;
}

/// The connection was closed at once: the work went on, and nobody got its answer.
#[tokio::test]
async fn whoever_ends_their_side_gets_the_answer_to_a_guarded_request_and_so_does_a_copy() {
    for length in [3, 300_000] {
        let (upstream, gate, mut coming) = gated(length).await;
        let gateway = entire(upstream.address, "").await;
        let (mut first, mut copy) = (connect(&gateway).await, connect(&gateway).await);
        first.send(keyed("k", "tea")).await;
        coming.recv().await.unwrap();
        end_side(&mut first).await;
        copy.send(keyed("k", "tea")).await;
        end_side(&mut copy).await;
        gate.add_permits(1);
        for (wire, became) in [(&mut first, "fresh"), (&mut copy, "waited")] {
            let (head, body) = wire.response().await;
            assert_eq!((status(&head), field(&head, "idempotency-status")), (201, Some(became)), "{head}");
            assert_eq!(body.len(), length);
            assert!(wire.rest().await.is_empty(), "and then the connection ends");
        }
        // A replay takes no time in which anything could be held back.
        let mut late = connect(&gateway).await;
        late.send(keyed("k", "tea")).await;
        end_side(&mut late).await;
        assert_eq!(field(&late.response().await.0, "idempotency-status"), Some("replayed"));
        assert!(late.rest().await.is_empty());
        assert!(coming.try_recv().is_err(), "the service was asked once");
    }
}

#[tokio::test]
async fn requests_that_were_sent_ahead_are_all_answered() {
    let (upstream, gate, mut coming) = gated(3).await;
    let gateway = entire(upstream.address, "").await;
    let mut wire = connect(&gateway).await;
    wire.send(keyed("a", "tea") + &keyed("b", "tea") + &keyed("c", "tea")).await;
    coming.recv().await.unwrap();
    end_side(&mut wire).await;
    gate.add_permits(3);
    for _ in 0..3 {
        assert_eq!(status(&wire.response().await.0), 201);
    }
    assert!(wire.rest().await.is_empty());
}

#[tokio::test]
async fn half_a_body_and_then_the_end_has_claimed_nothing() {
    let (upstream, gate, _coming) = gated(3).await;
    gate.add_permits(1);
    let gateway = entire(upstream.address, "").await;
    let mut wire = connect(&gateway).await;
    wire.send(keyed_head("k", 3) + "te").await;
    end_side(&mut wire).await;
    let (head, body) = wire.response().await;
    assert!(status(&head) == 400 && body.contains("request-incomplete"), "{head}{body}");
    assert!(wire.rest().await.is_empty());
    let (head, _) = connect(&gateway).await.ask(&keyed("k", "another")).await;
    assert_eq!((status(&head), field(&head, "idempotency-status")), (201, Some("fresh")), "{head}");
}

/// On the wire it looks like a client that has gone, and nobody else waits for the work.
#[tokio::test]
async fn what_nobody_guards_is_given_up_when_its_client_ends_its_side() {
    let (ended, mut seen) = mpsc::channel(1);
    let upstream = Upstream::start(move |_, mut wire| {
        let ended = ended.clone();
        async move {
            wire.head().await;
            wire.rest().await;
            ended.send(()).await.unwrap();
        }
    })
    .await;
    let gateway = entire(upstream.address, "").await;
    let mut wire = connect(&gateway).await;
    wire.send(GET).await;
    sleep(SOON / 3).await;
    wire.stream.shutdown().await.unwrap();
    timeout(PATIENCE, seen.recv()).await.expect("the upstream is told").unwrap();
    assert!(wire.rest().await.is_empty());
}

#[tokio::test]
async fn a_drain_waits_for_the_answer_of_a_client_that_has_ended_its_side() {
    let (upstream, gate, mut coming) = gated(3).await;
    let gateway = entire(upstream.address, "").await;
    let mut wire = connect(&gateway).await;
    wire.send(keyed("k", "tea")).await;
    coming.recv().await.unwrap();
    end_side(&mut wire).await;
    let stopping = tokio::spawn(gateway.stop());
    sleep(SOON / 3).await;
    gate.add_permits(1);
    let (head, _) = wire.response().await;
    assert_eq!((status(&head), field(&head, "idempotency-status")), (201, Some("fresh")), "{head}");
    let stopped = timeout(PATIENCE, stopping).await.expect("the drain ends").unwrap();
    assert_eq!((stopped.cut, stopped.abandoned), (0, 0));
}

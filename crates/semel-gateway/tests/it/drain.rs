use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::entire::{admin, connect, entire_on, gated, keyed};
use crate::peers::{GET, Gateway, PATIENCE, SOON, Upstream, Wire, field, status};

async fn slow() -> Upstream {
    Upstream::start(|_, mut wire| async move {
        while wire.head().await.is_some() {
            sleep(SOON).await;
            wire.answer("200 OK", "late").await;
        }
    })
    .await
}

#[tokio::test]
async fn running_requests_are_finished_and_new_connections_refused() {
    let upstream = slow().await;
    let mut gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    wire.send(GET).await;
    sleep(SOON / 3).await;
    gateway.shutdown.trigger();
    let (head, body) = wire.response().await;
    assert_eq!((status(&head), body.as_str(), field(&head, "connection")), (200, "late", Some("close")));
    assert!(wire.rest().await.is_empty());
    assert_eq!(gateway.drained().await.cut, 0);
    assert!(tokio::net::TcpStream::connect(gateway.address).await.is_err());
}

#[tokio::test]
async fn idle_and_silent_connections_end_at_once() {
    let upstream = Upstream::echo_heads().await;
    let mut gateway = Gateway::before(upstream.address);
    let mut idle = gateway.connect().await;
    idle.ask(GET).await;
    let mut silent = gateway.connect().await;
    sleep(SOON / 3).await;
    let began = Instant::now();
    gateway.shutdown.trigger();
    assert!(idle.rest().await.is_empty() && silent.rest().await.is_empty());
    assert_eq!(gateway.drained().await.cut, 0);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn what_has_not_ended_in_time_is_cut() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.rest().await;
    })
    .await;
    let mut gateway = Gateway::with(upstream.address, |s, _| s.drain = SOON);
    let mut stuck: Vec<Wire> = Vec::new();
    for request in [GET, "GET /half", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf"] {
        let mut wire = gateway.connect().await;
        wire.send(request).await;
        stuck.push(wire);
    }
    sleep(SOON / 3).await;
    let began = Instant::now();
    gateway.shutdown.trigger();
    assert!(gateway.drained().await.cut >= 2);
    assert!(began.elapsed() >= SOON && began.elapsed() < SOON * 4, "{:?}", began.elapsed());
    for mut wire in stuck {
        assert!(wire.rest().await.is_empty());
    }
}

/// The kernel has shaken hands with them before the drain began: to them the gateway looked alive.
#[tokio::test]
async fn a_connection_accepted_by_the_kernel_is_not_reset_by_the_drain() {
    let upstream = Upstream::echo_heads().await;
    let mut gateway = Gateway::before(upstream.address);
    let mut wires = Vec::new();
    for _ in 0..20 {
        wires.push(std::net::TcpStream::connect(gateway.address).unwrap());
    }
    gateway.shutdown.trigger();
    assert_eq!(gateway.drained().await.cut, 0);
    for wire in wires {
        let mut end = [0; 1];
        assert!(matches!(std::io::Read::read(&mut &wire, &mut end), Ok(0)));
    }
}

/// All of it at once: keys that run, one of them for a client that has left, and clients that come too late.
#[tokio::test]
async fn a_drain_refuses_new_work_and_settles_the_keys_that_are_held() {
    let (upstream, gate, mut coming) = gated(3).await;
    let place = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", place.path().display());
    let gateway = entire_on(&store, upstream.address, "").await;
    let (http, at_admin) = (gateway.http(), gateway.admin());
    let (mut kept, mut left) = (connect(&gateway).await, connect(&gateway).await);
    kept.send(keyed("kept", "tea")).await;
    left.send(keyed("left", "tea")).await;
    for _ in 0..2 {
        timeout(PATIENCE, coming.recv()).await.unwrap().unwrap();
    }
    drop(left);
    assert_eq!(admin(at_admin, "/readyz").await.0, 200);
    let stopping = tokio::spawn(gateway.stop());
    let mut refused = false;
    for _ in 0..500 {
        refused = TcpStream::connect(http).await.is_err();
        if refused {
            break;
        }
        sleep(SOON / 10).await;
    }
    assert!(refused, "nobody listens any more");
    let (status_of, why) = admin(at_admin, "/readyz").await;
    assert!(status_of == 503 && why.contains("draining"), "{status_of} {why}");
    // On a connection that is still there, but behind what runs: not begun, since the connection ends first.
    kept.send(keyed("late", "tea")).await;
    gate.add_permits(2);
    let (head, _) = kept.response().await;
    assert_eq!((status(&head), field(&head, "idempotency-status")), (201, Some("fresh")), "{head}");
    assert_eq!(field(&head, "connection"), Some("close"), "{head}");
    assert!(kept.rest().await.is_empty());
    let stopped = timeout(PATIENCE, stopping).await.expect("the drain ends").unwrap();
    assert_eq!((stopped.cut, stopped.abandoned), (0, 0));
    assert!(coming.try_recv().is_err(), "what came too late was not begun");

    gate.add_permits(1);
    let gateway = entire_on(&store, upstream.address, "").await;
    for (key, became) in [("kept", "replayed"), ("left", "replayed"), ("late", "fresh")] {
        let (head, _) = connect(&gateway).await.ask(&keyed(key, "tea")).await;
        assert_eq!((status(&head), field(&head, "idempotency-status")), (201, Some(became)), "{key}: {head}");
    }
}

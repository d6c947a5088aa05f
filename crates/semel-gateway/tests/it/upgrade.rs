use crate::peers::{Gateway, SOON, Upstream, field, status};

const ASK: &str = "GET /ws HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-key: eA==\r\n\r\n";

async fn upstream() -> Upstream {
    Upstream::start(|_, mut wire| async move {
        while let Some(head) = wire.head().await {
            if field(&head, "upgrade") != Some("websocket") {
                wire.answer("200 OK", &head).await;
                continue;
            }
            assert_eq!(field(&head, "connection"), Some("upgrade"));
            // The first words of the new protocol come with the answer.
            wire.send("HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\nhello")
                .await;
            while wire.more().await {
                let said = wire.take();
                wire.send([b"<".as_slice(), &said, b">"].concat()).await;
            }
            return;
        }
    })
    .await
}

#[tokio::test]
async fn an_upgraded_connection_carries_bytes_both_ways() {
    let upstream = upstream().await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    wire.send(ASK).await;
    let head = wire.head().await.unwrap();
    assert_eq!((status(&head), field(&head, "upgrade")), (101, Some("websocket")));
    assert!(field(&head, "connection").unwrap().eq_ignore_ascii_case("upgrade"));
    assert_eq!(wire.body(5).await, b"hello");
    for word in ["one", "three"] {
        wire.send(word).await;
        assert_eq!(wire.body(word.len() + 2).await, format!("<{word}>").as_bytes());
    }
}

#[tokio::test]
async fn an_upgraded_connection_keeps_its_place() {
    let upstream = upstream().await;
    let gateway = Gateway::with(upstream.address, |s, _| s.max_connections = 1);
    let mut wire = gateway.connect().await;
    wire.send(ASK).await;
    wire.head().await.unwrap();
    wire.send("x").await;
    wire.body(8).await;
    assert_eq!(status(&gateway.connect().await.head().await.unwrap()), 503);
}

#[tokio::test]
async fn no_other_method_upgrades_and_no_h2c() {
    let upstream = upstream().await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    let (head, seen) = wire.ask(&ASK.replace("GET", "POST")).await;
    assert!(status(&head) == 200 && field(&seen, "upgrade").is_none(), "{seen}");
    let h2c = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AA\r\n\r\n";
    let (head, seen) = wire.ask(h2c).await;
    assert!(status(&head) == 200, "{head}");
    assert!(field(&seen, "upgrade").is_none() && field(&seen, "http2-settings").is_none(), "{seen}");
}

#[tokio::test]
async fn a_protocol_switch_nobody_asked_for_is_broken() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.head().await;
        wire.send("HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: x\r\n\r\n").await;
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let (head, _) = gateway.connect().await.ask(crate::peers::GET).await;
    assert_eq!((status(&head), field(&head, "x-mark")), (502, Some("lost")));
}

#[tokio::test]
async fn a_refused_upgrade_is_a_common_answer() {
    let upstream = Upstream::start(|_, mut wire| async move {
        while wire.head().await.is_some() {
            wire.answer("403 Forbidden", "no").await;
        }
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    assert_eq!(wire.ask(ASK).await.1, "no");
    assert_eq!(wire.ask(ASK).await.1, "no");
}

#[tokio::test]
async fn a_drain_waits_for_an_upgraded_connection_and_then_cuts_it() {
    let upstream = upstream().await;
    let mut gateway = Gateway::with(upstream.address, |s, _| s.drain = SOON * 2);
    let mut wire = gateway.connect().await;
    wire.send(ASK).await;
    wire.head().await.unwrap();
    wire.body(5).await;
    gateway.shutdown.trigger();
    tokio::time::sleep(SOON / 2).await;
    wire.send("x").await;
    assert_eq!(wire.body(3).await, b"<x>");
    assert_eq!(gateway.drained().await.cut, 1);
    assert!(wire.rest().await.is_empty());
}

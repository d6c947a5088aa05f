//! The fields in which the gateway tells clients what it did: no service says them in its place.

use crate::{
    entire::{connect, entire, keyed},
    peers::{GET, Upstream, field, status},
};

const FEIGNED: &str = "idempotency-status: replayed\r\nidempotent-replayed: true\r\n\
    idempotency-expires: Sun, 06 Nov 2044 08:49:37 GMT\r\nidempotency-error-source: guard\r\nsemel-identity: x\r\n\
    semel-fence: 9\r\nsemel-attempt: 9\r\nsemel-unguarded: store-down\r\nsemel-outcome: keep\r\nx-mine: kept\r\n";

/// Answers everything with 422 and all of the gateway's fields.
async fn liar() -> Upstream {
    Upstream::start(|_, mut wire| async move {
        while let Some(head) = wire.head().await {
            let sent = field(&head, "content-length").map_or(0, |n| n.parse().unwrap());
            wire.body(sent).await;
            wire.send(format!("HTTP/1.1 422 No\r\n{FEIGNED}content-length: 2\r\n\r\nno")).await;
        }
    })
    .await
}

fn ours(head: &str) -> Vec<(&str, &str)> {
    let mut ours: Vec<_> = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(name, _)| name.starts_with("idempoten") || name.starts_with("semel-"))
        .collect();
    ours.sort_unstable();
    ours
}

#[tokio::test]
async fn a_service_cannot_feign_what_the_gateway_says_where_nothing_is_guarded() {
    let upstream = liar().await;
    let gateway = entire(upstream.address, "").await;
    for unguarded in [GET, "POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"] {
        let (head, body) = connect(&gateway).await.ask(unguarded).await;
        assert_eq!((status(&head), body.as_str(), field(&head, "x-mine")), (422, "no", Some("kept")));
        let said = ours(&head);
        assert!(said.is_empty() || said == [("idempotency-status", "bypassed")], "{said:?}");
    }
}

/// `guard` as the source of an error says that nothing was run.
#[tokio::test]
async fn a_service_cannot_feign_what_the_gateway_says_of_a_guarded_request() {
    let upstream = liar().await;
    let gateway = entire(upstream.address, "").await;
    for (became, more) in [("fresh", false), ("replayed", true)] {
        let (head, body) = connect(&gateway).await.ask(&keyed("k", "tea")).await;
        assert_eq!((status(&head), body.as_str(), field(&head, "x-mine")), (422, "no", Some("kept")));
        let mut said = ours(&head);
        let expires = said.iter().position(|(name, _)| *name == "idempotency-expires").expect("it is recorded");
        assert!(!said.remove(expires).1.contains("2044"), "{head}");
        let mut expected = vec![("idempotency-error-source", "upstream"), ("idempotency-status", became)];
        if more {
            expected.push(("idempotent-replayed", "true"));
        }
        assert_eq!(said, expected, "{head}");
    }
}

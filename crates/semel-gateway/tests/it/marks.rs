//! The fields in which the gateway tells clients what it did: no service says them in its place.

use crate::{
    entire::{connect, entire, keyed},
    peers::{GET, Upstream, Wire, field, status},
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

/// To a service that sees its fields as CGI variables (`HTTP_X_USER`), `X_User` is `X-User`.
#[tokio::test]
async fn no_field_that_the_gateway_sets_or_goes_by_reaches_a_service_with_underscores() {
    let upstream = Upstream::echo_heads().await;
    let rule = "[principal]\nheader = \"X-User\"\n[[rule]]\nname = \"r\"\nmatch = \"POST /orders\"\n\
                key = [\"Order-Key\", \"Idempotency-Key\"]\nretry_id = [\"X-Try\"]\n";
    let gateway = entire(upstream.address, rule).await;
    let forged = "Semel_Fence: 9\r\nSEMEL-identity_: x\r\nX_User: bob\r\nIdempotency_Key: other\r\nOrder_Key: other\r\n\
                  X_Try: 1\r\nX_Forwarded_For: 6.6.6.6\r\nX-Forwarded_Proto: https\r\nX_Request_Id: r\r\n\
                  Content_Length: 9\r\nContent_Type: a/b\r\nTransfer_Encoding: chunked\r\n";
    for (request, key) in [("GET", ""), ("POST", "Idempotency-Key: k\r\n")] {
        let head = format!(
            "{request} /orders HTTP/1.1\r\nhost: a\r\nX-User: alice\r\n{key}{forged}X_Mine: kept\r\ncontent-length: 0\r\n\r\n"
        );
        let (answer, seen) = connect(&gateway).await.ask(&head).await;
        assert_eq!(status(&answer), 200, "{answer}");
        let odd: Vec<_> = seen.lines().filter(|line| line.split(':').next().is_some_and(|n| n.contains('_'))).collect();
        assert_eq!(odd, ["x_mine: kept"], "{seen}");
        assert_eq!(field(&seen, "x-user"), Some("alice"));
    }
}

/// The same where the rule's own names have underscores.
#[tokio::test]
async fn a_principal_with_an_underscore_has_no_second_spelling_either() {
    let upstream = Upstream::echo_heads().await;
    let rule = "[principal]\nheader = \"X_User\"\n[[rule]]\nname = \"r\"\nmatch = \"POST /orders\"\n";
    let gateway = entire(upstream.address, rule).await;
    let request = "POST /orders HTTP/1.1\r\nhost: a\r\nX_User: alice\r\nX-User: bob\r\nIdempotency-Key: k\r\ncontent-length: 0\r\n\r\n";
    let (answer, seen) = connect(&gateway).await.ask(request).await;
    assert_eq!((status(&answer), field(&seen, "x_user"), field(&seen, "x-user")), (200, Some("alice"), None), "{seen}");
}

/// The end of a chunked body, with what trails it.
async fn trailed(wire: &mut Wire) -> String {
    let mut body = String::new();
    while !body.ends_with("\r\n\r\n") {
        body.push_str(std::str::from_utf8(&wire.body(1).await).unwrap());
    }
    body
}

#[tokio::test]
async fn a_service_cannot_feign_what_the_gateway_says_behind_the_body() {
    let upstream = Upstream::start(|_, mut wire| async move {
        while wire.head().await.is_some() {
            wire.send(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, idempotency-status, idempotent-replayed, \
                 semel-outcome, semel-fence\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 1\r\nidempotency-status: replayed\r\n\
                 idempotent-replayed: true\r\nsemel-outcome: release\r\nsemel-fence: 9\r\n\r\n",
            )
            .await;
        }
    })
    .await;
    let gateway = entire(upstream.address, "").await;
    for (key, became) in [
        ("", Some("bypassed")),
        ("idempotency-key: k\r\n", Some("fresh")),
        ("idempotency-key: k\r\n", Some("replayed")),
    ] {
        let mut wire = connect(&gateway).await;
        wire.send(format!("POST /orders HTTP/1.1\r\nhost: a\r\nte: trailers\r\n{key}content-length: 0\r\n\r\n")).await;
        let head = wire.head().await.unwrap();
        assert_eq!((status(&head), field(&head, "idempotency-status")), (200, became));
        if became == Some("replayed") && field(&head, "transfer-encoding").is_none() {
            continue;
        }
        let end = trailed(&mut wire).await;
        assert!(end.contains("hello") && end.ends_with("0\r\nx-sum: 1\r\n\r\n"), "{became:?}: {end}");
    }
}

/// What trails a body is merged by many a service with the fields of its head, where a guard has looked.
#[tokio::test]
async fn nothing_trails_a_request_to_the_service() {
    let upstream = Upstream::start(|_, mut wire| async move {
        while let Some(head) = wire.head().await {
            let body = match field(&head, "content-length") {
                Some(length) => String::from_utf8(wire.body(length.parse().unwrap()).await).unwrap(),
                None => trailed(&mut wire).await,
            };
            wire.answer("200 OK", &format!("{head}{body}")).await;
        }
    })
    .await;
    let gateway = entire(upstream.address, "").await;
    for key in ["", "idempotency-key: k\r\n"] {
        let request = format!(
            "POST /orders HTTP/1.1\r\nhost: a\r\n{key}trailer: X-T, Semel-Fence, Idempotency-Key, Cookie\r\n\
             transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-T: 1\r\nSemel-Fence: 7\r\nIdempotency-Key: other\r\n\
             Cookie: a=b\r\n\r\n"
        );
        let (head, seen) = connect(&gateway).await.ask(&request).await;
        assert_eq!(status(&head), 200, "{head}");
        let seen = seen.to_lowercase();
        assert!(seen.contains("hello"), "{seen}");
        for gone in ["trailer:", "x-t:", "semel-fence: 7", "other", "cookie"] {
            assert!(!seen.contains(gone), "{gone}: {seen}");
        }
    }
}

//! Many clients at once: a wake-up lost between a socket, a bell and a task shows as a request that never ends.

use std::num::NonZeroUsize;

use semel_gateway::serve::Runtime;
use tokio::{task::JoinSet, time::timeout};

use crate::peers::{Gateway, PATIENCE, Upstream, field, status};

/// Answers with the body it got, in as many pieces as the request's number says, now in chunks, now with a length.
async fn mirror() -> Upstream {
    Upstream::start(|_, mut wire| async move {
        while let Some(head) = wire.head().await {
            let length: usize = field(&head, "content-length").unwrap().parse().unwrap();
            let n: usize = field(&head, "x-n").unwrap().parse().unwrap();
            if n.is_multiple_of(5) {
                tokio::task::yield_now().await;
            }
            let body = wire.body(length).await;
            if n.is_multiple_of(2) {
                wire.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")).await;
                for piece in body.chunks(1 + length / (1 + n % 4)) {
                    wire.send(piece).await;
                    tokio::task::yield_now().await;
                }
            } else {
                wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
                for piece in body.chunks(1 + length / (1 + n % 4)) {
                    wire.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()).await;
                }
                wire.send("0\r\n\r\n").await;
            }
        }
    })
    .await
}

async fn crowd(runtime: Runtime) {
    let upstream = mirror().await;
    let gateway = Gateway::with(upstream.address, |s, _| s.runtime = runtime);
    let mut clients = JoinSet::new();
    for client in 0..32usize {
        let mut wire = gateway.connect().await;
        clients.spawn(async move {
            for round in 0..60usize {
                let n = client * 7 + round;
                let body: Vec<u8> = (0..(n * 613) % 40_000).map(|i| b'a' + ((i + n) % 26) as u8).collect();
                let guard = if n.is_multiple_of(3) { "x-guard: 1\r\n" } else { "" };
                wire.send(format!(
                    "POST /{n} HTTP/1.1\r\nhost: a\r\nx-n: {n}\r\n{guard}content-length: {}\r\n\r\n",
                    body.len()
                ))
                .await;
                for piece in body.chunks(1 + body.len() / (1 + n % 3)) {
                    wire.send(piece).await;
                }
                let head = wire.head().await.expect("an answer");
                assert_eq!(status(&head), 200, "{head}");
                let got = match field(&head, "content-length") {
                    Some(length) => wire.body(length.parse().unwrap()).await,
                    None => wire.chunks().await,
                };
                assert!(got == body, "{} of {}", got.len(), body.len());
            }
        });
    }
    timeout(PATIENCE * 6, clients.join_all()).await.expect("no request is left waiting");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_on_a_core_of_its_own() {
    crowd(Runtime::PerCore(NonZeroUsize::new(2).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_between_threads() {
    crowd(Runtime::Shared(NonZeroUsize::new(4).unwrap())).await;
}

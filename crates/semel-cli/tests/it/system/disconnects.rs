//! Clients that leave: the effect takes place once, and the retry gets its answer.

use std::time::Duration;

use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{client::Ask, gateway::Setup, rounds, upstream::Upstream};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_at_any_moment_after_sending_gets_its_answer_on_the_retry() {
    for store in ["memory", "embedded"] {
        let upstream = Upstream::start().await;
        let gateway = Setup::new(&upstream.url(), store).start();
        for round in 0..rounds(60) {
            let key = format!("leaver-{round}");
            let ask = Ask::post("/slow/10").key(&key);
            let mut stream = TcpStream::connect(gateway.http).await.unwrap();
            stream.write_all(&ask.bytes()).await.unwrap();
            // From before the claim to after the answer.
            tokio::time::sleep(Duration::from_micros(400 * (round as u64 % 60))).await;
            if round % 2 == 0 {
                // A reset rather than an orderly end.
                let _ = stream.set_zero_linger();
            }
            drop(stream);
            let retry = ask.send(gateway.http).await;
            assert_eq!(retry.status, 201, "{store} {round}: {retry:?} {}", gateway.said());
            assert_eq!(upstream.effects(&key).len(), 1, "{store} {round}: one effect");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_within_its_request_has_claimed_nothing() {
    let upstream = Upstream::start().await;
    let gateway = Setup::new(&upstream.url(), "memory").start();
    let ask = Ask::post("/slow/1").key("half").body(vec![b'x'; 5_000]);
    let bytes = ask.bytes();
    for cut in [1, 30, 100, bytes.len() - 4_000, bytes.len() - 1] {
        let mut stream = TcpStream::connect(gateway.http).await.unwrap();
        stream.write_all(&bytes[..cut]).await.unwrap();
        drop(stream);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(upstream.count(), 0);
    let whole = ask.send(gateway.http).await;
    assert_eq!((whole.status, whole.idempotency_status()), (201, "fresh"), "{whole:?}");
}

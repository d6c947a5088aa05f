//! The address itself.

use semel_admin::{BindError, Listener, router};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::parts;

#[tokio::test]
async fn an_address_that_others_reach_is_refused_with_the_cure() {
    for at in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9090"] {
        let error = Listener::bind(at.parse().unwrap()).await.expect_err(at);
        assert!(matches!(error, BindError::NotLoopback(_)));
        assert_eq!(
            error.to_string(),
            format!(
                "the admin address {at} can be reached from other machines, and it has no token and no mTLS in this version; \
                 use a loopback address such as 127.0.0.1:9090 and let a proxy with authentication forward it"
            )
        );
    }
}

#[tokio::test]
async fn a_taken_port_is_told() {
    let first = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let error = Listener::bind(first.address()).await.expect_err("taken");
    assert!(
        error.to_string().ends_with("is in use by another process; stop that one, or take another port"),
        "{error}"
    );
}

#[tokio::test]
async fn it_serves_until_it_is_told_to_stop() {
    let (metrics, readiness) = parts();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let at = listener.address();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serve = listener.serve(router(metrics, readiness), async {
        let _ = stopped.await;
    });
    let ask = async {
        let mut socket = TcpStream::connect(at).await.unwrap();
        socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        stop.send(()).unwrap();
        answer
    };
    let (served, answer) = tokio::join!(serve, ask);
    served.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.contains("x-content-type-options: nosniff\r\n") && answer.contains("cache-control: no-store\r\n"),
        "{answer}"
    );
}

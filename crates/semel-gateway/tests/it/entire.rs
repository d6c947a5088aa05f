//! A gateway made from a file: connections, guard, engine and a memory store.

use std::{net::SocketAddr, sync::Arc};

use semel_gateway::{
    config::{Config, Flags, Source},
    wiring::{self, Gateway, StartError},
};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, mpsc},
};

use crate::peers::{Upstream, Wire, field, status};

/// In front of `upstream`; `more` is put below what every file here has. One thread serves.
pub(crate) async fn entire(upstream: SocketAddr, more: &str) -> Gateway {
    entire_on("memory", upstream, more).await
}

/// The same, on this store.
pub(crate) async fn entire_on(store: &str, upstream: SocketAddr, more: &str) -> Gateway {
    try_entire(store, upstream, more).await.unwrap()
}

/// The same, where the start may be refused.
pub(crate) async fn try_entire(store: &str, upstream: SocketAddr, more: &str) -> Result<Gateway, StartError> {
    let text = format!(
        "[upstream.shop]\nurls = [\"http://{upstream}\"]\n[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
         [store]\nurl = \"{store}\"\n[runtime]\nthreads = 1\n{more}"
    );
    let config = Config::from_parts(Some(Source::new("semel.toml", text)), &Flags::default());
    let config = config.unwrap_or_else(|refused| panic!("{refused}"));
    wiring::start(&config, "0.0.0").await
}

pub(crate) async fn connect(gateway: &Gateway) -> Wire {
    Wire::new(TcpStream::connect(gateway.http()).await.unwrap())
}

/// A guarded POST with all of its body.
pub(crate) fn keyed(key: &str, body: &str) -> String {
    format!("{}{body}", keyed_head(key, body.len()))
}

/// The head of a guarded POST.
pub(crate) fn keyed_head(key: &str, length: usize) -> String {
    format!("POST /orders HTTP/1.1\r\nhost: a\r\nidempotency-key: {key}\r\ncontent-length: {length}\r\n\r\n")
}

/// Answers each request with `length` bytes once the gate opens for it, and tells when one has come.
pub(crate) async fn gated(length: usize) -> (Upstream, Arc<Semaphore>, mpsc::Receiver<()>) {
    let (gate, (came, coming)) = (Arc::new(Semaphore::new(0)), mpsc::channel(16));
    let opened = Arc::clone(&gate);
    let upstream = Upstream::start(move |_, mut wire| {
        let (gate, came) = (Arc::clone(&opened), came.clone());
        async move {
            while let Some(head) = wire.head().await {
                let sent = field(&head, "content-length").map_or(0, |n| n.parse().unwrap());
                wire.body(sent).await;
                came.send(()).await.unwrap();
                gate.acquire().await.unwrap().forget();
                wire.answer("201 Created", &"x".repeat(length)).await;
            }
        }
    })
    .await;
    (upstream, gate, coming)
}

/// What the admin address says: status and body.
pub(crate) async fn admin(gateway: SocketAddr, path: &str) -> (u16, String) {
    let mut wire = Wire::new(TcpStream::connect(gateway).await.unwrap());
    wire.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")).await;
    let head = wire.head().await.unwrap();
    (status(&head), String::from_utf8(wire.rest().await).unwrap())
}

/// The value of a metric's only series, or of the one with these labels.
pub(crate) async fn metric(gateway: &Gateway, series: &str) -> u64 {
    let (status, text) = admin(gateway.admin(), "/metrics").await;
    assert_eq!(status, 200);
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {text}")).parse().unwrap()
}

/// Waits until a metric is what it should be, at most ten seconds.
pub(crate) async fn until(gateway: &Gateway, series: &str, wanted: impl Fn(u64) -> bool) {
    let mut last = 0;
    for _ in 0..500 {
        last = metric(gateway, series).await;
        if wanted(last) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{series} is still {last}");
}

//! A gateway made from a file: connections, guard, engine and a memory store.

use std::net::SocketAddr;

use semel_gateway::{
    config::{Config, Flags, Source},
    wiring::{self, Gateway},
};
use tokio::net::TcpStream;

use crate::peers::Wire;

/// In front of `upstream`; `more` is put below what every file here has. One thread serves.
pub(crate) async fn entire(upstream: SocketAddr, more: &str) -> Gateway {
    let text = format!(
        "[upstream.shop]\nurls = [\"http://{upstream}\"]\n[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
         [store]\nurl = \"memory\"\n[runtime]\nthreads = 1\n{more}"
    );
    let config = Config::from_parts(Some(Source::new("semel.toml", text)), &Flags::default());
    let config = config.unwrap_or_else(|refused| panic!("{refused}"));
    wiring::start(&config, "0.0.0").await.unwrap()
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

//! A client that writes bytes and reads bytes: it can stop anywhere and sees exactly what came back.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::upstream::dechunk;

/// An answer as it arrived.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl std::fmt::Debug for Answer {
    /// As a person reads it; only the beginning of a long body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.status)?;
        for (name, value) in &self.fields {
            write!(f, " | {name}: {value}")?;
        }
        write!(f, " | {:.300}", self.text())
    }
}

impl Answer {
    /// The first field of a name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// All fields of a name, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str()).collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body; null where it is no JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The last part of the problem's type; empty for anything else.
    pub(crate) fn problem(&self) -> String {
        serde_json::from_slice::<serde_json::Value>(&self.body)
            .ok()
            .and_then(|v| Some(v["type"].as_str()?.strip_prefix("urn:semel:problem:")?.to_owned()))
            .unwrap_or_default()
    }

    pub(crate) fn idempotency_status(&self) -> &str {
        self.field("idempotency-status").unwrap_or("")
    }
}

/// A request to be written.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: String,
    target: String,
    fields: String,
    body: Vec<u8>,
}

impl Ask {
    pub(crate) fn post(target: &str) -> Self {
        Self::new("POST", target)
    }

    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            fields: String::new(),
            body: b"{\"item\":\"tea\"}".to_vec(),
        }
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.field("Idempotency-Key", key)
    }

    pub(crate) fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\nHost: shop.test\r\n{}", self.method, self.target, self.fields);
        if !self.body.is_empty() {
            out.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", self.body.len()));
        }
        out.push_str("\r\n");
        let mut out = out.into_bytes();
        out.extend_from_slice(&self.body);
        out
    }

    /// Sends it on a connection of its own and reads the answer.
    pub(crate) async fn send(&self, to: SocketAddr) -> Answer {
        self.try_send(to).await.unwrap_or_else(|why| panic!("no answer to {} {}: {why}", self.method, self.target))
    }

    pub(crate) async fn try_send(&self, to: SocketAddr) -> Result<Answer, String> {
        let mut stream = TcpStream::connect(to).await.map_err(|e| format!("connect: {e}"))?;
        stream.write_all(&self.bytes()).await.map_err(|e| format!("write: {e}"))?;
        read(&mut stream, self.method == "HEAD").await
    }
}

/// Writes bytes, reads one answer.
pub(crate) async fn exchange(to: SocketAddr, bytes: &[u8]) -> Result<Answer, String> {
    let mut stream = TcpStream::connect(to).await.map_err(|e| format!("connect: {e}"))?;
    // The peer may refuse while we still write.
    let _ = stream.write_all(bytes).await;
    read(&mut stream, false).await
}

const PATIENCE: Duration = Duration::from_secs(30);

/// Reads one answer to its clean end.
pub(crate) async fn read(stream: &mut TcpStream, is_head: bool) -> Result<Answer, String> {
    tokio::time::timeout(PATIENCE, read_on(stream, is_head)).await.map_err(|_| "no answer in 30 s".to_owned())?
}

async fn read_on(stream: &mut TcpStream, is_head: bool) -> Result<Answer, String> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if !more(stream, &mut bytes).await? {
            return Err(format!("closed within the head: {:?}", String::from_utf8_lossy(&bytes)));
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().and_then(|l| l.split(' ').nth(1)?.parse().ok()).ok_or("no status line")?;
    let fields: Vec<(String, String)> =
        lines.filter_map(|l| l.split_once(':')).map(|(n, v)| (n.to_owned(), v.trim().to_owned())).collect();
    let mut answer = Answer { status, fields, body: Vec::new() };
    if is_head || status == 204 || status == 304 || status < 200 {
        return Ok(answer);
    }
    if answer.field("transfer-encoding").is_some() {
        loop {
            if let Some((body, _)) = dechunk(&bytes[head_end..]) {
                answer.body = body;
                return Ok(answer);
            }
            if !more(stream, &mut bytes).await? {
                return Err("closed within a chunked body".into());
            }
        }
    }
    match answer.field("content-length").and_then(|v| v.parse::<usize>().ok()) {
        Some(length) => {
            while bytes.len() < head_end + length {
                if !more(stream, &mut bytes).await? {
                    return Err(format!("closed after {} of {length} bytes", bytes.len() - head_end));
                }
            }
            answer.body = bytes[head_end..head_end + length].to_vec();
        }
        None => {
            while more(stream, &mut bytes).await? {}
            answer.body = bytes.split_off(head_end);
        }
    }
    Ok(answer)
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Result<bool, String> {
    let mut piece = [0; 16 * 1024];
    match stream.read(&mut piece).await {
        Ok(0) => Ok(false),
        Ok(n) => {
            bytes.extend_from_slice(&piece[..n]);
            Ok(true)
        }
        Err(e) => Err(format!("read: {e}")),
    }
}

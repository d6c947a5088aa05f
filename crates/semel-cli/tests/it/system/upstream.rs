//! A service that counts what it did. Its path says how it behaves; the truth about effects lives here, in the test's
//! own process, which nobody kills.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

/// One request as the service saw it.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// When the service had all of it.
    pub(crate) at: Instant,
}

impl Effect {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (n, v) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| v.trim())
        })
    }
}

/// Hears of each effect before anybody is told of it: what was asked, and the outcome that is told.
type Witness = Box<dyn Fn(&Effect, &str) + Send + Sync>;

struct State {
    effects: Mutex<HashMap<String, Vec<Effect>>>,
    all: AtomicUsize,
    witness: Option<Witness>,
    /// Pieces that may be sent.
    pieces: Semaphore,
}

impl Default for State {
    fn default() -> Self {
        Self { effects: Mutex::default(), all: AtomicUsize::new(0), witness: None, pieces: Semaphore::new(0) }
    }
}

/// A running service; it ends with the runtime.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) addr: SocketAddr,
    state: Arc<State>,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        Self::on("127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn on(addr: SocketAddr) -> Self {
        Self::with(addr, State::default()).await
    }

    /// One whose effects are told to somebody else as well.
    pub(crate) async fn witnessed(witness: impl Fn(&Effect, &str) + Send + Sync + 'static) -> Self {
        let state = State { witness: Some(Box::new(witness)), ..State::default() };
        Self::with("127.0.0.1:0".parse().unwrap(), state).await
    }

    async fn with(addr: SocketAddr, state: State) -> Self {
        let listener = TcpListener::bind(addr).await.expect("a loopback address can be bound");
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(state);
        let upstream = Self { addr, state: Arc::clone(&state) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&state)));
            }
        });
        upstream
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What was done for a key (the field `Idempotency-Key`, quotes taken off).
    pub(crate) fn effects(&self, key: &str) -> Vec<Effect> {
        self.state.effects.lock().get(key).cloned().unwrap_or_default()
    }

    /// What was done in all.
    pub(crate) fn count(&self) -> usize {
        self.state.all.load(Ordering::SeqCst)
    }

    /// Lets one more piece go, of an answer that comes in pieces when it is told to.
    pub(crate) fn next_piece(&self) {
        self.state.pieces.add_permits(1);
    }

    /// Waits until something was done for a key.
    pub(crate) async fn reached(&self, key: &str) {
        for _ in 0..6_000 {
            if !self.effects(key).is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{key} never reached the service");
    }
}

async fn serve(mut stream: TcpStream, state: Arc<State>) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while let Some((head, body)) = request(&mut stream, &mut buffer).await {
        let effect = Effect { head, body, at: Instant::now() };
        let path = effect.head.split(' ').nth(1).unwrap_or("/").split('?').next().unwrap_or("/").to_owned();
        if path == "/count" {
            let count = state.all.load(Ordering::SeqCst).to_string();
            if stream.write_all(&plain(200, "", count.as_bytes())).await.is_err() {
                return;
            }
            continue;
        }
        let key = effect.header("idempotency-key").unwrap_or("").trim_matches('"').to_owned();
        let n = {
            let mut effects = state.effects.lock();
            let mine = effects.entry(key.clone()).or_default();
            mine.push(effect.clone());
            mine.len()
        };
        let total = state.all.fetch_add(1, Ordering::SeqCst) + 1;
        let words: Vec<&str> = path.split('/').skip(1).collect();
        let number = |i: usize| words.get(i).and_then(|w| w.parse::<usize>().ok()).unwrap_or(0);
        let created = format!("{{\"order\":{total},\"run\":{n}}}");
        if let Some(witness) = &state.witness {
            witness(&effect, &created);
        }
        let answer: Vec<u8> = match words.first().copied().unwrap_or("") {
            "slow" => {
                tokio::time::sleep(Duration::from_millis(number(1) as u64)).await;
                plain(201, "Content-Type: application/json\r\n", created.as_bytes())
            }
            // The first attempt for a key never ends; later ones end at once.
            "hang-once" if n == 1 => {
                // The peer's end is the only one.
                while let Ok(1..) = stream.read(&mut [0; 64]).await {}
                return;
            }
            "status" => plain(number(1) as u16, "X-Kept: yes\r\n", created.as_bytes()),
            "die" => return,
            // The first attempt for a key breaks; later ones work.
            "die-once" if n == 1 => return,
            "cut" => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort").await;
                return;
            }
            "cut-chunked" => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n").await;
                return;
            }
            "cookies" => plain(200, "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Kept: yes\r\n", created.as_bytes()),
            "commas" => plain(
                200,
                "X-List: a, b,c\r\nX-List: \"d,e\"\r\nETag: \"v1,2\"\r\nLink: </a>; rel=next\r\n",
                created.as_bytes(),
            ),
            "empty" => b"HTTP/1.1 204 No Content\r\nX-Kept: yes\r\n\r\n".to_vec(),
            "other" => plain(303, "Location: /orders/7?a=b\r\n", b""),
            "gzip" => plain(200, "Content-Encoding: gzip\r\nContent-Type: text/plain\r\n", GZIP),
            "binary" => plain(200, "Content-Type: application/octet-stream\r\n", &every_byte(10_000)),
            "telling" => plain(201, TELLING, created.as_bytes()),
            "big" => plain(200, "Content-Type: text/plain\r\n", &pattern(number(1))),
            "chunked" => {
                let mut out = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Kept: yes\r\n\r\n".to_vec();
                for piece in pattern(number(1)).chunks(1_000) {
                    out.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                    out.extend_from_slice(piece);
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(b"0\r\n\r\n");
                out
            }
            // Pieces with a pause after each.
            "drip" => {
                let begun = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                if begun.is_err() || drip(&mut stream, number(1), number(2)).await.is_err() {
                    return;
                }
                continue;
            }
            // Each piece when the test says so.
            "told" => {
                let begun = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                if begun.is_err() || pieces(&mut stream, number(1), &state.pieces).await.is_err() {
                    return;
                }
                continue;
            }
            "says" => {
                let said = words.get(1).copied().unwrap_or("keep");
                plain(500, &format!("Semel-Outcome: {said}\r\n"), created.as_bytes())
            }
            "socket" => {
                let _ = stream
                    .write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\n")
                    .await;
                let mut piece = [0; 1024];
                while let Ok(n @ 1..) = stream.read(&mut piece).await {
                    if stream.write_all(&piece[..n]).await.is_err() {
                        break;
                    }
                }
                return;
            }
            _ => plain(200, "Content-Type: application/json\r\n", created.as_bytes()),
        };
        let is_head = effect.head.starts_with("HEAD ");
        let end = if is_head { head_end(&answer) } else { answer.len() };
        if stream.write_all(&answer[..end]).await.is_err() {
            return;
        }
    }
}

/// `n` chunks, each when it may be sent.
async fn pieces(stream: &mut TcpStream, n: usize, may: &Semaphore) -> std::io::Result<()> {
    for n in 0..n {
        may.acquire().await.expect("it is never closed").forget();
        let piece = format!("piece {n};");
        stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).await?;
    }
    stream.write_all(b"0\r\n\r\n").await
}

/// `pieces` chunks, `pause` milliseconds after each.
async fn drip(stream: &mut TcpStream, pieces: usize, pause: usize) -> std::io::Result<()> {
    for n in 0..pieces {
        let piece = format!("piece {n};");
        stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).await?;
        tokio::time::sleep(Duration::from_millis(pause as u64)).await;
    }
    stream.write_all(b"0\r\n\r\n").await
}

/// `hello` in gzip.
pub(crate) const GZIP: &[u8] = &[
    0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0, 0, 0x03, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0, 0x86, 0xa6, 0x10, 0x36, 0x05, 0,
    0, 0,
];

/// `n` bytes that are not all the same.
pub(crate) fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| b'a' + u8::try_from(i * 7 % 26).unwrap()).collect()
}

/// `n` bytes, among them each that there is.
pub(crate) fn every_byte(n: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(n).collect()
}

/// Fields of an answer that are nobody's business but its caller's.
pub(crate) const TELLING: &str = "Location: /orders/of-ann\r\nETag: \"of-ann\"\r\nX-Kept: of-ann\r\n\
                                  Link: </of-ann>; rel=next\r\nContent-Type: application/x-of-ann\r\n";

fn plain(status: u16, fields: &str, body: &[u8]) -> Vec<u8> {
    let mut out =
        format!("HTTP/1.1 {status} Some Words\r\n{fields}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    out.extend_from_slice(body);
    out
}

fn head_end(bytes: &[u8]) -> usize {
    bytes.windows(4).position(|w| w == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4)
}

/// The next request, with its body whole; `None` when the peer is gone.
async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..at]).into_owned();
            let field = |name: &str| {
                head.lines().skip(1).find_map(|l| {
                    let (n, v) = l.split_once(':')?;
                    n.eq_ignore_ascii_case(name).then(|| v.trim().to_ascii_lowercase())
                })
            };
            let body_at = at + 4;
            if let Some(length) = field("content-length").and_then(|v| v.parse::<usize>().ok()) {
                while buffer.len() < body_at + length {
                    more(stream, buffer).await?;
                }
                let body = buffer[body_at..body_at + length].to_vec();
                buffer.drain(..body_at + length);
                return Some((head, body));
            }
            if field("transfer-encoding").is_some() {
                loop {
                    if let Some((body, used)) = dechunk(&buffer[body_at..]) {
                        buffer.drain(..body_at + used);
                        return Some((head, body));
                    }
                    more(stream, buffer).await?;
                }
            }
            buffer.drain(..body_at);
            return Some((head, Vec::new()));
        }
        more(stream, buffer).await?;
    }
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 16 * 1024];
    match stream.read(&mut piece).await {
        Ok(n @ 1..) => {
            buffer.extend_from_slice(&piece[..n]);
            Some(())
        }
        _ => None,
    }
}

/// A chunked body and how many bytes it took; `None` while it is not all there.
pub(crate) fn dechunk(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[at..at + line]).ok()?.split(';').next()?.trim().to_owned();
        let size = usize::from_str_radix(&size, 16).ok()?;
        at += line + 2;
        if size == 0 {
            let end = bytes[at..].windows(2).position(|w| w == b"\r\n")?;
            return Some((body, at + end + 2));
        }
        body.extend_from_slice(bytes.get(at..at + size)?);
        at += size + 2;
        if at > bytes.len() {
            return None;
        }
    }
}

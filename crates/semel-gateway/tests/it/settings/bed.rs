//! A gateway from a file before a service that does what a request says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use semel_gateway::config::{Config, Flags, Source};
use semel_gateway::wiring::{self, Gateway};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::peers::{PATIENCE, Upstream, Wire, field, status};

/// What a test's file says; the rest is the least that a gateway needs.
#[derive(Clone, Copy)]
pub(super) struct File<'a> {
    /// Keys outside of all tables.
    pub(super) root: &'a str,
    pub(super) store: &'a str,
    /// The upstream's settings, and other upstreams; `SERVICE` stands for the service's address.
    pub(super) upstream: &'a str,
    pub(super) principal: &'a str,
    /// Tables of their own: `[limits]`, `[defaults]`.
    pub(super) tables: &'a str,
    /// Settings of the rule `one`, which is for every path.
    pub(super) rule: &'a str,
    /// Rules that stand before it.
    pub(super) before: &'a str,
}

impl Default for File<'_> {
    fn default() -> Self {
        Self {
            root: "",
            store: "url = \"memory\"",
            upstream: "",
            principal: "shared = true",
            tables: "",
            rule: "",
            before: "",
        }
    }
}

impl File<'_> {
    fn text(&self, service: SocketAddr) -> String {
        let Self { root, store, upstream, principal, tables, rule, before } = self;
        let upstream = upstream.replace("SERVICE", &service.to_string());
        format!(
            "{root}
            [listen]
            http = \"127.0.0.1:0\"
            admin = \"127.0.0.1:0\"
            [runtime]
            threads = 1
            [upstream.shop]
            urls = [\"http://{service}\"]
            {upstream}
            [store]
            {store}
            [principal]
            {principal}
            {tables}
            {before}
            [[rule]]
            name = \"one\"
            match = \"POST /*\"
            {rule}"
        )
    }
}

/// Any file's rule, and nothing else.
pub(super) fn rule(rule: &str) -> File<'_> {
    File { rule, ..File::default() }
}

/// One request, in words.
#[derive(Clone)]
pub(super) struct Ask {
    method: &'static str,
    path: &'static str,
    fields: Vec<String>,
    body: String,
}

/// `POST /orders` with a key.
pub(super) fn ask(key: &str) -> Ask {
    keyless().with(&format!("idempotency-key: {key}"))
}

/// `POST /orders` without one.
pub(super) fn keyless() -> Ask {
    Ask { method: "POST", path: "/orders", fields: Vec::new(), body: String::new() }
}

impl Ask {
    pub(super) fn at(mut self, path: &'static str) -> Self {
        self.path = path;
        self
    }

    pub(super) fn by(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    pub(super) fn with(mut self, line: &str) -> Self {
        self.fields.push(line.to_owned());
        self
    }

    /// What the service does with it: `hold` until the gate opens, `leave` without an answer, a status, an answer of many
    /// `kib` or with `fields`.
    pub(super) fn told(self, what: &str) -> Self {
        self.with(&format!("x-do: {what}"))
    }

    pub(super) fn json(self, body: &str) -> Self {
        self.typed("application/json", body)
    }

    pub(super) fn form(self, body: &str) -> Self {
        self.typed("application/x-www-form-urlencoded", body)
    }

    fn typed(mut self, kind: &str, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self.with(&format!("content-type: {kind}"))
    }

    fn text(&self) -> String {
        let fields: String = self.fields.iter().map(|line| format!("{line}\r\n")).collect();
        let Self { method, path, body, .. } = self;
        format!("{method} {path} HTTP/1.1\r\nhost: shop.test\r\n{fields}content-length: {}\r\n\r\n{body}", body.len())
    }
}

/// An answer.
pub(super) struct Answer {
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    /// Status, what the gateway says of it, and the problem's name where it is one: `409 rejected duplicate`.
    pub(super) fn short(&self) -> String {
        let says = field(&self.head, "idempotency-status").unwrap_or("-");
        let (_, problem) = self.body.split_once("urn:semel:problem:").unwrap_or_default();
        let problem = problem.split('"').next().unwrap_or_default();
        format!("{} {says} {problem}", status(&self.head)).trim_end().to_owned()
    }

    pub(super) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

/// The gateway, the service behind it and what the service saw.
pub(super) struct Bed {
    pub(super) gateway: Gateway,
    /// Heads of the requests that reached the service, in order: its effects.
    seen: Arc<Mutex<Vec<String>>>,
    gate: watch::Sender<bool>,
}

impl Bed {
    pub(super) async fn new(file: &File<'_>) -> Self {
        Self::before(Arc::default(), watch::channel(false).0, file).await
    }

    /// Another gateway, before a service that sees what this one's sees.
    pub(super) async fn another(&self, file: &File<'_>) -> Self {
        Self::before(Arc::clone(&self.seen), self.gate.clone(), file).await
    }

    async fn before(seen: Arc<Mutex<Vec<String>>>, gate: watch::Sender<bool>, file: &File<'_>) -> Self {
        let (into, open) = (Arc::clone(&seen), gate.subscribe());
        let service = Upstream::start(move |_, wire| serve(wire, Arc::clone(&into), open.clone())).await;
        let text = file.text(service.address);
        let file = Source::new("semel.toml", text);
        let config = Config::from_parts(Some(file), &Flags::default()).unwrap_or_else(|refused| panic!("{refused}"));
        let gateway = timeout(PATIENCE, wiring::start(&config, "0.0.0")).await.expect("it starts");
        Self { gateway: gateway.unwrap_or_else(|why| panic!("{why}")), seen, gate }
    }

    pub(super) async fn send(&self, ask: &Ask) -> Wire {
        let stream = TcpStream::connect(self.gateway.http()).await.expect("the gateway listens");
        let mut wire = Wire::new(stream);
        wire.send(ask.text()).await;
        wire
    }

    pub(super) async fn ask(&self, ask: &Ask) -> Answer {
        answer(&mut self.send(ask).await).await
    }

    /// Sends what the service then holds, until [`open`](Self::open).
    pub(super) async fn begin(&self, ask: Ask) -> Wire {
        let before = self.effects();
        let wire = self.send(&ask.told("hold")).await;
        until("the service has it", async || self.effects() > before).await;
        wire
    }

    /// Lets all go that the service holds, and will be sent.
    pub(super) fn open(&self) {
        self.gate.send_replace(true);
    }

    /// Asks until the answer is `wanted`.
    pub(super) async fn ask_until(&self, ask: &Ask, wanted: &str) {
        until(wanted, async || self.ask(ask).await.short() == wanted).await;
    }

    pub(super) fn effects(&self) -> usize {
        self.seen.lock().len()
    }

    /// A field of the request that reached the service last.
    pub(super) fn last(&self, name: &str) -> Option<String> {
        field(self.seen.lock().last()?, name).map(str::to_owned)
    }

    /// The line of a metric, by how it begins.
    pub(super) async fn metric(&self, begins: &str) -> String {
        let mut wire = Wire::new(TcpStream::connect(self.gateway.admin()).await.expect("the admin address"));
        wire.send("GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
        let text = String::from_utf8(wire.rest().await).expect("text");
        let found = text.lines().find(|line| line.starts_with(begins));
        found.unwrap_or_else(|| panic!("no {begins} in {text}")).to_owned()
    }

    /// Until so many requests wait for others.
    pub(super) async fn waiting(&self, n: usize) {
        until("copies wait", async || self.metric("semel_waiters ").await == format!("semel_waiters {n}")).await;
    }
}

pub(super) async fn answer(wire: &mut Wire) -> Answer {
    let (head, body) = wire.response().await;
    Answer { head, body }
}

/// Looks until it is so.
pub(super) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so().await {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The service: what it does stands in the request.
async fn serve(mut wire: Wire, seen: Arc<Mutex<Vec<String>>>, mut open: watch::Receiver<bool>) {
    while let Some(head) = wire.head().await {
        let length = field(&head, "content-length").map_or(0, |n| n.parse().unwrap_or(0));
        wire.body(length).await;
        let does = field(&head, "x-do").unwrap_or("answer").to_owned();
        let n = {
            let mut seen = seen.lock();
            seen.push(head);
            seen.len()
        };
        let effect = format!("effect {n}");
        match &*does {
            "leave" => return,
            "answer" => wire.answer("200 OK", &effect).await,
            "hold" => {
                if open.wait_for(|open| *open).await.is_err() {
                    return;
                }
                wire.answer("200 OK", &effect).await;
            }
            "fields" => {
                let body = effect.len();
                let fields = "set-cookie: s=1\r\netag: \"e\"\r\nx-kept: yes\r\n";
                wire.send(format!("HTTP/1.1 200 OK\r\n{fields}content-length: {body}\r\n\r\n{effect}")).await;
            }
            status if status.len() == 3 => wire.answer(&format!("{status} As-Told"), &effect).await,
            kib => {
                let kib: usize = kib.strip_suffix("kib").and_then(|n| n.parse().ok()).expect("a word for the service");
                wire.try_send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", kib << 10)).await;
                if !wire.try_send(vec![b'x'; kib << 10]).await {
                    return;
                }
            }
        }
    }
}

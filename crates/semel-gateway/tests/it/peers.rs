//! A gateway without a guard, upstreams and clients that write exactly what a test says.

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    num::NonZeroUsize,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Request, Response};
use semel_core::engine::Run;
use semel_gateway::{
    forward::{Forward, ForwardConfig, Guarded, ResponseBody},
    serve::{
        Core, Drained, Edge, EdgeConfig, Forwarded, Peer, RequestBody, RequestIds, Running, Runtime, ServeConfig,
        Server, Shutdown,
    },
};
use semel_http::Mark;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tower_service::Service;

/// Longer than anything here takes; a test that waits so long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Shorter than any default, long enough not to be met by chance.
pub(crate) const SOON: Duration = Duration::from_millis(300);

pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: Shutdown,
    running: Option<Running>,
}

impl Gateway {
    pub(crate) fn before(upstream: SocketAddr) -> Self {
        Self::with(upstream, |_, _| {})
    }

    pub(crate) fn with(upstream: SocketAddr, adapt: impl FnOnce(&mut ServeConfig, &mut ForwardConfig)) -> Self {
        Self::under(None, upstream, adapt)
    }

    /// Every request runs under `run`.
    pub(crate) fn under(
        run: Option<Run>,
        upstream: SocketAddr,
        adapt: impl FnOnce(&mut ServeConfig, &mut ForwardConfig),
    ) -> Self {
        let mut serve = ServeConfig::new(([127, 0, 0, 1], 0).into());
        serve.runtime = Runtime::PerCore(NonZeroUsize::MIN);
        let mut forward = ForwardConfig::new(upstream.into());
        adapt(&mut serve, &mut forward);
        let server = Server::bind(serve).unwrap();
        let shutdown = Shutdown::new();
        let factory = move |core: Core| {
            let ids = Some(Arc::new(RequestIds::new(core.index() as u64)));
            let edge = EdgeConfig { forwarded: Forwarded::Append, request_ids: ids, via: None };
            let inner = Forward::<RequestBody>::new(forward.clone(), core);
            let run = run.clone();
            move |peer: &Peer| Edge::new(Shown { run: run.clone(), inner: inner.clone() }, edge.clone(), peer)
        };
        let running = server.start(factory, shutdown.clone()).unwrap();
        Self { address: running.address(), shutdown, running: Some(running) }
    }

    pub(crate) async fn connect(&self) -> Wire {
        Wire::new(TcpStream::connect(self.address).await.unwrap())
    }

    pub(crate) async fn drained(&mut self) -> Drained {
        timeout(PATIENCE, self.running.as_mut().unwrap().drained()).await.expect("the drain ends")
    }
}

/// Guards what asks for it (`x-guard`), and shows the answer's mark as a field (`x-mark`).
#[derive(Clone)]
struct Shown {
    run: Option<Run>,
    inner: Forward<RequestBody>,
}

impl Service<Request<RequestBody>> for Shown {
    type Response = Response<ResponseBody<RequestBody>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        if request.headers().contains_key("x-guard") {
            request.extensions_mut().insert(Guarded);
        }
        if let Some(run) = &self.run {
            request.extensions_mut().insert(run.clone());
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut answer = answer.await?;
            let mark = match answer.extensions().get::<Mark>() {
                Some(Mark::NothingSent) => "nothing-sent",
                Some(Mark::Lost) => "lost",
                Some(_) => "other",
                None => return Ok(answer),
            };
            answer.headers_mut().insert("x-mark", HeaderValue::from_static(mark));
            Ok(answer)
        })
    }
}

/// An upstream that does with its `n`th connection what the test says.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Upstream {
    pub(crate) async fn start<F>(serve: impl Fn(usize, Wire) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let n = count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(n, Wire::new(stream)));
            }
        });
        Self { address, connections }
    }

    /// Answers every request with its own head as the body.
    pub(crate) async fn echo_heads() -> Self {
        Self::start(|_, mut wire| async move {
            while let Some(head) = wire.head().await {
                wire.answer("200 OK", &head).await;
            }
        })
        .await
    }

    pub(crate) fn seen(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// One side of a connection, in bytes.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    held: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self { stream, held: Vec::new() }
    }

    pub(crate) async fn send(&mut self, text: impl AsRef<[u8]>) {
        timeout(PATIENCE, self.stream.write_all(text.as_ref())).await.expect("the peer reads").unwrap();
    }

    /// Like `send`, for a peer that may have closed.
    pub(crate) async fn try_send(&mut self, text: impl AsRef<[u8]>) -> bool {
        timeout(PATIENCE, self.stream.write_all(text.as_ref())).await.expect("the peer reads").is_ok()
    }

    pub(crate) async fn answer(&mut self, status: &str, body: &str) {
        self.send(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
    }

    /// Up to and with the empty line; `None` at the end of the connection.
    pub(crate) async fn head(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.held.windows(4).position(|w| w == b"\r\n\r\n") {
                let head: Vec<u8> = self.held.drain(..at + 4).collect();
                return Some(String::from_utf8(head).unwrap());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    pub(crate) async fn body(&mut self, length: usize) -> Vec<u8> {
        while self.held.len() < length {
            assert!(self.more().await, "ended after {} of {length}", self.held.len());
        }
        self.held.drain(..length).collect()
    }

    /// Head and body of an answer with a known length.
    pub(crate) async fn response(&mut self) -> (String, String) {
        let head = self.head().await.expect("an answer");
        let length = field(&head, "content-length").map_or(0, |v| v.parse().unwrap());
        (head, String::from_utf8(self.body(length).await).unwrap())
    }

    pub(crate) async fn ask(&mut self, request: &str) -> (String, String) {
        self.send(request).await;
        self.response().await
    }

    /// The bytes of a chunked body without trailers.
    pub(crate) async fn chunks(&mut self) -> Vec<u8> {
        let mut whole = Vec::new();
        loop {
            let mut size = Vec::new();
            while !size.ends_with(b"\r\n") {
                size.extend(self.body(1).await);
            }
            let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap().trim(), 16).unwrap();
            whole.extend(self.body(size).await);
            assert_eq!(self.body(2).await, b"\r\n");
            if size == 0 {
                return whole;
            }
        }
    }

    /// Everything until the peer closes or resets.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.held)
    }

    /// What has been read and not taken yet.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    pub(crate) async fn more(&mut self) -> bool {
        let read = timeout(PATIENCE, self.stream.read_buf(&mut self.held)).await.expect("the peer says something");
        matches!(read, Ok(n) if n > 0)
    }
}

pub(crate) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (n, value) = line.split_once(':')?;
        n.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

pub(crate) fn status(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0)
}

pub(crate) const GET: &str = "GET /x HTTP/1.1\r\nhost: a\r\n\r\n";
pub(crate) const GUARDED_GET: &str = "GET /x HTTP/1.1\r\nhost: a\r\nx-guard: 1\r\n\r\n";

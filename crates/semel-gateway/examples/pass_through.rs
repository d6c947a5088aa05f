//! The transport alone: accept, mark, forward. No guard, no rules. It is here to be measured.
//!
//! ```text
//! cargo build --release -p semel-gateway --example pass_through
//! cd target/release/examples
//! ./pass_through upstream 127.0.0.1:3000 &
//! valgrind --tool=callgrind --callgrind-out-file=callgrind.1 \
//!     ./pass_through proxy 127.0.0.1:8080 http://127.0.0.1:3000 &
//! ./pass_through client 127.0.0.1:8080 2000       # the second time 4000, into another file
//! ```
//!
//! The client ends the proxy through its last request (`/quit`). Instructions per request are the difference of the
//! two totals, divided by the difference of the requests. The client sends what a browser's or library's GET looks
//! like (7 fields); the upstream answers 200 with 5 fields and 64 bytes.
#![expect(clippy::print_stderr, reason = "a program for people who measure")]

use std::{
    convert::Infallible,
    error::Error,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    num::NonZeroUsize,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use semel_gateway::{
    forward::{Forward, ForwardConfig, ResponseBody},
    pool::Address,
    serve::{Core, Edge, EdgeConfig, Forwarded, Peer, RequestBody, RequestIds, Runtime, ServeConfig, Server, Shutdown},
};
use tower_service::Service;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["upstream", at] => upstream(at.parse()?),
        ["client", at, requests] => client(at.parse()?, requests.parse()?),
        ["proxy", at, to] => proxy(at.parse()?, Address::parse(to)?),
        _ => Err("usage: pass_through upstream ADDR | client ADDR REQUESTS | proxy ADDR UPSTREAM-URL".into()),
    }
}

fn proxy(at: SocketAddr, to: Address) -> Result<(), Box<dyn Error>> {
    let mut config = ServeConfig::new(at);
    config.runtime = Runtime::PerCore(NonZeroUsize::MIN);
    let shutdown = Shutdown::new();
    let server = Server::bind(config)?;
    eprintln!("{} -> {to}", server.address());
    let factory = move |core: Core| {
        let forward = Forward::<RequestBody>::new(ForwardConfig::new(to.clone()), core.clone());
        let ids = Arc::new(RequestIds::new(u64::from(std::process::id())));
        let edge = EdgeConfig { forwarded: Forwarded::Append, request_ids: Some(ids), via: None };
        move |peer: &Peer| {
            Edge::new(Quit { inner: forward.clone(), shutdown: core.shutdown().clone() }, edge.clone(), peer)
        }
    };
    let mut running = server.start(factory, shutdown)?;
    let waiting = tokio::runtime::Builder::new_current_thread().build()?;
    waiting.block_on(running.drained());
    running.stop();
    Ok(())
}

#[derive(Clone)]
struct Quit {
    inner: Forward<RequestBody>,
    shutdown: Shutdown,
}

impl Service<Request<RequestBody>> for Quit {
    type Response = Response<ResponseBody<RequestBody>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        if request.uri().path() == "/quit" {
            self.shutdown.trigger();
        }
        self.inner.call(request)
    }
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nserver: u\r\ndate: Sun, 29 Nov 2026 12:00:00 GMT\r\n\
    content-type: application/json\r\ncontent-length: 64\r\ncache-control: no-cache\r\n\r\n\
    0123456789012345678901234567890123456789012345678901234567890123";

fn upstream(at: SocketAddr) -> Result<(), Box<dyn Error>> {
    for stream in TcpListener::bind(at)?.incoming() {
        let mut stream = stream?;
        stream.set_nodelay(true)?;
        std::thread::spawn(move || {
            let mut buf = [0; 8192];
            let mut have = 0;
            while let Ok(n) = stream.read(&mut buf[have..]) {
                have += n;
                if n == 0 {
                    return;
                }
                if buf[..have].ends_with(b"\r\n\r\n") {
                    have = 0;
                    if stream.write_all(ANSWER).is_err() {
                        return;
                    }
                }
            }
        });
    }
    Ok(())
}

fn client(at: SocketAddr, requests: usize) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_nodelay(true)?;
    let mut buf = [0; 8192];
    let mut ask = |path: &str| -> Result<(), Box<dyn Error>> {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: shop.example.com\r\nUser-Agent: measure/1.0\r\nAccept: */*\r\n\
             Accept-Encoding: gzip, br\r\nAccept-Language: en\r\nCookie: session=0123456789abcdef\r\n\
             Authorization: Bearer 0123456789abcdef\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        let mut have = 0;
        loop {
            have += match stream.read(&mut buf[have..])? {
                0 => return Err("closed".into()),
                n => n,
            };
            if buf[..have].ends_with(&ANSWER[ANSWER.len() - 64..]) {
                return Ok(());
            }
        }
    };
    for _ in 0..requests {
        ask("/orders/17?full=1")?;
    }
    ask("/quit")
}

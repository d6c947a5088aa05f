//! The life of a server: bind, start, drain, stop.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, thread, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::{net::TcpListener, sync::oneshot, time::timeout};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::{
    BindError, Core, Lasting, Peer, RequestBody, Runtime, ServeConfig, Shutdown,
    accept::{Acceptor, Open},
    bind,
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Connections the kernel holds ready while we are busy.
const BACKLOG: i32 = 1024;

/// How long work that was told to end may take to do so.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// A server that has its address and does not serve yet.
pub struct Server {
    config: ServeConfig,
    listeners: Vec<std::net::TcpListener>,
    address: SocketAddr,
}

impl Server {
    /// Takes the address.
    ///
    /// # Errors
    /// Where it cannot be listened on; the error says what to do.
    pub fn bind(config: ServeConfig) -> Result<Self, BindError> {
        let count = match config.runtime {
            Runtime::PerCore(cores) => cores.get(),
            Runtime::Shared(_) => 1,
        };
        let (listeners, address) = bind::bind(config.listen, count, BACKLOG)?;
        Ok(Self { config, listeners, address })
    }

    /// The address in use: where port 0 was asked for, the port that was found.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to serve, on threads of its own.
    ///
    /// `factory` is called once on each runtime and makes what belongs to it; what it returns is called for each
    /// connection and makes that connection's stack, which is called for one request after the other.
    ///
    /// # Errors
    /// Where a runtime, thread or listener cannot be made. Then nothing is served.
    pub fn start<F, M, S, R>(self, factory: F, shutdown: Shutdown) -> io::Result<Running>
    where
        F: Fn(Core) -> M + Send + Sync + 'static,
        M: Fn(&Peer) -> S + Send + 'static,
        S: Service<Request<RequestBody>, Response = Response<R>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Lasting + Send + 'static,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let mut runtimes = Vec::with_capacity(self.listeners.len());
        for listener in self.listeners {
            let runtime = match self.config.runtime {
                Runtime::PerCore(_) => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
                Runtime::Shared(threads) => tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(threads.get())
                    .thread_name("semel-shared")
                    .enable_all()
                    .build()?,
            };
            let listener = {
                let _inside = runtime.enter();
                TcpListener::from_std(listener)?
            };
            runtimes.push((runtime, listener));
        }
        let (factory, config, open, stop) =
            (Arc::new(factory), Arc::new(self.config), Open::default(), CancellationToken::new());
        let mut drained = Vec::with_capacity(runtimes.len());
        let mut threads = Vec::with_capacity(runtimes.len());
        for (index, (runtime, listener)) in runtimes.into_iter().enumerate() {
            let (tell, told) = oneshot::channel();
            let core = Core::new(index, shutdown.clone());
            let (factory, config, open, stop) = (factory.clone(), config.clone(), open.clone(), stop.clone());
            let life = async move {
                let acceptor = Acceptor::new(core.clone(), factory(core.clone()), &config, open);
                acceptor.run(listener).await;
                // The listener is closed: from here on clients are refused by the kernel, and connect elsewhere.
                let _ = tell.send(drain(&core, config.drain).await);
                stop.cancelled().await;
            };
            let thread = thread::Builder::new().name(format!("semel-core-{index}")).spawn(move || {
                runtime.block_on(life);
                runtime.shutdown_timeout(Duration::from_millis(100));
            })?;
            drained.push(told);
            threads.push(thread);
        }
        Ok(Running { address: self.address, shutdown, open, drained, threads, stop })
    }
}

async fn drain(core: &Core, time: Duration) -> usize {
    let tasks = core.counted();
    tasks.close();
    if timeout(time, tasks.wait()).await.is_ok() {
        return 0;
    }
    let cut = tasks.len();
    tracing::warn!(cut, "the drain's time is over: connections are cut");
    core.shutdown().kill();
    let _ = timeout(AFTER_KILL, tasks.wait()).await;
    cut
}

/// A server that serves.
///
/// Its end has three steps: trigger the [`Shutdown`]; await [`drained`](Self::drained), after which no request is in
/// service; let what outlives requests on these runtimes end (an engine's claims), then [`stop`](Self::stop).
#[must_use = "dropping it stops the server's runtimes"]
pub struct Running {
    address: SocketAddr,
    shutdown: Shutdown,
    open: Open,
    drained: Vec<oneshot::Receiver<usize>>,
    threads: Vec<thread::JoinHandle<()>>,
    stop: CancellationToken,
}

/// How a drain ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Drained {
    /// Connections, upgraded ones included, that had to be cut when the time was over.
    pub cut: usize,
}

impl Running {
    /// The address in use.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many clients are connected right now, upgraded ones included.
    pub fn open_connections(&self) -> usize {
        self.open.count()
    }

    /// The order to stop.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Resolves when the drain is over: all connections ended by themselves or were cut. The runtimes go on, so that
    /// claimed work can be settled. Cancel safe, but what has been counted is then lost.
    pub async fn drained(&mut self) -> Drained {
        let mut cut = 0;
        for told in self.drained.drain(..) {
            cut += told.await.unwrap_or(0);
        }
        Drained { cut }
    }

    /// Ends the runtimes and whatever still runs on them. Blocks for up to a few hundred milliseconds.
    pub fn stop(mut self) {
        self.end();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }

    fn end(&self) {
        self.shutdown.kill();
        self.stop.cancel();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

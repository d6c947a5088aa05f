//! A proxy in user space before any server: it delays, cuts, stalls, refuses, and loses a chosen reply.
//!
//! Everything is set while it runs. What it does to single requests is said by [`Rule`]s; so that a rule is about one
//! request also where many are on their way on one connection, the proxy can read the protocol ([`Speaks`]).

mod connection;
mod lens;
mod renamed;
mod reworded;
mod rule;
#[cfg(test)]
mod tests;

pub use lens::{Request, Speaks};
pub use rule::{Fired, Rule, Then};

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use renamed::Renamed;
use reworded::Rewording;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the client to the server.
    There,
    /// From the server to the client.
    Back,
}

impl Way {
    const BOTH: [Self; 2] = [Self::There, Self::Back];
}

/// What went through since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Connections that clients made, those among them that were refused.
    pub connections: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Requests that were read, whether or not they went on. Without a protocol ([`Speaks::Anything`]) each piece that
    /// was read at once is one.
    pub requests: u64,
    /// Bytes that were read from clients.
    pub bytes_there: u64,
    /// Bytes that were read from the server.
    pub bytes_back: u64,
}

/// A proxy on a port of the loopback. Dropping it ends it and all its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// What the test says now; connections follow.
#[derive(Clone, Copy, Default, Debug)]
struct Weather {
    refuses: bool,
    silent: [bool; 2],
    delay: [Duration; 2],
    /// Connections of an earlier number are cut.
    generation: u64,
    /// What was held under an earlier number goes on.
    let_go: u64,
}

impl Weather {
    const fn is_silent(&self, way: Way) -> bool {
        self.silent[way as usize]
    }

    const fn delay(&self, way: Way) -> Duration {
        self.delay[way as usize]
    }
}

#[derive(Debug)]
struct Shared {
    server: Mutex<SocketAddr>,
    speaks: Speaks,
    weather: watch::Sender<Weather>,
    rules: Mutex<Vec<Rule>>,
    rewordings: Mutex<Vec<Rewording>>,
    renamed: Mutex<Renamed>,
    /// How many bytes may still pass before the connection that brings the next one is cut.
    allowance: [Mutex<Option<u64>>; 2],
    connections: AtomicU64,
    refused: AtomicU64,
    requests: AtomicU64,
    bytes: [AtomicU64; 2],
}

impl Shared {
    /// Counts bytes that were read; how many of them may go on before a cut that was ordered.
    fn take(&self, way: Way, n: usize) -> Option<usize> {
        self.bytes[way as usize].fetch_add(n as u64, Ordering::SeqCst);
        let mut allowance = self.allowance[way as usize].lock();
        let left = allowance.as_mut()?;
        if *left < n as u64 {
            let passes = usize::try_from(*left).unwrap_or(n);
            *allowance = None;
            return Some(passes);
        }
        *left -= n as u64;
        None
    }
}

impl Proxy {
    /// A proxy before `server` that does not know what is spoken.
    ///
    /// # Panics
    /// When the loopback has no free port.
    pub async fn start(server: SocketAddr) -> Self {
        Self::speaking(Speaks::Anything, server).await
    }

    /// A proxy that reads what is spoken. TLS and compression hide it.
    ///
    /// # Panics
    /// When the loopback has no free port.
    pub async fn speaking(speaks: Speaks, server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("the loopback has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            speaks,
            weather: watch::Sender::new(Weather::default()),
            rules: Mutex::default(),
            rewordings: Mutex::default(),
            renamed: Mutex::default(),
            allowance: Default::default(),
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            bytes: Default::default(),
        });
        #[expect(clippy::disallowed_methods, reason = "a proxy lives in real time, beside the test")]
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, accepting }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port where it listens, on the loopback.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// New connections go to another server.
    pub fn aim(&self, server: SocketAddr) {
        *self.shared.server.lock() = server;
    }

    /// Everything that is read in this direction from now on arrives later.
    pub fn delay(&self, way: Way, by: Duration) {
        self.shared.weather.send_modify(|w| w.delay[way as usize] = by);
    }

    /// Nothing arrives in this direction until [`heal`](Self::heal): then what waited goes on, in its order. New
    /// connections are accepted; silent towards the server, nothing else becomes of them.
    pub fn silence(&self, way: Way) {
        self.shared.weather.send_modify(|w| w.silent[way as usize] = true);
    }

    /// A partition that drops packets: silent in both directions.
    pub fn stall(&self) {
        self.shared.weather.send_modify(|w| w.silent = [true; 2]);
    }

    /// A partition that answers with resets: connections are cut, new ones are accepted and reset at once.
    pub fn refuse(&self) {
        self.shared.weather.send_modify(|w| {
            w.refuses = true;
            w.generation += 1;
        });
    }

    /// No delay, silence, refusal, ordered cut, rule, or request that is held any more. A connection that a rule made silent stays so.
    pub fn heal(&self) {
        for way in Way::BOTH {
            *self.shared.allowance[way as usize].lock() = None;
        }
        self.shared.rules.lock().clear();
        self.shared.weather.send_modify(|w| {
            *w = Weather { generation: w.generation, let_go: w.let_go + 1, ..Weather::default() };
        });
    }

    /// What rules [hold](Rule::hold_request) by now goes on.
    pub fn let_go(&self) {
        self.shared.weather.send_modify(|w| w.let_go += 1);
    }

    /// Resets all connections that there are.
    pub fn cut(&self) {
        self.shared.weather.send_modify(|w| w.generation += 1);
    }

    /// Lets `n` more bytes pass in this direction, over all connections; the one that brings the next is reset there, in
    /// the middle of whatever it says.
    pub fn cut_after(&self, way: Way, n: u64) {
        *self.shared.allowance[way as usize].lock() = Some(n);
    }

    /// Does something to single requests, from now on. Of several rules the first that is for a request acts.
    pub fn rule(&self, rule: Rule) -> Fired {
        let fired = rule.fired();
        self.shared.rules.lock().push(rule);
        fired
    }

    /// Where a request has the words `within`, the server reads `to` wherever it says `from`: a script by another digest, a
    /// statement with another condition. So a bug is seeded into what a store sends, and not into the store. Stays until
    /// the proxy ends.
    ///
    /// # Panics
    /// Later, when a request cannot be reworded: on Redis both have to be of the same length.
    pub fn reword(&self, within: &str, from: &str, to: &str) -> Fired {
        let (rewording, fired) = Rewording::new(within, from, to);
        self.shared.rewordings.lock().push(rewording);
        fired
    }

    /// Where the server tells its client of `server`, as a node of a Cluster and a Sentinel do, the client reads `proxy`: so it
    /// comes to all of them through proxies of its own, while they go on talking to each other without any. Of ports of the
    /// loopback, on Redis. Stays until the proxy ends.
    ///
    /// # Panics
    /// Where one of the ports has fewer than five digits.
    pub fn rename(&self, server: SocketAddr, proxy: SocketAddr) {
        self.shared.renamed.lock().add(server.port(), proxy.port());
    }

    /// What went through.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let of = |n: &AtomicU64| n.load(Ordering::SeqCst);
        let shared = &self.shared;
        Counts {
            connections: of(&shared.connections),
            refused: of(&shared.refused),
            requests: of(&shared.requests),
            bytes_there: of(&shared.bytes[Way::There as usize]),
            bytes_back: of(&shared.bytes[Way::Back as usize]),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Ends when it is aborted, and its connections with it.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((client, _)) = listener.accept() => {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                if shared.weather.borrow().refuses {
                    shared.refused.fetch_add(1, Ordering::SeqCst);
                    reset(&client);
                } else {
                    connections.spawn(connection::serve(client, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// When the stream is dropped, the peer gets a reset instead of an end.
fn reset(stream: &TcpStream) {
    // One that is gone already needs none.
    let _gone = stream.set_zero_linger();
}

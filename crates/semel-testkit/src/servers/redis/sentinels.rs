//! A primary with two replicas, watched by three Sentinels.

use std::{
    fmt::Write,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use super::{
    super::{
        process::Looking,
        proxy::{Proxy, Speaks},
    },
    resp::Said,
    server::{Ports, Redis, Setup},
};

/// The name under which the Sentinels know the primary.
pub const PRIMARY_NAME: &str = "semel";

/// After how many milliseconds without an answer a Sentinel calls the primary down.
const DOWN_AFTER: u32 = 1_000;

/// One primary, two replicas, three Sentinels.
#[derive(Debug)]
pub struct Sentinels {
    /// The servers; the first one begins as primary.
    pub servers: Vec<Redis>,
    /// The Sentinels.
    pub sentinels: Vec<Redis>,
    /// Where the first server is for the others.
    first: u16,
}

impl Sentinels {
    /// Starts them all and waits until the replicas follow and the Sentinels know each other.
    ///
    /// # Panics
    /// When one of them does not start.
    pub async fn start(setup: &Setup) -> Self {
        Self::start_with(setup, "").await
    }

    /// The same, with lines of their own for the Sentinels: who logs in there, and as whom they log in at the servers.
    ///
    /// # Panics
    /// When one of them does not start.
    pub async fn start_with(setup: &Setup, lines: &str) -> Self {
        let primary = Redis::start(setup).await;
        let first = primary.port_among();
        Self::around(primary, first, setup, lines).await
    }

    /// The same, with a proxy on the way from the replicas and the Sentinels to the first primary: stalled, it is cut off from
    /// all of them, and from nobody else. The Sentinels name the proxy where they name that server.
    ///
    /// # Panics
    /// When one of them does not start.
    pub async fn start_with_a_way(setup: &Setup) -> (Self, Proxy) {
        let primary = Redis::start(setup).await;
        let way = Proxy::start(at(primary.port())).await;
        (Self::around(primary, way.port(), setup, "").await, way)
    }

    async fn around(primary: Redis, first: u16, setup: &Setup, lines: &str) -> Self {
        let follows = setup.clone().set("replicaof", &format!("127.0.0.1 {first}"));
        let servers = vec![primary, Redis::start(&follows).await, Redis::start(&follows).await];
        let sentinels = sentinels(&setup.sentinel(), first, lines).await;
        let set = Self { servers, sentinels, first };
        set.settled().await;
        set
    }

    /// `redis+sentinel://…/semel`.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.sentinels.iter().map(Redis::address))
    }

    /// Ways of its own for one client.
    ///
    /// # Panics
    /// When the loopback has no free ports.
    pub async fn ways(&self) -> Ways {
        let before = async |servers: &[Redis]| {
            let mut proxies = Vec::new();
            for server in servers {
                proxies.push(Proxy::speaking(Speaks::Redis, at(server.port())).await);
            }
            proxies
        };
        let (servers, sentinels) = (before(&self.servers).await, before(&self.sentinels).await);
        for sentinel in &sentinels {
            sentinel.rename(at(self.first), servers[0].address());
            for (server, way) in self.servers.iter().zip(&servers) {
                sentinel.rename(at(server.port()), way.address());
            }
        }
        Ways { servers, sentinels }
    }

    /// After how long without an answer the Sentinels call the primary down from now on; a second at the start. A server of a
    /// busy machine says nothing for that long now and then: what is not to lose anything waits longer.
    ///
    /// # Panics
    /// When a Sentinel refuses.
    pub async fn down_after(&self, time: Duration) {
        let time = time.as_millis().to_string();
        for sentinel in &self.sentinels {
            sentinel.tell(&["SENTINEL", "SET", PRIMARY_NAME, "down-after-milliseconds", &time]).await;
        }
    }

    /// Rises with each server that is promoted.
    ///
    /// # Panics
    /// When the Sentinel does not answer.
    pub async fn epoch(&self) -> u64 {
        let said = self.sentinels[0].tell(&["SENTINEL", "MASTER", PRIMARY_NAME]).await;
        let (fields, _) = said.list().as_chunks::<2>();
        let epoch = fields.iter().find(|[name, _]| name.text() == "config-epoch").map(|[_, value]| value.text());
        epoch.and_then(|epoch| epoch.parse().ok()).expect("a Sentinel tells its epoch")
    }

    /// `rediss+sentinel://…/semel`, for a certificate of the name `localhost`. `login`: `user:password@`, or nothing.
    ///
    /// # Panics
    /// Where TLS was not set up.
    #[must_use]
    pub fn tls_url(&self, login: &str) -> String {
        let hosts: Vec<_> =
            self.sentinels.iter().map(|sentinel| format!("localhost:{}", sentinel.tls_port())).collect();
        format!("rediss+sentinel://{login}{}/{PRIMARY_NAME}", hosts.join(","))
    }

    /// Which of the servers the Sentinels call the primary.
    ///
    /// # Panics
    /// When no Sentinel answers, or they name one that is none of these.
    pub async fn primary(&self) -> usize {
        let said = self.sentinels[0].tell(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY_NAME]).await;
        let port = said.list().get(1).and_then(Said::number);
        let is =
            |n: usize| port == Some(self.servers[n].port_among().into()) || n == 0 && port == Some(self.first.into());
        let at = (0..self.servers.len()).find(|n| is(*n));
        at.unwrap_or_else(|| panic!("the Sentinels name another primary: {said:?}"))
    }

    /// Waits until the Sentinels call another server than `before` the primary, and it is one; returns which.
    ///
    /// # Panics
    /// When that does not happen within a minute.
    pub async fn promoted(&self, before: usize) -> usize {
        let looking = Looking::begin();
        loop {
            let at = self.primary().await;
            if at != before && self.servers[at].info("replication", "role").await == "master" {
                return at;
            }
            assert!(looking.again().await, "no other server was promoted");
        }
    }

    /// Waits until the replicas have all that the primary acknowledged.
    ///
    /// # Panics
    /// When that does not happen within a minute.
    pub async fn caught_up(&self) {
        let primary = &self.servers[self.primary().await];
        let looking = Looking::begin();
        while primary.replicas_at_hand().await != 2 {
            assert!(looking.again().await, "the replicas do not catch up");
        }
    }

    /// Asks for a failover while all of them work, and waits for it.
    ///
    /// # Panics
    /// When the Sentinels refuse, or do nothing.
    pub async fn fail_over(&self) -> usize {
        let before = self.primary().await;
        let looking = Looking::begin();
        // A Sentinel that has just started has not asked the replicas yet how far they are.
        while let Said::Error(error) = self.sentinels[0].ask(&["SENTINEL", "FAILOVER", PRIMARY_NAME]).await {
            assert!(looking.again().await, "no failover: {error}");
        }
        self.promoted(before).await
    }

    /// Waits until the replicas follow the primary and each Sentinel knows all the others.
    async fn settled(&self) {
        let looking = Looking::begin();
        while !self.is_settled().await {
            assert!(looking.again().await, "the Sentinels did not settle");
        }
    }

    async fn is_settled(&self) -> bool {
        if self.servers[0].replicas_at_hand().await != 2 {
            return false;
        }
        for replica in &self.servers[1..] {
            if replica.info("replication", "master_link_status").await != "up" {
                return false;
            }
        }
        for sentinel in &self.sentinels {
            if !sentinel.tell(&["INFO", "sentinel"]).await.text().contains("slaves=2,sentinels=3") {
                return false;
            }
        }
        true
    }
}

/// One client's own ways to the servers and the Sentinels of a set: a proxy before each. What a Sentinel tells of a server is the
/// client's way to it.
#[derive(Debug)]
pub struct Ways {
    /// In the order of the servers.
    pub servers: Vec<Proxy>,
    /// In the order of the Sentinels.
    pub sentinels: Vec<Proxy>,
}

impl Ways {
    /// `redis+sentinel://…/semel`.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.sentinels.iter().map(|proxy| proxy.address().to_string()))
    }

    /// The client is left with the first server alone.
    pub fn leave_the_first(&self) {
        self.servers[1..].iter().chain(&self.sentinels).for_each(Proxy::stall);
    }

    /// The client reaches all of them.
    pub fn heal(&self) {
        self.servers.iter().chain(&self.sentinels).for_each(Proxy::heal);
    }
}

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn url(sentinels: impl Iterator<Item = String>) -> String {
    format!("redis+sentinel://{}/{PRIMARY_NAME}", sentinels.collect::<Vec<_>>().join(","))
}

/// They know of each other from the start, so that nobody waits for their greetings.
async fn sentinels(setup: &Setup, primary: u16, more: &str) -> Vec<Redis> {
    for _ in 0..10 {
        let ports: Vec<Ports> = (0..3).map(|_| setup.ports()).collect();
        let id = |n: usize| format!("{:040x}", u64::from(ports[n].main) + (1 << 40));
        let mut sentinels = Vec::new();
        for (n, port) in ports.iter().enumerate() {
            let mut lines = format!(
                "sentinel myid {}\nsentinel monitor {PRIMARY_NAME} 127.0.0.1 {primary} 2\n\
                 sentinel down-after-milliseconds {PRIMARY_NAME} {DOWN_AFTER}\n\
                 sentinel failover-timeout {PRIMARY_NAME} 6000\nsentinel parallel-syncs {PRIMARY_NAME} 2\n",
                id(n)
            );
            for other in (0..3).filter(|other| *other != n) {
                let port = ports[other].among();
                // Writing to a string cannot fail.
                let _ok = writeln!(lines, "sentinel known-sentinel {PRIMARY_NAME} 127.0.0.1 {port} {}", id(other));
            }
            let Some(sentinel) = Redis::on(*port, &setup.clone().raw(&lines).raw(more), |_| {}).await else { break };
            sentinels.push(sentinel);
        }
        if sentinels.len() == 3 {
            return sentinels;
        }
    }
    panic!("the Sentinels found no free ports");
}

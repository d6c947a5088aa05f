//! A primary with two replicas, watched by three Sentinels.

use std::fmt::Write;

use super::{
    super::process::Looking,
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
}

impl Sentinels {
    /// Starts them all and waits until the replicas follow and the Sentinels know each other.
    ///
    /// # Panics
    /// When one of them does not start.
    pub async fn start(setup: &Setup) -> Self {
        let primary = Redis::start(setup).await;
        let follows = setup.clone().set("replicaof", &format!("127.0.0.1 {}", primary.port()));
        let servers = vec![primary, Redis::start(&follows).await, Redis::start(&follows).await];
        let sentinels = sentinels(servers[0].port()).await;
        let set = Self { servers, sentinels };
        set.settled().await;
        set
    }

    /// `redis+sentinel://…/semel`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(Redis::address).collect();
        format!("redis+sentinel://{}/{PRIMARY_NAME}", hosts.join(","))
    }

    /// Which of the servers the Sentinels call the primary.
    ///
    /// # Panics
    /// When no Sentinel answers, or they name one that is none of these.
    pub async fn primary(&self) -> usize {
        let said = self.sentinels[0].tell(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY_NAME]).await;
        let port = said.list().get(1).and_then(Said::number);
        let at = self.servers.iter().position(|s| Some(i64::from(s.port())) == port);
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

/// They know of each other from the start, so that nobody waits for their greetings.
async fn sentinels(primary: u16) -> Vec<Redis> {
    for _ in 0..10 {
        let ports: Vec<Ports> = (0..3).map(|_| Setup::sentinel().ports()).collect();
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
                let port = ports[other].main;
                // Writing to a string cannot fail.
                let _ok = writeln!(lines, "sentinel known-sentinel {PRIMARY_NAME} 127.0.0.1 {port} {}", id(other));
            }
            let Some(sentinel) = Redis::on(*port, &Setup::sentinel().raw(&lines), |_| {}).await else { break };
            sentinels.push(sentinel);
        }
        if sentinels.len() == 3 {
            return sentinels;
        }
    }
    panic!("the Sentinels found no free ports");
}

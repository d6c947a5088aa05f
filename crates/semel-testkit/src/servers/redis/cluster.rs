//! A Cluster of three masters with a replica each.

use std::{fmt::Write, fs, time::Duration};

use super::{
    super::process::Looking,
    resp::{Said, ask},
    server::{Ports, Redis, Setup},
};

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// Six nodes: the first three begin as masters of a third of the slots each, node `n + 3` as the replica of node `n`.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes.
    pub nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts six nodes and waits until all of them call the Cluster whole.
    ///
    /// # Panics
    /// When one of them does not start, or they do not find together.
    pub async fn start(setup: &Setup) -> Self {
        let setup = setup.clone().cluster().set("cluster-node-timeout", "2000");
        for _ in 0..10 {
            let ports: Vec<Ports> = (0..2 * MASTERS).map(|_| setup.ports()).collect();
            let mut nodes = Vec::new();
            for n in 0..2 * MASTERS {
                let known = map(&ports, n);
                let prepare =
                    |dir: &std::path::Path| fs::write(dir.join("nodes.conf"), known).expect("its map can be written");
                let Some(node) = Redis::on(ports[n], &setup, prepare).await else { break };
                nodes.push(node);
            }
            if nodes.len() == 2 * MASTERS {
                let cluster = Self { nodes };
                cluster.settled().await;
                return cluster;
            }
        }
        panic!("the nodes found no free ports");
    }

    /// `redis+cluster://…`, with all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(Redis::address).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// `rediss+cluster://…`, for a certificate of the name `localhost`. `login`: `user:password@`, or nothing.
    ///
    /// # Panics
    /// Where TLS was not set up.
    #[must_use]
    pub fn tls_url(&self, login: &str) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| format!("localhost:{}", node.tls_port())).collect();
        format!("rediss+cluster://{login}{}", hosts.join(","))
    }

    /// Waits until every node that runs calls the Cluster whole and every replica follows.
    ///
    /// # Panics
    /// When that does not happen within a minute.
    pub async fn settled(&self) {
        let looking = Looking::begin();
        while !self.is_settled().await {
            assert!(looking.again().await, "the Cluster did not become whole");
        }
    }

    async fn is_settled(&self) -> bool {
        for node in &self.nodes {
            if !self.calls_it_whole(node).await {
                return false;
            }
            let replication = node.tell(&["INFO", "replication"]).await;
            let follows = replication.field("master_link_status").is_none_or(|status| status == "up");
            let is_replica = replication.field("role").as_deref() == Some("slave");
            if !follows || !(is_replica || node.replicas_at_hand().await == 1) {
                return false;
            }
        }
        true
    }

    async fn calls_it_whole(&self, node: &Redis) -> bool {
        node.tell(&["CLUSTER", "INFO"]).await.field("cluster_state").as_deref() == Some("ok")
    }

    /// After how long without an answer the nodes call another one down from now on; two seconds at the start. A node of a busy
    /// machine says nothing for that long now and then: what is not to lose anything waits longer.
    ///
    /// # Panics
    /// When a node refuses, or one of them does not run.
    pub async fn down_after(&self, time: Duration) {
        let time = time.as_millis().to_string();
        for node in &self.nodes {
            node.tell(&["CONFIG", "SET", "cluster-node-timeout", &time]).await;
        }
    }

    /// How often nodes answered with this error, all in all: `MOVED`, `ASK`.
    ///
    /// # Panics
    /// When a node does not answer.
    pub async fn refused(&self, code: &str) -> u64 {
        let mut all = 0;
        for node in &self.nodes {
            all += node.refused(code).await;
        }
        all
    }

    /// Which nodes are masters now; asked of `of`, which has to run.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn masters(&self, of: usize) -> Vec<usize> {
        let said = self.nodes[of].tell(&["CLUSTER", "NODES"]).await.text();
        let is_master = |node: &Redis| {
            said.lines().any(|line| {
                let flags = line.split(' ').nth(2).unwrap_or("");
                line.contains(&format!("{}@", node.address())) && flags.contains("master") && !flags.contains("fail")
            })
        };
        (0..self.nodes.len()).filter(|n| is_master(&self.nodes[*n])).collect()
    }

    /// Which node is the master of a slot; asked of `of`, which has to run.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn master_of(&self, slot: u16, of: usize) -> Option<usize> {
        let said = self.nodes[of].tell(&["CLUSTER", "SLOTS"]).await;
        let port = said.list().iter().find_map(|range| {
            let [from, to, master, ..] = range.list() else { return None };
            let within = (from.number()?..=to.number()?).contains(&i64::from(slot));
            if within { master.list().get(1)?.number() } else { None }
        })?;
        self.nodes.iter().position(|node| i64::from(node.port()) == port)
    }

    /// The slot of a key.
    ///
    /// # Panics
    /// When the first node does not answer.
    pub async fn slot_of(&self, key: &str) -> u16 {
        let said = self.nodes[0].tell(&["CLUSTER", "KEYSLOT", key]).await;
        said.number().and_then(|n| u16::try_from(n).ok()).expect("a slot is a small number")
    }

    /// Makes a replica the master, while both work, and waits for it. Masters that have voted for another of the same pair not
    /// long ago refuse, so it is asked for again.
    ///
    /// # Panics
    /// When that does not happen within a minute.
    pub async fn fail_over_to(&self, replica: usize) {
        let (looking, node) = (Looking::begin(), &self.nodes[replica]);
        let mut looks = 0;
        while !self.has_taken_over(node).await {
            // What was asked for is given up after five seconds.
            if looks % 600 == 0 {
                node.ask(&["CLUSTER", "FAILOVER"]).await;
            }
            looks += 1;
            assert!(looking.again().await, "node {replica} did not become master");
        }
        self.agreed().await;
    }

    async fn has_taken_over(&self, node: &Redis) -> bool {
        node.info("replication", "role").await == "master" && self.calls_it_whole(node).await
    }

    /// Waits until all nodes that answer have the same map: one with yesterday's sends calls to a master that is none any
    /// more, and that one sends them back.
    async fn agreed(&self) {
        let looking = Looking::begin();
        loop {
            let mut maps = Vec::new();
            for node in &self.nodes {
                if let Ok(said) = ask(node.port(), &[b"CLUSTER", b"SLOTS"]).await {
                    maps.push(map_of(&said));
                }
            }
            if maps.iter().all(|map| maps.first() == Some(map)) {
                return;
            }
            assert!(looking.again().await, "the nodes do not agree who is a master: {maps:?}");
        }
    }

    /// Waits until a replica has taken the place of its dead master.
    ///
    /// # Panics
    /// When that does not happen within a minute.
    pub async fn promoted(&self, replica: usize) {
        let (looking, node) = (Looking::begin(), &self.nodes[replica]);
        while !self.has_taken_over(node).await {
            assert!(looking.again().await, "node {replica} did not become master");
        }
    }

    /// Begins to move a slot: from now on what is not there any more is asked for at `to`.
    ///
    /// # Panics
    /// When a node refuses.
    pub async fn begin_move(&self, slot: u16, from: usize, to: usize) {
        self.heard_of(from, to).await;
        let (source, target, slot) = (self.id(from).await, self.id(to).await, slot.to_string());
        self.nodes[to].tell(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]).await;
        self.nodes[from].tell(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]).await;
    }

    /// Waits until node `by` knows of an epoch as late as that of node `of`: it would take a slot under an earlier one, and
    /// lose it again, with its keys, as soon as it hears of the other.
    async fn heard_of(&self, of: usize, by: usize) {
        let epoch = async |node: usize, field| {
            let said = self.nodes[node].tell(&["CLUSTER", "INFO"]).await.field(field);
            said.and_then(|epoch| epoch.parse::<u64>().ok()).expect("an epoch is a number")
        };
        let looking = Looking::begin();
        while epoch(by, "cluster_current_epoch").await < epoch(of, "cluster_my_epoch").await {
            assert!(looking.again().await, "node {by} does not hear of the epoch of node {of}");
        }
    }

    /// Moves the keys of a slot that is on the move.
    ///
    /// # Panics
    /// When a node refuses.
    pub async fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let (slot, port) = (slot.to_string(), self.nodes[to].port().to_string());
        loop {
            let keys = self.nodes[from].tell(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]).await;
            if keys.list().is_empty() {
                return;
            }
            for key in keys.list() {
                self.nodes[from].tell(&["MIGRATE", "127.0.0.1", &port, &key.text(), "0", "5000"]).await;
            }
        }
    }

    /// Ends the move of a slot: it is `to`'s now.
    ///
    /// # Panics
    /// When a node refuses.
    pub async fn end_move(&self, slot: u16, from: usize, to: usize) {
        let (target, slot) = (self.id(to).await, slot.to_string());
        for node in [to, from] {
            self.nodes[node].tell(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]).await;
        }
    }

    /// Moves a slot and all its keys.
    ///
    /// # Panics
    /// When a node refuses.
    pub async fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to).await;
        self.move_keys(slot, from, to).await;
        self.end_move(slot, from, to).await;
    }

    async fn id(&self, node: usize) -> String {
        self.nodes[node].tell(&["CLUSTER", "MYID"]).await.text()
    }
}

/// Ranges of slots with the ports of their masters, in order.
fn map_of(said: &Said) -> Vec<[i64; 3]> {
    let range = |range: &Said| match range.list() {
        [from, to, master, ..] => Some([from.number()?, to.number()?, master.list().get(1)?.number()?]),
        _ => None,
    };
    let mut map: Vec<_> = said.list().iter().filter_map(range).collect();
    map.sort_unstable();
    map
}

/// What node `mine` finds in its folder: all nodes and their slots, so that nobody has to introduce them.
fn map(ports: &[Ports], mine: usize) -> String {
    let id = |n: usize| format!("{:040x}", u64::from(ports[n].main) + (1 << 40));
    let mut out = String::new();
    for (n, port) in ports.iter().enumerate() {
        let me = if n == mine { "myself," } else { "" };
        let (main, bus, epoch) = (port.among(), port.bus.expect("a node has a bus"), n % MASTERS + 1);
        let (role, slots) = if n < MASTERS {
            ("master -".to_owned(), format!(" {}-{}", n * SLOTS / MASTERS, (n + 1) * SLOTS / MASTERS - 1))
        } else {
            (format!("slave {}", id(n - MASTERS)), String::new())
        };
        // Writing to a string cannot fail.
        let _ok = writeln!(out, "{} 127.0.0.1:{main}@{bus} {me}{role} 0 0 {epoch} connected{slots}", id(n));
    }
    out + "vars currentEpoch 3 lastVoteEpoch 0\n"
}

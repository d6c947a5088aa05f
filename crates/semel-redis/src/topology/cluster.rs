//! A Cluster: each call goes to the master of its key's slot, and follows where that one says the slot is.
//!
//! Nothing is sent a second time but what a server said it did not do; so an answer is as truthful here as on one server.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use parking_lot::{Mutex, RwLock};
use redis::{RedisError, Value};
use semel_core::{
    env::Tick,
    store::{Did, StoreError, StoreErrorKind},
};

use super::{
    lanes::Lanes,
    run_on_one,
    slots::{Slots, slot_of},
};
use crate::{
    address::Host,
    link::{Before, Dialer, Link, Target, Trouble, answer},
    script::{Call, Fresh},
    verdict,
};

/// How often a call follows a redirection or a new map.
const HOPS: usize = 4;

/// The map is not asked for more often than this.
const BETWEEN_MAPS: Duration = Duration::from_millis(50);

/// Once one node told the map, the others have this long to agree.
const LATE_ANSWERS: Duration = Duration::from_millis(100);

/// All nodes that are known, and the map of slots.
pub(crate) struct Cluster {
    dialer: Arc<Dialer>,
    seeds: Vec<Host>,
    slots: RwLock<Arc<Slots>>,
    /// The last map that was forgotten.
    before: Mutex<Arc<Slots>>,
    nodes: Mutex<HashMap<Host, Lanes>>,
    /// Held while the map is asked for; when it was last.
    mapping: tokio::sync::Mutex<Option<Tick>>,
}

impl Cluster {
    pub(crate) fn new(dialer: Arc<Dialer>, seeds: Vec<Host>) -> Self {
        let mapping = tokio::sync::Mutex::new(None);
        let (slots, before, nodes) = (RwLock::default(), Mutex::default(), Mutex::default());
        Self { dialer, seeds, slots, before, nodes, mapping }
    }

    fn map(&self) -> Arc<Slots> {
        Arc::clone(&self.slots.read())
    }

    fn node(&self, host: &Host) -> Arc<Link> {
        let mut nodes = self.nodes.lock();
        let new = || Lanes::to_node(Arc::clone(&self.dialer), host.clone());
        nodes.entry(host.clone()).or_insert_with(new).here()
    }

    /// The master of a key's slot.
    pub(super) async fn master(&self, key: &str) -> Result<Arc<Link>, StoreError> {
        let slot = slot_of(key);
        if let Some(host) = self.map().master(slot) {
            return Ok(self.node(host));
        }
        self.learn().await?;
        let map = self.map();
        let host = map.master(slot).ok_or_else(|| unavailable(format!("slot {slot} has no master")))?;
        Ok(self.node(host))
    }

    /// The master of a key's slot as a number, from the last map there was; 0 where there was none.
    pub(super) fn part(&self, key: &str) -> u64 {
        let mut map = self.map();
        if !map.is_whole() {
            map = Arc::clone(&self.before.lock());
        }
        map.master(slot_of(key)).map_or(0, |host| BuildHasherDefault::<DefaultHasher>::default().hash_one(host))
    }

    /// Whether it is a node, as far as that is known.
    pub(super) fn has(&self, host: &Host) -> bool {
        let map = self.map();
        !map.is_whole() || map.everybody().any(|known| known == host)
    }

    pub(crate) async fn masters(&self) -> Result<Vec<Arc<Link>>, StoreError> {
        if !self.map().is_whole() {
            self.learn().await?;
        }
        let map = self.map();
        if !map.is_whole() {
            return Err(unavailable("some slots have no master".to_owned()));
        }
        Ok(map.masters().iter().map(|host| self.node(host)).collect())
    }

    pub(crate) async fn run(&self, call: &Call<'_>) -> Result<Value, StoreError> {
        let first = self.master(call.key).await?;
        self.follow(call, first).await
    }

    /// Writes a record where there is none; `None` where a script is asked instead, which follows where the record went.
    pub(crate) async fn set_fresh(&self, fresh: &Fresh<'_>) -> Result<Option<Before>, StoreError> {
        match self.master(fresh.key).await?.set_fresh(fresh).await {
            Ok(said) => Ok(said),
            Err(Trouble::Unsent(_)) => Ok(None),
            Err(trouble) => {
                // The next call may find another master.
                self.forget_map();
                Err(trouble.into())
            }
        }
    }

    async fn follow(&self, call: &Call<'_>, first: Arc<Link>) -> Result<Value, StoreError> {
        let (mut link, mut asking) = (first, false);
        let mut hops = 0;
        loop {
            let trouble = match link.run(call, asking).await {
                Ok(value) => return Ok(value),
                Err(trouble) => trouble,
            };
            hops += 1;
            let Some(next) = self.next(call, &link, &trouble).await.filter(|_| hops <= HOPS) else {
                return Err(trouble.into());
            };
            (link, asking) = next;
        }
    }

    /// Where a call goes on that was not carried out at `link`; `None` where its trouble is the answer.
    async fn next(&self, call: &Call<'_>, link: &Arc<Link>, trouble: &Trouble) -> Option<(Arc<Link>, bool)> {
        let error = match trouble {
            Trouble::Sent(error) => error,
            // No connection: the map may be of yesterday. Another master gets the call, the same one does not.
            Trouble::Unsent(error) if error.kind == StoreErrorKind::Unavailable => {
                self.learn().await.ok()?;
                let next = self.master(call.key).await.ok()?;
                return if Arc::ptr_eq(&next, link) { None } else { Some((next, false)) };
            }
            Trouble::Unsent(_) | Trouble::Unconfirmed(_) => return None,
        };
        match verdict::code(error) {
            Some("MOVED") => {
                let host = redirected(error, link)?;
                // The server that says so knows better than any map; the map follows.
                self.learn().await.ok();
                Some((self.node(&host), false))
            }
            Some("ASK") => Some((self.node(&redirected(error, link)?), true)),
            Some("READONLY" | "MASTERDOWN" | "CLUSTERDOWN") => {
                self.learn().await.ok()?;
                let next = self.master(call.key).await.ok()?;
                if Arc::ptr_eq(&next, link) { None } else { Some((next, false)) }
            }
            Some(_) => None,
            // Sent, and no answer: what comes of it is not ours to repeat. The next call may find another master.
            None => {
                self.forget_map();
                None
            }
        }
    }

    pub(crate) async fn run_all(&self, calls: &[Call<'_>]) -> Vec<Result<Value, StoreError>> {
        let mut answers: Vec<Option<Result<Value, StoreError>>> = Vec::new();
        answers.resize_with(calls.len(), || None);
        let mut ways: Vec<(Arc<Link>, Vec<usize>)> = Vec::new();
        for (n, call) in calls.iter().enumerate() {
            match self.master(call.key).await {
                Ok(link) => match ways.iter_mut().find(|(way, _)| Arc::ptr_eq(way, &link)) {
                    Some((_, way)) => way.push(n),
                    None => ways.push((link, vec![n])),
                },
                Err(error) => answers[n] = Some(Err(error)),
            }
        }
        let sent = join_all(ways.iter().map(|(link, way)| async move {
            let on_this: Vec<_> = way.iter().map(|n| &calls[*n]).collect();
            run_on_one(link, &on_this).await
        }));
        for ((link, way), results) in ways.iter().zip(sent.await) {
            for (n, result) in way.iter().zip(results) {
                answers[*n] = Some(match result {
                    Ok(value) => Ok(value),
                    Err(trouble) => match self.next(&calls[*n], link, &trouble).await {
                        Some((next, false)) => self.follow(&calls[*n], next).await,
                        Some((next, true)) => next.run(&calls[*n], true).await.map_err(StoreError::from),
                        None => Err(trouble.into()),
                    },
                });
            }
        }
        let unanswered = || Err(unavailable("nobody was asked".to_owned()));
        answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect()
    }

    fn forget_map(&self) {
        if let Ok(mut last) = self.mapping.try_lock() {
            *last = None;
        }
        let forgotten = std::mem::take(&mut *self.slots.write());
        if forgotten.is_whole() {
            *self.before.lock() = forgotten;
        }
    }

    /// Asks the nodes for the map, one after the other until one has it.
    async fn learn(&self) -> Result<(), StoreError> {
        let before = self.map();
        let mut last = self.mapping.lock().await;
        let now = || self.dialer.env().clock.now();
        // Somebody else asked while this one waited, or just before.
        let is_fresh = last.is_some_and(|last| now().since(last) < BETWEEN_MAPS) && self.map().is_whole();
        if is_fresh || !Arc::ptr_eq(&before, &self.map()) {
            return Ok(());
        }
        let mut hosts: Vec<Host> = Vec::new();
        let known: Vec<_> = self.nodes.lock().keys().cloned().collect();
        for host in before.everybody().chain(&self.seeds).chain(&known) {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
        let slots = self.ask_around(&hosts).await?;
        self.keep_known(&slots);
        *self.slots.write() = Arc::new(slots);
        *last = Some(now());
        Ok(())
    }

    /// Asks everybody at once, so that no dead node delays the others; what most of them say counts, since a node that
    /// is cut off still tells yesterday's map.
    async fn ask_around(&self, hosts: &[Host]) -> Result<Slots, StoreError> {
        let mut asked: FuturesUnordered<_> = hosts.iter().map(|host| self.ask_map(host)).collect();
        let clock = &self.dialer.env().clock;
        let mut late = clock.sleep_until(clock.now() + LATE_ANSWERS);
        let mut maps: Vec<(Slots, usize)> = Vec::new();
        let mut trouble = unavailable("no node of the Cluster is known".to_owned());
        loop {
            let said = tokio::select! {
                biased;
                said = asked.next() => said,
                () = &mut late, if !maps.is_empty() => None,
            };
            match said {
                Some(Ok(slots)) if slots.is_whole() => match maps.iter_mut().find(|(known, _)| *known == slots) {
                    Some((_, votes)) => *votes += 1,
                    None => maps.push((slots, 1)),
                },
                Some(Ok(_)) => trouble = unavailable("the nodes know no master for some slots".to_owned()),
                Some(Err(error)) => trouble = error,
                None => break,
            }
        }
        // Of equals the first: it answered sooner.
        let most = maps.iter().map(|(_, votes)| *votes).max();
        maps.into_iter().find(|(_, votes)| Some(*votes) == most).map(|(slots, _)| slots).ok_or(trouble)
    }

    async fn ask_map(&self, host: &Host) -> Result<Slots, StoreError> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let patience = self.dialer.connect_timeout;
        let link = self.node(host);
        let asked = tokio::time::timeout(patience, link.ask(&command)).await;
        let said = asked
            .unwrap_or_else(|_| Err(Trouble::Unsent(unavailable(format!("{host} does not answer in {patience:?}")))));
        let said = said.and_then(answer).map_err(Trouble::of_nothing)?;
        Slots::read(&said, host).ok_or_else(|| unavailable(format!("{host} is no node of a Cluster")))
    }

    /// Connections to nodes that are gone end.
    fn keep_known(&self, slots: &Slots) {
        self.nodes.lock().retain(|host, _| self.seeds.contains(host) || slots.everybody().any(|known| known == host));
    }
}

/// Where a redirection points; a node that does not know its own name means itself.
fn redirected(error: &RedisError, from: &Link) -> Option<Host> {
    let place = error.detail()?.split_ascii_whitespace().nth(1)?;
    let (Target::Node(here) | Target::Primary(here)) = from.target() else { return None };
    match place.strip_prefix(':') {
        Some(port) => Some(Host::new(here.name.clone(), port.parse().ok()?)),
        None => Host::parse(place, 0).ok(),
    }
}

fn unavailable(words: String) -> StoreError {
    StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, words)
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({:?})", self.map().masters())
    }
}

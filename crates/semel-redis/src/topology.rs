//! One server, or a Cluster of them: who gets a call.

mod cluster;
mod lanes;
mod slots;

use std::sync::Arc;

use redis::Value;
use semel_core::store::StoreError;

pub(crate) use self::cluster::Cluster;
use self::lanes::Lanes;
use crate::{
    address::{Address, Host, Layout},
    link::{Before, Dialer, Link, Target, Trouble},
    script::{Call, Fresh},
    verdict,
};

/// Where the records are.
#[derive(Debug)]
pub(crate) enum Topology {
    /// On one server: the only one, or the one that is primary now.
    One(Lanes),
    /// Spread over masters by slots.
    Cluster(Cluster),
}

impl Topology {
    pub(crate) fn new(address: &Address, dialer: Arc<Dialer>) -> Self {
        let sentinels = address.hosts.clone();
        match &address.layout {
            Layout::Cluster => Self::Cluster(Cluster::new(dialer, sentinels)),
            Layout::Sentinel { primary, login } => {
                let target = Target::Named { sentinels, name: primary.clone(), login: login.clone() };
                Self::One(Lanes::new(dialer, target))
            }
            Layout::Alone => Self::One(Lanes::new(dialer, Target::Primary(address.hosts[0].clone()))),
        }
    }

    /// Makes a connection to where a key is, if there is none.
    pub(crate) async fn reach(&self, key: &str) -> Result<(), StoreError> {
        match self {
            Self::One(lanes) => lanes.here().reach().await,
            Self::Cluster(cluster) => cluster.master(key).await?.reach().await,
        }
    }

    /// A number for the server that has a key, as far as it is known.
    pub(crate) fn part(&self, key: &str) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => cluster.part(key),
        }
    }

    /// The marks beside the first one: one for each part that can be lost alone.
    pub(crate) fn more_marks(&self, first: &str) -> Vec<String> {
        match self {
            Self::One(_) => Vec::new(),
            Self::Cluster(_) => slots::spread(first),
        }
    }

    /// Whether a server is still one of those that tell what is published: the one that `link` leads to, or any node.
    pub(crate) fn has(&self, host: &Host, link: &Link) -> bool {
        match self {
            Self::One(_) => link.is_at(host),
            Self::Cluster(cluster) => cluster.has(host),
        }
    }

    /// Runs a script where its key is.
    pub(crate) async fn run(&self, call: &Call<'_>) -> Result<Value, StoreError> {
        match self {
            Self::One(lanes) => {
                let result = lanes.here().run(call, false).await;
                if is_demoted(&result) {
                    lanes.hang_up();
                }
                result.map_err(StoreError::from)
            }
            Self::Cluster(cluster) => cluster.run(call).await,
        }
    }

    /// Writes a record where there is none; `None` where a script is asked instead, and nothing was written.
    pub(crate) async fn set_fresh(&self, fresh: &Fresh<'_>) -> Result<Option<Before>, StoreError> {
        match self {
            Self::One(lanes) => lanes.here().set_fresh(fresh).await.map_err(StoreError::from),
            Self::Cluster(cluster) => cluster.set_fresh(fresh).await,
        }
    }

    /// Runs many, each where its key is: one way to each server. The answers are in the calls' order.
    pub(crate) async fn run_all(&self, calls: &[Call<'_>]) -> Vec<Result<Value, StoreError>> {
        match self {
            Self::One(lanes) => {
                let calls: Vec<_> = calls.iter().collect();
                let answers = run_on_one(&lanes.here(), &calls).await;
                if answers.iter().any(is_demoted) {
                    lanes.hang_up();
                }
                answers.into_iter().map(|r| r.map_err(StoreError::from)).collect()
            }
            Self::Cluster(cluster) => cluster.run_all(calls).await,
        }
    }

    /// The servers that hold records now.
    pub(crate) async fn masters(&self) -> Result<Vec<Arc<Link>>, StoreError> {
        match self {
            Self::One(lanes) => Ok(vec![lanes.here()]),
            Self::Cluster(cluster) => cluster.masters().await,
        }
    }
}

/// Many scripts on one server, each with an answer; a connection that broke is everybody's.
async fn run_on_one(link: &Arc<Link>, calls: &[&Call<'_>]) -> Vec<Result<Value, Trouble>> {
    match link.run_all(calls).await {
        Ok(answers) => answers,
        Err(trouble) => {
            let again = |_| Err(copy(&trouble));
            calls.iter().map(again).collect()
        }
    }
}

fn copy(trouble: &Trouble) -> Trouble {
    match trouble {
        Trouble::Unsent(error) => Trouble::Unsent(StoreError::new(error.did, error.kind, verdict::cause(error))),
        Trouble::Sent(error) => Trouble::Sent(error.clone()),
        Trouble::Unconfirmed(error) => {
            Trouble::Unconfirmed(StoreError::new(error.did, error.kind, verdict::cause(error)))
        }
    }
}

/// A server that became a replica will not be primary soon: the next call asks who is.
fn is_demoted(result: &Result<Value, Trouble>) -> bool {
    matches!(result, Err(Trouble::Sent(error)) if verdict::is_demoted(error))
}

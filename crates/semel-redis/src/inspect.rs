//! How the servers are set up: what breaks the promise, what weakens it, and the cure.

mod judge;

use std::{collections::HashMap, sync::Arc};

use redis::{Pipeline, Value, aio::ConnectionLike};
use semel_core::store::{Durability, Finding, StoreError};

use self::judge::{Answers, Watch};
use crate::{
    link::{Dialer, Link, Target, Trouble},
    topology::Topology,
};

/// What was found, and what an acknowledged write survives.
pub(crate) struct Look {
    pub(crate) findings: Vec<Finding>,
    pub(crate) durability: Durability,
}

/// Looks at every master.
pub(crate) async fn look(
    topology: &Topology,
    dialer: &Dialer,
    channel: &str,
    awaited: u32,
) -> Result<Look, StoreError> {
    let masters = topology.masters().await?;
    let (mut findings, mut durability) = (Vec::new(), None);
    let is_cluster = matches!(topology, Topology::Cluster(_));
    for master in &masters {
        let answers = ask(master, channel).await?;
        let watch = match master.target() {
            Target::Named { sentinels, name, login } => {
                let mut known = HashMap::new();
                for sentinel in sentinels {
                    let Ok(mut connection) = dialer.sentinel(sentinel, login).await else { continue };
                    let mut command = redis::cmd("SENTINEL");
                    command.arg("MASTER").arg(name);
                    if let Ok(said) = connection.req_packed_command(&command).await {
                        known = redis::from_redis_value(said).unwrap_or_default();
                        break;
                    }
                }
                Watch::sentinel(&known)
            }
            Target::Node(_) if is_cluster => Watch::cluster(&answers),
            Target::Node(_) | Target::Primary(_) => Watch::nobody(),
        };
        let place = if masters.len() > 1 { Some(master.place()) } else { None };
        judge::judge(&answers, &watch, awaited, place.as_deref(), &mut findings);
        let this = judge::durability(&answers);
        durability = Some(weaker(durability.unwrap_or(this), this));
    }
    Ok(Look { findings, durability: durability.unwrap_or(Durability::None) })
}

fn weaker(one: Durability, other: Durability) -> Durability {
    let rank = |durability| match durability {
        Durability::Power => 2,
        Durability::Process => 1,
        _ => 0,
    };
    if rank(other) < rank(one) { other } else { one }
}

/// INFO, what CONFIG tells where the user may ask, and whether the user may speak on the channel: nothing is said on it.
async fn ask(server: &Arc<Link>, channel: &str) -> Result<Answers, StoreError> {
    let mut commands = Pipeline::with_capacity(3);
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("*");
    let mut publish = redis::cmd("PUBLISH");
    publish.arg(channel).arg("");
    commands.add_command(redis::cmd("INFO")).add_command(config).add_command(publish);
    let mut said = server.ask_all(&commands).await.map_err(Trouble::of_nothing)?;
    let silent = match said.pop() {
        Some(Value::ServerError(error)) if error.code() == "NOPERM" => Some(channel.to_owned()),
        _ => None,
    };
    let config = match said.pop() {
        Some(Value::ServerError(_)) | None => None,
        Some(value) => redis::from_redis_value::<HashMap<String, String>>(value).ok(),
    };
    let info = match said.pop() {
        Some(Value::BulkString(text)) => Some(String::from_utf8_lossy(&text).into_owned()),
        Some(Value::VerbatimString { text, .. }) => Some(text),
        _ => None,
    };
    Ok(Answers::new(info.as_deref(), config).silent_on(silent))
}

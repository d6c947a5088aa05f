//! The six questions that decide whether a deployment keeps its promise, answered as far as a configuration can.

use semel_gateway::config::{Config, Keep, Mode, Server, StoreUrl};
use serde::Serialize;

/// A question and what the configuration says to it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Question {
    pub(super) question: &'static str,
    pub(super) answer: String,
}

pub(super) fn answer(config: &Config) -> Vec<Question> {
    let guarded = || config.rules.iter().filter(|rule| rule.mode.value == Mode::Key);
    let names = |keep: &dyn Fn(&semel_gateway::config::Rule) -> bool| {
        guarded().filter(|rule| keep(rule)).map(|rule| format!("`{}`", rule.name)).collect::<Vec<_>>().join(", ")
    };
    let longer = names(&|rule| {
        config.upstreams.get(rule.upstream).is_some_and(|upstream| *upstream.whole > *rule.policy.max_hold)
    });
    let forever = names(&|rule| *rule.policy.unknown_ttl == Keep::Forever);
    let instances = match &*config.store.url {
        StoreUrl::Memory | StoreUrl::Embedded(_) => {
            "the store is this gateway's own: a second gateway would not see its keys. Take a shared store before you start one"
        }
        StoreUrl::Shared(url) => match url.server() {
            Server::Redis => "the store is shared; what a failover loses runs again, and is told",
            _ => "the store is shared",
        },
    };
    vec![
        Question {
            question: "Are keys stable?",
            answer: "the client makes a new key for each intent and sends the same one with every retry: try it with `semel \
                     prove URL`"
                .to_owned(),
        },
        Question {
            question: "Is every check-and-take one step?",
            answer: "in the gateway it is. In the service: a look before a write needs a unique index, or one statement".to_owned(),
        },
        Question {
            question: "Is any run longer than max_hold?",
            answer: match longer.is_empty() {
                true => "no rule's upstream may take longer than the rule's max_hold".to_owned(),
                false => format!("yes: the upstream's whole time-out is longer under {longer}; raise max_hold there"),
            },
        },
        Question {
            question: "Do record and effect share a transaction?",
            answer: "not through a gateway: the effect is exactly once where the service honours Semel-Identity and Semel-Fence"
                .to_owned(),
        },
        Question { question: "Is more than one instance on a local store?", answer: instances.to_owned() },
        Question {
            question: "Is anyone watching the metrics?",
            answer: match forever.is_empty() {
                true => "alert on semel_unknown, semel_store_up and semel_unguarded_total (docs/operations.md)".to_owned(),
                false => format!(
                    "unknown outcomes under {forever} stay until somebody settles them: alert on semel_unknown, semel_store_up \
                     and semel_unguarded_total (docs/operations.md)"
                ),
            },
        },
    ]
}

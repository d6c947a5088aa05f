//! What people did to records: written before the deed, read by `semel keys audit`.

use std::io::Write as _;

use semel_core::identity::Identity;
use semel_core::store::StoreAdmin;
use serde::{Deserialize, Serialize};

use super::args::Audit;
use super::view::short;
use crate::exit::{Exit, Failure};
use crate::term::{Look, Out, shown};

/// One line of the audit, as JSON in the store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Deed {
    /// When, by the clock of whoever did it.
    at: String,
    /// Who: user and machine.
    by: String,
    /// `resolve-completed`, `resolve-failed`, `delete`, `purge`.
    action: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    /// The state the person saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// `asked` before the deed; `refused` after one that was not done.
    result: String,
}

impl Deed {
    /// A deed that is about to be done.
    pub(super) fn new(action: &str, about: Option<(&Identity, &str)>, reason: &str) -> Self {
        Self {
            at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            by: who(),
            action: action.to_owned(),
            identity: about.map(|(identity, _)| identity.to_string()),
            state: about.map(|(_, state)| state.to_owned()),
            reason: (!reason.trim().is_empty()).then(|| reason.trim().to_owned()),
            result: "asked".to_owned(),
        }
    }

    /// Keeps the line. A deed whose line cannot be kept is not done.
    pub(super) async fn keep(&self, store: &dyn StoreAdmin) -> Result<(), Failure> {
        let line = serde_json::to_string(self).map_err(anyhow::Error::from)?;
        store.audit(&line).await.map_err(|error| {
            Failure::runtime(format!("nothing was done: the store cannot keep the audit's line: {error}"))
        })
    }

    /// That the deed was not done after all.
    pub(super) async fn refused(mut self, store: &dyn StoreAdmin) -> Result<(), Failure> {
        self.result = "refused".to_owned();
        self.keep(store).await
    }
}

fn who() -> String {
    let user = ["SEMEL_USER", "SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", rustix::system::uname().nodename().to_string_lossy())
}

pub(super) async fn run(store: &dyn StoreAdmin, args: &Audit) -> Result<Exit, Failure> {
    let lines = store.audited(args.limit).await.map_err(Failure::runtime)?;
    let mut out = Out::stdout();
    let look = Look::of_stdout();
    for line in &lines {
        match serde_json::from_str::<Deed>(line) {
            Ok(deed) if !args.json => out.write_all(look.told(&words(&deed)).as_bytes())?,
            // A line of another version, or one that a crash cut short, is shown as it is.
            Ok(_) => writeln!(out, "{line}")?,
            Err(_) => writeln!(out, "{}", shown(line))?,
        }
    }
    out.flush()?;
    if lines.is_empty() && !args.json {
        writeln!(std::io::stderr(), "nobody changed anything by hand")?;
    }
    Ok(Exit::Clean)
}

fn words(deed: &Deed) -> String {
    let mut text = format!("{}  {} {}", deed.at, deed.by, deed.action);
    if let (Some(identity), Some(state)) = (&deed.identity, &deed.state) {
        text.push_str(&format!(" {}, which was {state}", short(identity)));
    }
    if deed.result != "asked" {
        text.push_str(&format!(": {}", deed.result));
    }
    if let Some(reason) = &deed.reason {
        text.push_str(&format!(" ({reason})"));
    }
    shown(&text).into_owned()
}

//! The flags of `semel keys`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use semel_core::record::StateCode;
use semel_core::store::Filter;
use semel_gateway::config::Flags;

const EXAMPLES: &str = "\
Examples:
  semel keys list --state unknown
  semel keys show 3f9c2a
  semel keys resolve 3f9c2a --completed \\
      --reason \"seen in the ledger\"
  semel keys stats --by rule -c /etc/semel.toml
  semel keys list --store redis://127.0.0.1/0 --json

The store is the one of ./semel.toml, of -c FILE, or of --store. An embedded store belongs to one process: stop the gateway \
before you look into it.
Exit codes: 0 done, 1 not done (not there, or changed meanwhile), 2 usage, 3 no answer.";

/// Look into a store, and settle by hand what nobody can tell.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct Args {
    /// Which store
    #[command(flatten)]
    pub store: StoreArgs,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Which store.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct StoreArgs {
    /// The gateway's configuration file [default: ./semel.toml if it is there]
    #[arg(short, long, env = "SEMEL_CONFIG", value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// The store: embedded, or a server's URL [default: the file's]
    #[arg(long, env = "SEMEL_STORE", value_name = "STORE", hide_env_values = true, global = true)]
    pub store: Option<String>,

    /// Directory of an embedded store [default: the file's, else ./semel-data]
    #[arg(long, env = "SEMEL_DATA_DIR", value_name = "DIR", global = true)]
    pub data_dir: Option<String>,

    /// File with the deployment's secret [default: the file's, else the store's own]
    #[arg(long, env = "SEMEL_SECRET_FILE", value_name = "FILE", global = true)]
    pub secret_file: Option<String>,
}

impl StoreArgs {
    pub(super) fn flags(&self) -> Flags {
        Flags {
            store: self.store.clone(),
            data_dir: self.data_dir.clone(),
            secret_file: self.secret_file.clone(),
            ..Flags::default()
        }
    }
}

/// What to do.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Records, one a line
    List(List),
    /// One record, with all that is known of it
    Show(Show),
    /// Forget a finished, free or parked record: its next request runs
    Delete(Delete),
    /// Settle an unknown or parked record by your word
    Resolve(Resolve),
    /// Remove what has expired, now
    Purge(Purge),
    /// All records as JSON, one a line, without keys and bodies in clear
    Export(Narrow),
    /// How many records there are, how large, how long they still live
    Stats(Stats),
    /// What people did to records, the newest first
    Audit(Audit),
}

impl Command {
    /// Whether it writes for programs.
    pub(super) const fn is_json(&self) -> bool {
        match self {
            Self::List(args) => args.json,
            Self::Show(args) => args.json,
            Self::Stats(args) => args.json,
            Self::Audit(args) => args.json,
            Self::Export(_) => true,
            Self::Delete(_) | Self::Resolve(_) | Self::Purge(_) => false,
        }
    }
}

/// Which records.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Narrow {
    /// Only of this namespace: entrance and service, as `list --json` shows it
    #[arg(long, value_name = "NAME", help = "Only of this namespace: entrance and service, such as http:gateway")]
    pub namespace: Option<String>,

    /// Only of this rule
    #[arg(long, value_name = "NAME")]
    pub rule: Option<String>,

    /// Only those that read as this state
    #[arg(long, value_name = "STATE")]
    pub state: Option<State>,
}

impl Narrow {
    pub(super) fn filter(&self) -> Filter {
        Filter { namespace: self.namespace.clone(), rule: self.rule.clone(), state: self.state.map(State::code) }
    }
}

/// A record's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum State {
    /// Nobody runs: released, or a token that was issued
    Free,
    /// Somebody runs
    InFlight,
    /// The outcome is recorded
    Done,
    /// Nobody can tell the outcome
    Unknown,
    /// Failed too often
    Parked,
}

impl State {
    const fn code(self) -> StateCode {
        match self {
            Self::Free => StateCode::Free,
            Self::InFlight => StateCode::InFlight,
            Self::Done => StateCode::Done,
            Self::Unknown => StateCode::Unknown,
            Self::Parked => StateCode::Parked,
        }
    }
}

/// `semel keys list`.
#[derive(clap::Args, Clone, Debug)]
pub struct List {
    /// Which
    #[command(flatten)]
    pub narrow: Narrow,

    /// At most so many; 0 is all
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub limit: usize,

    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// `semel keys show`.
#[derive(clap::Args, Clone, Debug)]
pub struct Show {
    /// The identity, or the beginning of its hexadecimal digits
    #[arg(value_name = "IDENTITY")]
    pub identity: String,

    /// JSON instead of words
    #[arg(long)]
    pub json: bool,
}

/// `semel keys delete`.
#[derive(clap::Args, Clone, Debug)]
pub struct Delete {
    /// The identity, or the beginning of its hexadecimal digits
    #[arg(value_name = "IDENTITY")]
    pub identity: String,

    /// How it is confirmed, and why
    #[command(flatten)]
    pub word: Word,
}

/// `semel keys resolve`.
#[derive(clap::Args, Clone, Debug)]
#[command(group(clap::ArgGroup::new("outcome").required(true).args(["completed", "failed"])))]
pub struct Resolve {
    /// The identity, or the beginning of its hexadecimal digits
    #[arg(value_name = "IDENTITY")]
    pub identity: String,

    /// It took place: copies are told so, and it does not run again
    #[arg(long)]
    pub completed: bool,

    /// It did not take place: the next request runs
    #[arg(long)]
    pub failed: bool,

    /// How long the settled record is kept
    #[arg(long, default_value = "24h", value_name = "TIME")]
    pub ttl: String,

    /// How it is confirmed, and why
    #[command(flatten)]
    pub word: Word,
}

/// `semel keys purge`.
#[derive(clap::Args, Clone, Debug)]
pub struct Purge {
    /// How it is confirmed, and why
    #[command(flatten)]
    pub word: Word,
}

/// How a change is confirmed.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Word {
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, value_parser = reason)]
    pub reason: String,
}

/// A reason of at most so many bytes: a store keeps at least a thousand of them.
const MOST_OF_A_REASON: usize = 1_000;

fn reason(text: &str) -> Result<String, String> {
    if text.len() > MOST_OF_A_REASON {
        let has = text.len();
        return Err(format!("it has {has} bytes, and may have {MOST_OF_A_REASON}; name the ticket that says more"));
    }
    Ok(text.to_owned())
}

/// `semel keys stats`.
#[derive(clap::Args, Clone, Debug)]
pub struct Stats {
    /// Which
    #[command(flatten)]
    pub narrow: Narrow,

    /// What to group by
    #[arg(long, value_enum, default_value_t = By::Rule)]
    pub by: By,

    /// Admin address of a gateway, or a file with its metrics: says how often records are asked for again; all gateways of the
    /// store, one by one
    #[arg(long, env = "SEMEL_KEYS_GATEWAY", value_name = "URL|FILE", value_delimiter = ' ')]
    pub gateway: Vec<String>,

    /// File with the certificate of an authority (PEM) that an https:// address of --gateway is believed for, beside the
    /// machine's
    #[arg(long, env = "SEMEL_KEYS_CA", value_name = "FILE", requires = "gateway")]
    pub ca: Option<PathBuf>,

    /// JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What to group by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum By {
    /// Entrance and service
    Namespace,
    /// The rule that made the record
    Rule,
    /// What the record reads as
    State,
    /// Key, token, window or message
    Kind,
}

/// `semel keys audit`.
#[derive(clap::Args, Clone, Debug)]
pub struct Audit {
    /// At most so many
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub limit: usize,

    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

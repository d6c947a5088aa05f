//! `semel migrate`: the tables of a store on a database.

use std::io::Write as _;

use semel_core::store::Grade;
use semel_gateway::config::{Flags, Origin, StoreConfig};
use semel_gateway::stores;

use crate::address::Takes;
use crate::config::{Told, source_or_default};
use crate::exit::{Exit, Failure};
use crate::progress::Progress;
use crate::term::{Look, Out};

const EXAMPLES: &str = "\
Examples:
  semel migrate postgres://semel@127.0.0.1/semel
  semel migrate mysql://semel@127.0.0.1/semel --print
  semel migrate -c /etc/semel.toml

Run it before the first gateway of a new version starts. It changes nothing where the tables are up to date, and refuses \
tables of a later version.
Exit codes: 0 done, 1 done, but something is wrong with the tables, 2 usage, 3 the database refuses or does not answer.";

/// Makes the tables of a PostgreSQL or MySQL store, or brings them up to this version.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The database [default: the file's]
    #[arg(value_name = "STORE-URL", env = "SEMEL_STORE", hide_env_values = true)]
    pub url: Option<String>,

    /// The gateway's configuration file [default: ./semel.toml if it is there]
    #[arg(short, long, env = "SEMEL_CONFIG", value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,

    /// Print the SQL for an empty database, and connect to nothing
    #[arg(long)]
    pub print: bool,
}

/// Runs the command to its end.
///
/// # Errors
/// Usage: a store that has no tables. Runtime: a database that refuses or does not answer; stdout that is gone.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    // An address on the command line says it all: a file that happens to lie here has nothing to do with it.
    let file = if args.url.is_some() && args.config.is_none() {
        None
    } else {
        source_or_default(args.config.as_ref(), Takes::Database, Told::Yes)?
    };
    let flags = Flags { store: args.url.clone(), ..Flags::default() };
    let read = StoreConfig::from_parts(file, &flags);
    let config = read.map_err(|refused| Failure::usage(format!("the configuration cannot be used:\n\n{refused}")))?;
    let store = &config.store;
    if store.url.origin == Origin::Default {
        return Err(Failure::usage(
            "name the database: semel migrate postgres://USER@HOST/DATABASE (or mysql://…), or -c FILE with its store.url",
        ));
    }
    if args.print {
        let mut out = Out::stdout();
        out.write_all(stores::migration_sql(store).map_err(Failure::usage)?.as_bytes())?;
        out.flush()?;
        return Ok(Exit::Clean);
    }
    stores::migration_sql(store).map_err(Failure::usage)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let progress = Progress::waiting_for("the database is at work on its tables");
    let done = runtime.block_on(stores::migrate(store));
    progress.end();
    let done = done.map_err(Failure::runtime)?;
    let url = &store.url.value;
    let mut err = std::io::stderr();
    match (done.from, done.to) {
        (0, to) => writeln!(err, "{url}: tables made, version {to}")?,
        (from, to) if from == to => writeln!(err, "{url}: tables are up to date, version {to}")?,
        (from, to) => writeln!(err, "{url}: tables brought from version {from} to {to}")?,
    }
    let look = Look::of_stderr();
    for finding in &done.findings {
        let (word, painted) = match finding.grade {
            Grade::Fatal => ("error", look.bad("error")),
            _ => ("warning", look.open("warning")),
        };
        let indent = word.len() + 2;
        writeln!(err, "{painted}: {}", look.rows().wrap(&finding.to_string(), indent))?;
    }
    Ok(if done.findings.is_empty() { Exit::Clean } else { Exit::Finding })
}

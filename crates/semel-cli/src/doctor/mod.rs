//! `semel doctor`: the configuration and its live surroundings, each finding with its reason and its cure.

mod finding;
mod questions;
mod report;
mod store;
mod through;
mod upstream;

use std::io::Write as _;

use semel_gateway::config::{Config, Severity, lint};

use self::finding::{Checked, Level};
pub use self::through::Through;
use crate::config::{Named, Overrides, Told};
use crate::exit::{Exit, Failure};
use crate::term::{Look, Out};

const EXAMPLES: &str = "\
Examples:
  semel doctor
  semel doctor /etc/semel.toml --json
  semel doctor --upstream http://127.0.0.1:3000 \\
      --store redis://127.0.0.1/0
  semel doctor --through https://shop.example/api \\
      --header 'Authorization: …'
  semel doctor --through http://10.0.0.1:8080 \\
      --through http://10.0.0.2:8080

It connects to the upstreams without sending anything, and runs one claim, completion and replay on the store, under a key \
of its own that it deletes. --through sends marked requests to PUBLIC-URL/.semel-probe, which the gateways answer \
themselves: services behind a gateway get none of them.
Exit codes: 0 nothing to object to, 1 something was found, 2 usage.";

/// Looks at the configuration and its surroundings: store, upstreams, clocks.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Which file
    #[command(flatten)]
    pub named: Named,

    /// Write JSON instead of text
    #[arg(long, env = "SEMEL_DOCTOR_JSON")]
    pub json: bool,

    /// The way to the gateways
    #[command(flatten)]
    pub through: Through,

    /// The flags of the gateway that stand over the file
    #[command(flatten)]
    pub overrides: Overrides,
}

/// Runs the command to its end.
///
/// # Errors
/// A file that cannot be read, a flag that cannot be; stdout that is gone.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let source = args.named.source(Told::unless(args.json))?;
    let mut found = Vec::new();
    let config = match Config::from_parts(source, &args.overrides.flags()) {
        Ok(config) => {
            found.extend(lint(&config).iter().map(Checked::of_file));
            Some(config)
        }
        Err(refused) => {
            found.extend(refused.problems.iter().map(Checked::of_file));
            None
        }
    };
    let mut questions = Vec::new();
    if let Some(config) = &config {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(async {
            upstream::look(config, &mut found).await;
            let secret = store::look(config, &mut found).await;
            if args.through.through.is_empty() {
                return Ok(());
            }
            match through::secret(config, secret) {
                Ok(secret) => through::look(&args.through, config, &secret, &mut found).await,
                Err(why) => {
                    found.push(*why);
                    Ok(())
                }
            }
        })?;
        questions = questions::answer(config);
    }
    let text = match args.json {
        true => report::machine(&found, &questions)?,
        false => report::words(Look::of_stdout(), &found, &questions),
    };
    let mut out = Out::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    let is_bad = found.iter().any(|checked| checked.level >= Level::Warning);
    Ok(if is_bad { Exit::Finding } else { Exit::Clean })
}

impl From<Severity> for Level {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Error => Self::Error,
            Severity::Warning => Self::Warning,
            Severity::Note => Self::Note,
        }
    }
}

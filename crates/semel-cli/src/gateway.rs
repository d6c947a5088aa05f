//! `semel gateway`: the HTTP gateway.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use semel_gateway::config::{Config, LogFormat, Severity, Source, lint, summary};
use semel_gateway::wiring;

use crate::address::Takes;
use crate::config::{FILE, Overrides, source};
use crate::exit::{Exit, Failure};
use crate::logs;
use crate::stop::Stop;
use crate::term::Look;

const EXAMPLES: &str = "\
Examples:
  semel gateway --upstream http://127.0.0.1:3000
  semel gateway --upstream http://127.0.0.1:3000 \\
      --listen 0.0.0.0:8080 --data-dir /var/lib/semel
  semel gateway -c semel.toml

With only --upstream, any unsafe method that carries an Idempotency-Key is guarded and everything else passes. \
`semel check` explains a file.
Exit codes: 0 stopped as asked, 2 usage or configuration, 3 could not run.";

/// The HTTP gateway: whatever is sent twice takes effect once.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The configuration file
    #[arg(short, long, env = "SEMEL_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// What stands over the file
    #[command(flatten)]
    pub overrides: Overrides,
}

/// Runs the gateway until Ctrl-C, SIGTERM or SIGHUP; a second one of the first two ends it at once.
///
/// # Errors
/// Usage: the configuration cannot be used. Runtime: the store cannot be opened, an address cannot be used.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let file = args.config.as_deref().map(|path| source(path, Takes::Both)).transpose()?;
    let mut config = Config::from_parts(file, &args.overrides.flags()).map_err(|error| refused(&error))?;
    logs::write(&config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let exit = runtime.block_on(async {
        let mut stop = Stop::listen()?;
        let gateway = wiring::start(&config, env!("CARGO_PKG_VERSION")).await.map_err(Failure::runtime)?;
        // The ports that were found, where 0 was asked for.
        config.listen.http.value = gateway.http();
        config.listen.admin.value = gateway.admin();
        tell(&config);
        if config.source.is_none() && Path::new(FILE).exists() {
            tracing::warn!("./{FILE} is here but not used; add -c {FILE}");
        }
        stop.asked().await;
        tracing::info!("asked to stop: running requests finish");
        let stopped = tokio::select! {
            stopped = gateway.stop() => stopped,
            () = stop.asked() => return Err(Failure::runtime("asked to stop twice: what still ran was cut; its outcome is unknown")),
        };
        tracing::info!(cut = stopped.cut, abandoned = stopped.abandoned, "stopped");
        Ok(Exit::Clean)
    });
    runtime.shutdown_background();
    exit
}

/// All that is wrong, one after the other, under one heading.
fn refused(refused: &semel_gateway::config::Refused) -> Failure {
    Failure::usage(format!("the configuration cannot be used:\n\n{refused}"))
}

/// What is guarded and what is promised, then what a person should look at: words for people, one event for programs.
/// As with the lines of the log, it serves also where nobody can be told.
fn tell(config: &Config) {
    let findings = lint(config).into_iter().filter(|p| p.severity != Severity::Note);
    if *config.log.format == LogFormat::Json {
        for finding in findings {
            tracing::warn!(why = finding.why, fix = finding.fix, "{}", finding.what);
        }
        tracing::info!(
            http = %config.listen.http.value,
            admin = %config.listen.admin.value,
            store = %config.store.url.value,
            principal = %config.principal.value,
            rules = config.rules.len(),
            file = config.source.as_ref().map(Source::name),
            "serving"
        );
        return;
    }
    let look = Look::of_stderr();
    let mut text = format!("semel gateway {}\n\n{}\n", env!("CARGO_PKG_VERSION"), look.fit(&summary(config)));
    for finding in findings {
        text.push_str(&look.fit(&finding.render(config.source.as_ref())));
        text.push('\n');
    }
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

//! The gateway's configuration as the command line gives it: a file, and flags that stand over it.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use semel_gateway::config::{Flags, Source};
use semel_gateway::named;

use crate::address::{Takes, is_no_file};
use crate::exit::Failure;

/// Flags that stand over a key of the file.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Overrides {
    /// The service behind the gateway: `http://HOST:PORT`
    #[arg(long, env = "SEMEL_UPSTREAM", value_name = "URL", help = "The service behind the gateway: http://HOST:PORT")]
    pub upstream: Option<String>,

    /// Where requests come in [default: 127.0.0.1:8080]
    #[arg(long, env = "SEMEL_LISTEN", value_name = "ADDR")]
    pub listen: Option<String>,

    /// Where health and metrics are, loopback only [default: 127.0.0.1:9090]
    #[arg(long, env = "SEMEL_ADMIN", value_name = "ADDR")]
    pub admin: Option<String>,

    /// Where records live: memory, embedded, or a server's URL (redis://, redis+sentinel://, redis+cluster://, postgres://, mysql://)
    #[arg(
        long,
        env = "SEMEL_STORE",
        value_name = "STORE",
        hide_env_values = true,
        help = "Where records live: memory, embedded, or the URL of a server that gateways share (redis://, redis+sentinel://, \
                redis+cluster://, postgres://, mysql://) [default: embedded]"
    )]
    pub store: Option<String>,

    /// Directory of the embedded store [default: ./semel-data]
    #[arg(long, env = "SEMEL_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<String>,

    /// File with the key of the identity digest [default: the store keeps one]
    #[arg(long, env = "SEMEL_SECRET_FILE", value_name = "FILE")]
    pub secret_file: Option<String>,

    /// How threads share the work: `per_core` or `shared`
    #[arg(
        long,
        env = "SEMEL_RUNTIME",
        value_name = "KIND",
        help = "How threads share the work: per_core or shared [default: per_core]"
    )]
    pub runtime: Option<String>,

    /// How much is logged: error, warn, info, debug, trace [default: info]
    #[arg(long, env = "SEMEL_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<String>,

    /// How a log line looks: text or json [default: text]
    #[arg(long, env = "SEMEL_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<String>,
}

impl Overrides {
    /// For [`Config::from_parts`](semel_gateway::config::Config::from_parts), which tells what is wrong with them.
    pub fn flags(&self) -> Flags {
        Flags {
            upstream: self.upstream.clone(),
            listen: self.listen.clone(),
            admin: self.admin.clone(),
            store: self.store.clone(),
            data_dir: self.data_dir.clone(),
            secret_file: self.secret_file.clone(),
            runtime: self.runtime.clone(),
            log_level: self.log_level.clone(),
            log_format: self.log_format.clone(),
        }
    }
}

/// The file, as a command takes it that looks at it: by its name alone, or as the gateway does, with `-c`.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Named {
    /// The file; where nobody names one, the one of `SEMEL_CONFIG`
    #[arg(help = "The file [env: SEMEL_CONFIG] [default: ./semel.toml if it is there]")]
    pub file: Option<PathBuf>,

    /// The same, as the gateway takes it
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub config: Option<PathBuf>,
}

impl Named {
    /// Reads the file that is named here or by `SEMEL_CONFIG`, else `semel.toml` if it is there.
    ///
    /// # Errors
    /// As [`source`].
    pub fn source(&self, told: Told) -> Result<Option<Source>, Failure> {
        // By hand: what clap takes from a variable would stand in the way of the other form.
        let variable = || std::env::var_os("SEMEL_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        let named = self.config.clone().or_else(|| self.file.clone()).or_else(variable);
        source_or_default(named.as_ref(), Takes::Both, told)
    }
}

/// Whether a file that nobody named is told of, on stderr.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// To people.
    Yes,
    /// Not to programs.
    No,
}

impl Told {
    /// Whoever asks for JSON is a program.
    #[must_use]
    pub fn unless(json: bool) -> Self {
        if json { Self::No } else { Self::Yes }
    }
}

/// The file of the gateway where nobody names one and it is there.
pub const FILE: &str = "semel.toml";

/// No configuration is larger.
const MOST: u64 = 4 << 20;

/// Reads a configuration file. `takes` says what to type where an address stands in its place.
///
/// # Errors
/// Usage: it is not there, cannot be read, or is no UTF-8.
pub fn source(path: &Path, takes: Takes) -> Result<Source, Failure> {
    let name = path.display();
    let bytes = named::read(path, MOST).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            if let Some(why) = path.to_str().and_then(|text| is_no_file(text, takes)) {
                return Failure::usage(why);
            }
            Failure::usage(format!("{name} is not there; name the configuration file, or leave it out"))
        }
        _ => Failure::usage(format!("cannot read {name}: {error}")),
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(name.to_string(), text)),
        Err(error) => Err(Failure::usage(format!(
            "{name} is no UTF-8 text (byte {}); save it as UTF-8",
            error.utf8_error().valid_up_to()
        ))),
    }
}

/// The named file, else `semel.toml` if it is there.
///
/// # Errors
/// As [`source`].
pub fn source_or_default(named: Option<&PathBuf>, takes: Takes, told: Told) -> Result<Option<Source>, Failure> {
    match named {
        Some(path) => source(path, takes).map(Some),
        None if Path::new(FILE).exists() => {
            let read = source(Path::new(FILE), takes)?;
            if told == Told::Yes {
                // A closed stderr leaves nobody to tell.
                let _ = writeln!(std::io::stderr(), "file: ./{FILE}");
            }
            Ok(Some(read))
        }
        None => Ok(None),
    }
}

//! Opening the store that a configuration names: for the gateway, and for the commands that look into one.

mod local;
mod shared;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel_core::env::Env;
use semel_core::identity::Secret;
use semel_core::store::{Finding, Grade, StoreAdmin};

pub use self::shared::{migrate, migration_sql};
use crate::config::{Bytes, Config, Mode, Preset, Rule, Setting, SharedUrl, Store, StoreUrl};

/// An open store, and the secret that its identities are made with.
#[derive(Clone)]
pub struct Opened {
    /// The store.
    pub store: Arc<dyn StoreAdmin>,
    /// The configured secret, or the one that the store keeps.
    pub secret: Secret,
    findings: Vec<Finding>,
    close: Arc<dyn Fn() + Send + Sync>,
}

impl Opened {
    /// Writes what waits and gives the store free. Blocks for at most one batch.
    pub fn close(&self) {
        (self.close)();
    }

    /// The findings as they are for the rules of a configuration. Fatal is what some of them must not be served with:
    /// payments on a server that forgets every record when it restarts.
    #[must_use]
    pub fn findings_for(&self, config: &Config) -> Vec<Finding> {
        let pays =
            |rule: &&Rule| *rule.mode != Mode::Off && rule.preset.is_some_and(|preset| *preset == Preset::Payment);
        let named =
            |rule: &Rule| format!("`{}` ({})", rule.name, rule.preset.map_or(rule.origin, |preset| preset.origin));
        let names: Vec<_> = config.rules.iter().filter(pays).map(named).collect();
        let of_these = |finding: &Finding| match finding.forgets && !names.is_empty() {
            true => Finding {
                grade: Grade::Fatal,
                what: format!(
                    "{} takes no rule with preset payment, as {} is: {}",
                    *config.store.url,
                    names.join(", "),
                    finding.what
                ),
                why: format!("{}, and a payment is made again", finding.why),
                cure: format!("{}. Or take a store that keeps its records", finding.cure),
                ..finding.clone()
            },
            false => finding.clone(),
        };
        self.findings.iter().map(of_these).collect()
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("store", &self.store.facts().name).finish_non_exhaustive()
    }
}

const UNREACHABLE: &str = "start the server, or mend the address, its user or its password";

const LOGIN: &str = "the server answers: mend the user or the password";

const NO_TLS: &str = "does this port speak TLS? Name the one that does, or take the address without TLS";

const ANSWERED: &str = "the server answers: its log may say more";

/// What is said where this side does not believe that it is the server.
const UNTRUSTED: &str = "invalid peer certificate";

/// Whether the server answered and said no, to another thing than the user or the password.
fn is_refused(error: &semel_sql::ConnectError) -> bool {
    error.refused().is_some() && !error.is_refused_login()
}

/// What to do where no connection came about.
fn unreachable(url: &SharedUrl, error: &dyn std::error::Error, is_refused_login: bool) -> &'static str {
    match is_refused_login {
        true => LOGIN,
        // Whoever refuses a connection was not asked for TLS yet.
        false if url.is_tls() && !root(error).contains("refused") => NO_TLS,
        false => UNREACHABLE,
    }
}

/// Why a store could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The file with the secret cannot be used.
    SecretFile(PathBuf, String),
    /// The secret that an embedded store keeps in its directory cannot be used from here.
    OwnSecret(PathBuf, String),
    /// The file with the password cannot be used.
    PasswordFile(PathBuf, String),
    /// A certificate or key for TLS with the store cannot be used.
    TlsFile(PathBuf, String),
    /// The embedded store cannot be opened.
    Embedded(semel_embedded::OpenError),
    /// The Redis at this address, which is shown without its password, cannot be used.
    Redis(SharedUrl, semel_redis::ConnectError),
    /// The database at this address, which is shown without its password, cannot be used.
    Sql(SharedUrl, semel_sql::ConnectError),
    /// The store keeps no secret of its own, and none is configured.
    NoSecret,
    /// The store has no tables to make.
    NoTables(String),
}

impl OpenError {
    /// What is wrong, and with which store; never a password.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::SecretFile(file, why) => format!("the secret in {} cannot be used: {why}", file.display()),
            Self::OwnSecret(file, why) => format!("the store's own secret in {} cannot be used: {why}", file.display()),
            Self::PasswordFile(file, why) => format!("the password in {} cannot be used: {why}", file.display()),
            Self::TlsFile(file, why) => format!("{} cannot be used for TLS with the store: {why}", file.display()),
            Self::Embedded(error) => error.to_string(),
            Self::Redis(url, error) if root(error).contains(UNTRUSTED) => {
                format!("{url} cannot be trusted: {}", root(error))
            }
            Self::Redis(url, error) if error.cure().is_some() => format!("{url} refuses: {}", root(error)),
            Self::Sql(url, error) if is_refused(error) => {
                format!("{url} refuses: {}", error.refused().unwrap_or_default())
            }
            Self::Redis(url, error) if error.is_temporary() => format!("no connection to {url}: {}", root(error)),
            Self::Sql(url, error) if error.is_temporary() => format!("no connection to {url}: {}", root(error)),
            Self::Redis(url, error) => format!("the store {url} cannot be used: {error}"),
            Self::Sql(url, error) => error.to_string().replace("semel migrate URL", &format!("semel migrate {url}")),
            Self::NoSecret => "the store keeps no secret of its own".to_owned(),
            Self::NoTables(store) => format!("{store} needs no tables, only PostgreSQL and MySQL do"),
        }
    }

    /// What to do about it, where [`what`](Self::what) does not say it already.
    #[must_use]
    pub fn cure(&self) -> Option<&'static str> {
        match self {
            Self::SecretFile(..) => Some("write at least 16 random bytes into it, readable by the gateway alone"),
            // Never written by hand: the gateway would not take the directory for its store any more.
            Self::OwnSecret(..) => {
                Some("run this on the gateway's machine with its -c or --data-dir, or give all of them a secret_file")
            }
            Self::PasswordFile(..) => Some("write it into that file, on one line"),
            Self::TlsFile(..) => {
                Some("`[store] tls` names files in PEM: authority, certificate with its chain, and its key")
            }
            Self::Redis(_, error) if error.cure().is_some() => error.cure(),
            Self::Sql(_, error) if is_refused(error) => Some(error.cure().unwrap_or(ANSWERED)),
            Self::Redis(url, error) if error.is_temporary() => Some(unreachable(url, error, error.is_refused_login())),
            Self::Sql(url, error) if error.is_temporary() => Some(unreachable(url, error, error.is_refused_login())),
            Self::NoSecret => Some("name one with secret_file"),
            Self::NoTables(_) => Some("start the gateway"),
            Self::Embedded(_) | Self::Redis(..) | Self::Sql(..) => None,
        }
    }

    /// The process that has the store, which belongs to one: `None` where no other has it, `Some(None)` where its lock does not say
    /// which.
    #[must_use]
    pub fn holder(&self) -> Option<Option<u32>> {
        match self {
            Self::Embedded(semel_embedded::OpenError::InUse { process, .. }) => Some(*process),
            _ => None,
        }
    }
}

/// The innermost reason of an error: each one around it says in its own words that there is no connection.
fn root(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what())?;
        self.cure().map_or(Ok(()), |cure| write!(f, "; {cure}"))
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Embedded(error) => Some(error),
            Self::Redis(_, error) => Some(error),
            Self::Sql(_, error) => Some(error),
            Self::SecretFile(..)
            | Self::OwnSecret(..)
            | Self::PasswordFile(..)
            | Self::TlsFile(..)
            | Self::NoSecret
            | Self::NoTables(_) => None,
        }
    }
}

/// Room beside an answer's body in a record: its head, the key as people see it, trailers.
const BESIDE_BODY: u64 = 256 << 10;

/// Opens the store of a configuration. `largest_body`: of an answer that is to be recorded. Blocks where the store is embedded: it
/// reads its journals. Must be called inside a tokio runtime, which carries the connections of a shared store.
///
/// # Errors
/// [`OpenError`]: what, where and what to do. Nothing in the store was changed.
pub async fn open(
    store: &Store,
    secret_file: Option<&Setting<PathBuf>>,
    largest_body: Bytes,
    env: &Env,
) -> Result<Opened, OpenError> {
    let secret = secret_file.map(|file| configured(&file.value)).transpose()?;
    let largest_rest = largest_body.0.saturating_add(BESIDE_BODY);
    match &*store.url {
        StoreUrl::Memory => Ok(local::memory(store, secret, env)),
        StoreUrl::Embedded(dir) => local::embedded(dir, store, secret, largest_rest, env),
        StoreUrl::Shared(url) => shared::open(url, store, secret, largest_rest, env).await,
    }
}

/// What a person should know about the place of a store that lies in a folder, without opening it: a running gateway may have it,
/// or nobody made it yet. Nothing of other stores.
#[must_use]
pub fn place(store: &Store) -> Vec<Finding> {
    match &*store.url {
        StoreUrl::Embedded(dir) => semel_embedded::inspect(dir, &local::options(store)),
        StoreUrl::Memory | StoreUrl::Shared(_) => Vec::new(),
    }
}

/// The secret of a configuration without opening its store, which a running gateway may have: the configured one, or the
/// one that an embedded store keeps in its directory. `None` where only the open store knows it.
///
/// # Errors
/// [`OpenError::SecretFile`], [`OpenError::OwnSecret`].
pub fn secret_of(store: &Store, secret_file: Option<&Setting<PathBuf>>) -> Result<Option<Secret>, OpenError> {
    match (secret_file, &*store.url) {
        (Some(file), _) => configured(&file.value).map(Some),
        (None, StoreUrl::Embedded(dir)) => {
            let file = dir.join("secret");
            read_secret(&file).map(Some).map_err(|why| OpenError::OwnSecret(file, why))
        }
        (None, _) => Ok(None),
    }
}

fn configured(file: &Path) -> Result<Secret, OpenError> {
    read_secret(file).map_err(|why| OpenError::SecretFile(file.to_owned(), why))
}

/// No secret and no password is larger.
const MOST_OF_A_SECRET: u64 = 64 << 10;

fn read_secret(file: &Path) -> Result<Secret, String> {
    let material = crate::named::read(file, MOST_OF_A_SECRET).map_err(|error| error.to_string())?;
    Secret::from_material(&material).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use semel_sql::{ConnectError, Schema};

    use super::*;
    use crate::config::{Flags, StoreConfig};

    #[test]
    fn missing_tables_are_told_with_the_command_that_makes_them() {
        let flags = Flags { store: Some("postgres://ada:hush@h/db".to_owned()), ..Flags::default() };
        let StoreUrl::Shared(url) = StoreConfig::from_parts(None, &flags).unwrap().store.url.value else {
            panic!("a server's address")
        };
        let error = ConnectError::Schema { server: "h:5432/db".to_owned(), schema: Schema::Missing };
        let said = OpenError::Sql(url, error).to_string();
        assert!(said.contains("`semel migrate postgres://ada:***@h/db`"), "{said}");
    }
}

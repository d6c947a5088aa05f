//! Stores on a server, shared by any number of gateways.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use semel_core::env::Env;
use semel_core::identity::Secret;
use semel_core::store::{Finding, StoreAdmin};
use semel_redis::{ConnectError as RedisError, RedisStore, Tls, TlsPart};
use semel_sql::{Migrated, MySqlStore, Options, PostgresStore};

use super::{OpenError, Opened};
use crate::config::{Server, Setting, SharedUrl, Store, StoreUrl};

pub(super) async fn open(
    url: &SharedUrl,
    store: &Store,
    secret: Option<Secret>,
    largest_rest: u64,
    env: &Env,
) -> Result<Opened, OpenError> {
    let address = address(url, store)?;
    match url.server() {
        Server::Redis => {
            let mut options = semel_redis::Options::default();
            options.prefix.clone_from(&store.prefix.0);
            options.secret = secret;
            options.tls = tls(store)?;
            options.replicas = store.replicas.0;
            options.replica_timeout = *store.replica_timeout;
            // It bounds the other one by its half.
            options.response_timeout = options.response_timeout.max(store.replica_timeout.saturating_mul(2));
            let store = Arc::new(
                RedisStore::connect(&address, env, options)
                    .await
                    .map_err(|error| OpenError::Redis(url.clone(), error))?,
            );
            let looked = store.inspect().await;
            let findings = looked.map_err(|error| OpenError::Redis(url.clone(), RedisError::Unavailable(error)))?;
            Ok(opened(Arc::clone(&store) as _, store.secret().clone(), findings, || {}))
        }
        Server::Postgres => {
            let options = sql(store, secret, largest_rest);
            let store = Arc::new(
                PostgresStore::connect(&address, env, options)
                    .await
                    .map_err(|error| OpenError::Sql(url.clone(), error))?,
            );
            let (secret, findings) = (store.secret().clone(), store.inspect().await.unwrap_or_default());
            Ok(opened(Arc::clone(&store) as _, secret, findings, move || store.close()))
        }
        Server::MySql => {
            let options = sql(store, secret, largest_rest);
            let store = Arc::new(
                MySqlStore::connect(&address, env, options)
                    .await
                    .map_err(|error| OpenError::Sql(url.clone(), error))?,
            );
            let (secret, findings) = (store.secret().clone(), store.inspect().await.unwrap_or_default());
            Ok(opened(Arc::clone(&store) as _, secret, findings, move || store.close()))
        }
    }
}

fn opened(
    store: Arc<dyn StoreAdmin>,
    secret: Secret,
    findings: Vec<Finding>,
    close: impl Fn() + Send + Sync + 'static,
) -> Opened {
    Opened { store, secret, findings, close: Arc::new(close) }
}

fn sql(store: &Store, secret: Option<Secret>, largest_rest: u64) -> Options {
    let built_in = Options::default();
    Options {
        secret,
        connections: usize::try_from(*store.connections).unwrap_or(usize::MAX),
        listen_url: store.listen_url.as_ref().map(|url| url.value.with_password().to_owned()),
        max_rest: built_in.max_rest.max(largest_rest),
        ..built_in
    }
}

/// No certificate with its chain and no list of authorities is larger.
const MOST_OF_PEM: u64 = 1 << 20;

/// What the files of TLS say, once it is known that they can be used.
fn tls(store: &Store) -> Result<Tls, OpenError> {
    let files = &store.tls;
    let bad = |file: &Setting<PathBuf>, why: String| OpenError::TlsFile(file.value.clone(), why);
    let read = |file: &Setting<PathBuf>| {
        crate::named::read(&file.value, MOST_OF_PEM).map_err(|error| bad(file, error.to_string()))
    };
    let mut tls = Tls::default();
    tls.authority = files.authority.as_ref().map(read).transpose()?;
    if let (Some(certificate), Some(key)) = (&files.certificate, &files.key) {
        tls.client = Some((read(certificate)?, read(key)?));
    }
    tls.check().map_err(|wrong| {
        let file = match wrong.part {
            TlsPart::Authority => &files.authority,
            TlsPart::Certificate => &files.certificate,
            _ => &files.key,
        };
        let file = file.as_ref().map(|file| file.value.clone()).unwrap_or_default();
        OpenError::TlsFile(file, wrong.why)
    })?;
    Ok(tls)
}

/// The server's address with its password, which may stand in a file of its own.
fn address(url: &SharedUrl, store: &Store) -> Result<String, OpenError> {
    let Some(file) = &store.password_file else { return Ok(url.with_password().to_owned()) };
    Ok(url.and_password(&read_password(&file.value)?))
}

fn read_password(file: &Path) -> Result<String, OpenError> {
    let bad = |why: String| OpenError::PasswordFile(file.to_owned(), why);
    let text = crate::named::read_text(file, super::MOST_OF_A_SECRET).map_err(|error| bad(error.to_string()))?;
    match text.trim_end_matches(['\n', '\r']) {
        "" => Err(bad("it is empty".to_owned())),
        word => Ok(word.to_owned()),
    }
}

/// Brings the tables of the configured database up to this program's version.
///
/// # Errors
/// [`OpenError`]: a store without tables, a database that refuses.
pub async fn migrate(store: &Store) -> Result<Migrated, OpenError> {
    let url = tables(store)?;
    let address = address(url, store)?;
    let options = Options::default();
    let done = match url.server() {
        Server::MySql => MySqlStore::migrate(&address, &options).await,
        _ => PostgresStore::migrate(&address, &options).await,
    };
    done.map_err(|error| OpenError::Sql(url.clone(), error))
}

/// The statements that [`migrate`] runs on an empty database.
///
/// # Errors
/// [`OpenError::NoTables`].
pub fn migration_sql(store: &Store) -> Result<String, OpenError> {
    Ok(match tables(store)?.server() {
        Server::MySql => MySqlStore::migration_sql(),
        _ => PostgresStore::migration_sql(),
    })
}

fn tables(store: &Store) -> Result<&SharedUrl, OpenError> {
    match &*store.url {
        StoreUrl::Shared(url) if url.server() != Server::Redis => Ok(url),
        other => Err(OpenError::NoTables(other.to_string())),
    }
}

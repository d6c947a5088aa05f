//! Opening the store: a look at everything that would break the promise, before the first claim.

use std::sync::Arc;

use semel_core::{
    env::Env,
    store::{Finding, Grade, StoreFacts},
};
use sqlx::mysql::MySqlConnection;

use super::{
    calls::Calls,
    facts::Variables,
    inspect::inspect,
    mark::{Known, Trouble},
    migrate,
    server::{Door, MySql},
};
use crate::{ConnectError, Options, Schema, pool::Pool};

/// What an open store consists of.
pub(super) struct Opened {
    pub(super) calls: Calls,
    pub(super) facts: StoreFacts,
    pub(super) server: String,
}

pub(super) async fn connect(url: &str, env: &Env, options: &Options) -> Result<Opened, ConnectError> {
    let door = Door::of(url, options.lock_timeout).map_err(|why| ConnectError::Url { why })?;
    let server = door.shown();
    let mut connection = door.open_within(options.connect_timeout).await?;
    let looked = tokio::time::timeout(options.call_timeout, look(&mut connection, &server, env, options)).await;
    let (facts, known) = match looked {
        Ok(looked) => looked?,
        Err(_) => {
            let source = sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
            return Err(ConnectError::Unreachable { server, source });
        }
    };
    let pool = Pool::new(MySql { door, known: Arc::new(known) }, env, options);
    pool.add(connection);
    Ok(Opened { calls: Calls { pool, env: env.clone() }, facts, server })
}

async fn look(
    connection: &mut MySqlConnection,
    server: &str,
    env: &Env,
    options: &Options,
) -> Result<(StoreFacts, Known), ConnectError> {
    let unreachable = |source| ConnectError::Unreachable { server: server.to_owned(), source };
    let found = migrate::version(connection).await.map_err(unreachable)?;
    if let Some(schema) = Schema::of(found, migrate::VERSION) {
        return Err(ConnectError::Schema { server: server.to_owned(), schema });
    }
    let findings: Vec<Finding> = inspect(connection, env.clock.wall()).await.map_err(unreachable)?;
    if findings.iter().any(|f| f.grade == Grade::Fatal) {
        return Err(ConnectError::Refused { server: server.to_owned(), findings });
    }
    let facts = Variables::read(connection).await.map_err(unreachable)?.facts(options.max_rest);
    let known = Known::first(connection, options.secret.as_ref(), env).await.map_err(|trouble| match trouble {
        Trouble::Mark(source) => ConnectError::Mark { server: server.to_owned(), source },
        Trouble::Sql(source) => unreachable(source),
    })?;
    Ok((facts, known))
}

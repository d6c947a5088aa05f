//! From a URL to a store: what is looked at before the first claim.

use std::sync::Arc;

use semel_core::{
    env::Env,
    identity::{Mark, MarkError},
    store::{Did, Finding, StoreError},
};
use sqlx::{PgConnection, Row};

use super::{
    PostgresStore,
    client::Client,
    error,
    inspect::{self, Inspected, Way},
    listen::{Listener, Place},
    migrate,
    primary::{Keeper, Primary},
    sql,
    statement::{Arg, plain},
    url,
};
use crate::{ConnectError, Options, Schema, pool::Pool};

pub(super) async fn connect(text: &str, env: &Env, options: Options) -> Result<PostgresStore, ConnectError> {
    let target = url::parse(text)?;
    let listens_at = options.listen_url.as_deref().map(url::parse).transpose()?;
    let server = url::server(&target);
    let mut one = url::open(&target, options.connect_timeout).await?;
    let mut other = url::open(&target, options.connect_timeout).await?;
    let lock = options.lock_timeout.as_millis().to_string();
    let look = async {
        let pooled = url::is_pooled(&mut one, &mut other).await?;
        let version = migrate::version(&mut one).await?;
        let listens = listens_at.is_some() || !pooled;
        let way = Way { pooled, listens, wall: env.clock.wall(), options: &target };
        let inspected = inspect::inspect(&mut one, way).await?;
        Ok((pooled, version, inspected))
    };
    let unreachable = |source| ConnectError::Unreachable { server: server.clone(), source };
    let looked = tokio::time::timeout(options.call_timeout, look).await;
    let (pooled, version, inspected): (bool, _, Inspected) =
        looked.map_err(|_| unreachable(late()))?.map_err(unreachable)?;
    let findings = inspected.fatal();
    // On a standby no tables can be made, and without tables there are no rights to them.
    if let (Some(schema), false) = (Schema::of(version, migrate::VERSION), inspected.standby) {
        return Err(ConnectError::Schema { server, schema });
    }
    if !findings.is_empty() {
        return Err(ConnectError::Refused { server, findings });
    }
    for finding in inspected.findings.iter().filter(|f| f.grade == semel_core::store::Grade::Warning) {
        tracing::warn!(server, "{finding}");
    }
    let mark = tokio::time::timeout(options.call_timeout, first_mark(&mut one, &lock, env, &options)).await;
    let mark = mark.map_err(|_| unreachable(late()))?.map_err(unreachable)?;
    let marked = |source| ConnectError::Mark { server: server.clone(), source };
    let mark = mark.map_err(marked)?;
    let secret = mark.secret(options.secret.as_ref()).map_err(marked)?;
    let keeper = Keeper::new(secret, mark, Arc::clone(&env.rng));
    // What a pooler hands on is another session the next time: nobody hears anything in it.
    let listens_at = listens_at.or_else(|| (!pooled).then(|| target.clone()));
    let (quiet, patience) = (options.idle_check, options.call_timeout);
    let listener = listens_at.map(|options| Listener::new(Place { options, quiet, patience }, env));
    let pool = Pool::new(Primary { options: target, lock, keeper }, env, &options);
    pool.add(one);
    pool.add(other);
    Ok(PostgresStore {
        client: Arc::new(Client::new(pool, pooled)),
        listener,
        env: env.clone(),
        server,
        durability: inspected.durability,
        max_rest: options.max_rest,
    })
}

fn late() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())
}

/// The mark that is there, or the one that is left now.
async fn first_mark(
    connection: &mut PgConnection,
    lock: &str,
    env: &Env,
    options: &Options,
) -> sqlx::Result<Result<Mark, MarkError>> {
    loop {
        let rows = plain(connection, &sql::HEALTH, lock, &[]).await?;
        let there: Option<Vec<u8>> = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(4)?;
        if let Some(bytes) = there {
            return Ok(Mark::decode(&bytes));
        }
        let mark = Mark::new(options.secret.as_ref(), &*env.rng).encode();
        plain(connection, &sql::PUT_MARK, lock, &[Arg::Bytes(&mark)]).await?;
    }
}

pub(super) async fn inspect(store: &PostgresStore) -> Result<Vec<Finding>, StoreError> {
    let pool = &store.client.pool;
    let deadline = pool.deadline();
    let mut lease = pool.take(deadline).await?;
    let way = Way {
        pooled: store.client.is_plain(),
        listens: store.listener.is_some(),
        wall: store.env.clock.wall(),
        options: &pool.server().options,
    };
    match pool.within(deadline, inspect::inspect(&mut lease, way)).await {
        Some(Ok(inspected)) => {
            lease.back();
            Ok(inspected.findings)
        }
        Some(Err(error)) => Err(error::verdict(&error).error(error).of_nothing()),
        None => Err(error::unavailable(Did::Nothing, "the server did not answer in time")),
    }
}

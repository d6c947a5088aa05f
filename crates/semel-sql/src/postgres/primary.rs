//! A connection to a server that may be written to and still has this deployment's mark.

use std::sync::Arc;

use parking_lot::Mutex;
use semel_core::{
    StoreTime,
    env::Rng,
    identity::{Birth, Mark, Secret},
    store::{Did, StoreError, StoreErrorKind},
};
use sqlx::{Connection, PgConnection, Row, postgres::PgConnectOptions};

use super::{
    error,
    rows::time,
    sql,
    statement::{Arg, plain},
};
use crate::pool::Server;

/// How often a mark is looked for that somebody takes away at the same time.
const TRIES: usize = 3;

/// The server that the store's records are on.
pub(super) struct Primary {
    pub(super) options: PgConnectOptions,
    pub(super) lock: String,
    pub(super) keeper: Keeper,
}

/// What every connection has to find again.
pub(super) struct Keeper {
    pub(super) secret: Secret,
    mark: Mutex<Mark>,
    rng: Arc<dyn Rng>,
}

/// What a server says about itself.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) now: StoreTime,
    /// Why nothing can be written; empty where it can.
    pub(super) trouble: &'static str,
    pub(super) bytes: u64,
    pub(super) birth: Birth,
}

impl Keeper {
    pub(super) fn new(secret: Secret, mark: Mark, rng: Arc<dyn Rng>) -> Self {
        Self { secret, mark: Mutex::new(mark), rng }
    }

    /// A mark that was found. One that was born anew says that the records are gone; one of another secret, that these are
    /// somebody else's.
    fn see(&self, bytes: &[u8]) -> Result<Birth, StoreError> {
        let closed = |why| StoreError::new(Did::Nothing, StoreErrorKind::Closed, why);
        let mark = Mark::decode(bytes).map_err(closed)?;
        mark.secret(Some(&self.secret)).map_err(closed)?;
        let mut known = self.mark.lock();
        if *known != mark {
            let (before, now) = (known.birth().short(), mark.birth().short());
            tracing::warn!("the store lost its records: its mark was {before} and is {now} now");
            *known = mark;
        }
        Ok(known.birth())
    }

    /// What to put in place of a mark that is gone.
    fn reborn(&self) -> Vec<u8> {
        self.mark.lock().reborn(&*self.rng).encode()
    }
}

impl Primary {
    /// Looks at the server and at its mark; puts the mark back where it is gone.
    pub(super) async fn look(&self, connection: &mut PgConnection) -> sqlx::Result<Result<Looked, StoreError>> {
        for _ in 0..TRIES {
            let rows = plain(connection, &sql::HEALTH, &self.lock, &[]).await?;
            let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
            let trouble = match (row.try_get(1)?, row.try_get(2)?) {
                (true, _) => "the server is a standby: it takes no writes until it is promoted",
                (false, true) => "the server takes no writes: default_transaction_read_only is on",
                (false, false) => "",
            };
            let bytes: i64 = row.try_get(3)?;
            let looked =
                |birth| Looked { now: StoreTime::default(), trouble, bytes: u64::try_from(bytes).unwrap_or(0), birth };
            match row.try_get::<Option<Vec<u8>>, _>(4)? {
                Some(mark) => {
                    let now = time(row, 0)?;
                    return Ok(self.keeper.see(&mark).map(|birth| Looked { now, ..looked(birth) }));
                }
                None if trouble.is_empty() => {
                    plain(connection, &sql::PUT_MARK, &self.lock, &[Arg::Bytes(&self.keeper.reborn())]).await?;
                }
                None => return Ok(Err(error::unavailable(Did::Nothing, trouble))),
            }
        }
        Ok(Err(error::unavailable(Did::Nothing, "the mark of the database's records does not stay")))
    }
}

impl Server for Primary {
    type Connection = PgConnection;

    async fn connect(&self) -> Result<PgConnection, StoreError> {
        let mut connection = PgConnection::connect_with(&self.options).await.map_err(error::connecting)?;
        let looked = self.look(&mut connection).await.map_err(error::connecting)??;
        if looked.trouble.is_empty() {
            Ok(connection)
        } else {
            // Nobody waits for the good-bye of a server that is of no use.
            Err(error::unavailable(Did::Nothing, looked.trouble))
        }
    }
}

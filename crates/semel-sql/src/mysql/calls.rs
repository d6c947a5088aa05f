//! One statement at a time: on a connection of the pool, within the call's time, sent again where it lost to another one.

use std::time::Duration;

use semel_core::{
    env::{Env, Tick},
    store::{Did, StoreError, StoreErrorKind},
};
use sqlx::{
    SqlSafeStr, SqlStr,
    mysql::{MySqlConnection, MySqlRow},
};

use super::{
    fault::{Fault, Verdict},
    server::MySql,
    sql::Args,
};
use crate::pool::Pool;

/// How often a statement is sent again that lost to another one. Of claims of one key that come at once each may lose a few
/// times, until there is a row to find.
const AGAIN: u32 = 8;

/// The store's connections.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    pub(super) pool: Pool<MySql>,
    pub(super) env: Env,
}

/// What a statement that changes something did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wrote {
    /// So many rows; and the last insert id, if it sets one.
    Rows { matched: u64, id: u64 },
    /// Nothing: there is a row of that key.
    Duplicate,
    /// Nothing: another one holds the row.
    Busy,
}

enum Answer {
    Rows(Vec<MySqlRow>),
    Wrote(Wrote),
}

impl Calls {
    /// When a call that begins now has to be over.
    pub(super) fn until(&self) -> Tick {
        self.pool.deadline()
    }

    /// Sends a statement that changes something.
    pub(super) async fn write(&self, until: Tick, sql: impl SqlSafeStr, args: &Args) -> Result<Wrote, StoreError> {
        match self.send(until, &sql.into_sql_str(), args, false).await? {
            Answer::Wrote(wrote) => Ok(wrote),
            Answer::Rows(_) => Err(StoreError::unavailable(Did::Unknown)),
        }
    }

    /// Sends a statement that reads; its errors are of a call that did nothing.
    pub(super) async fn read(
        &self,
        until: Tick,
        sql: impl SqlSafeStr,
        args: &Args,
    ) -> Result<Vec<MySqlRow>, StoreError> {
        match self.send(until, &sql.into_sql_str(), args, true).await.map_err(StoreError::of_nothing)? {
            Answer::Rows(rows) => Ok(rows),
            Answer::Wrote(_) => Err(nothing(LOCKED)),
        }
    }

    /// The only row of a statement that always has one.
    pub(super) async fn read_one(
        &self,
        until: Tick,
        sql: impl SqlSafeStr,
        args: &Args,
    ) -> Result<MySqlRow, StoreError> {
        let mut rows = self.read(until, sql, args).await?;
        if rows.len() == 1 { Ok(rows.remove(0)) } else { Err(nothing("the server answered with no row")) }
    }

    async fn send(&self, until: Tick, sql: &SqlStr, args: &Args, reads: bool) -> Result<Answer, StoreError> {
        for lost in 0..=AGAIN {
            self.step_back(lost).await;
            let mut lease = self.pool.take(until).await?;
            let verdict = match self.pool.within(until, ask(&mut lease, sql, args, reads)).await {
                // Nobody waits for the answer any longer. A caller who leaves earlier drops the lease: then it is read, and
                // thrown away, in the background.
                None => {
                    drop(lease.broke());
                    return Err(StoreError::unavailable(Did::Unknown));
                }
                Some(Ok(answer)) => {
                    lease.back();
                    return Ok(answer);
                }
                Some(Err(error)) => Verdict::of(error),
            };
            if verdict.connection_lives {
                lease.back();
            } else {
                drop(lease.broke());
            }
            match verdict.fault {
                Fault::Duplicate => return Ok(Answer::Wrote(Wrote::Duplicate)),
                Fault::Busy => return Ok(Answer::Wrote(Wrote::Busy)),
                Fault::Again => {}
                Fault::Failed(error) => return Err(error),
            }
        }
        Err(nothing("the statement lost to others again and again"))
    }

    /// At once the first time; then for a moment that differs from caller to caller.
    async fn step_back(&self, lost: u32) {
        if lost < 2 {
            return;
        }
        let mut random = [0];
        self.env.rng.fill(&mut random);
        let moment = Duration::from_micros((u64::from(random[0]) * 4) << lost.min(5));
        self.env.clock.sleep_until(self.env.clock.now() + moment).await;
    }
}

async fn ask(connection: &mut MySqlConnection, sql: &SqlStr, args: &Args, reads: bool) -> Result<Answer, sqlx::Error> {
    let query = sqlx::query_with(sql.clone(), args.clone().into_inner());
    if reads {
        return query.fetch_all(connection).await.map(Answer::Rows);
    }
    let done = query.execute(connection).await?;
    Ok(Answer::Wrote(Wrote::Rows { matched: done.rows_affected(), id: done.last_insert_id() }))
}

pub(super) const LOCKED: &str = "the row was locked for longer than a statement waits";

pub(super) fn nothing(why: &'static str) -> StoreError {
    StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, why)
}

//! Sends a statement over a connection of the pool: within its time, again where that is right.

use std::sync::atomic::{AtomicBool, Ordering};

use semel_core::store::{Did, StoreError};
use sqlx::postgres::PgRow;

use super::{
    error::{self, Next},
    primary::Primary,
    sql::Statement,
    statement::{Arg, plain, prepared},
};
use crate::pool::Pool;

/// How often a statement is sent that another one got in the way of.
const TRIES: usize = 5;

/// The store's way to its server. Cancel-safe: dropping a call loses only its answer.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) pool: Pool<Primary>,
    /// Whether a pooler may hand each statement to another session.
    plain: AtomicBool,
}

/// A statement that was not answered.
#[derive(Debug)]
pub(super) enum Failure {
    /// Somebody changed the row for longer than the lock's time-out; nothing was done.
    Locked(StoreError),
    /// Anything else.
    Other(StoreError),
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Locked(error) | Failure::Other(error) => error,
        }
    }
}

impl Client {
    pub(super) fn new(pool: Pool<Primary>, pooled: bool) -> Self {
        Self { pool, plain: AtomicBool::new(pooled) }
    }

    /// Whether statements go as text.
    pub(super) fn is_plain(&self) -> bool {
        self.plain.load(Ordering::Relaxed)
    }

    /// The statement's rows, at least one.
    pub(super) async fn run(&self, statement: &Statement, args: &[Arg<'_>]) -> Result<Vec<PgRow>, Failure> {
        let deadline = self.pool.deadline();
        let mut last = None;
        for _ in 0..TRIES {
            let mut lease = self.pool.take(deadline).await.map_err(Failure::Other)?;
            let plainly = self.is_plain();
            let lock = self.pool.server().lock.as_str();
            let answer = async {
                if plainly {
                    plain(&mut lease, statement, lock, args).await
                } else {
                    prepared(&mut lease, statement, lock, args).await
                }
            };
            let Some(answer) = self.pool.within(deadline, answer).await else {
                return Err(Failure::Other(error::unavailable(Did::Unknown, "the server did not answer in time")));
            };
            match answer {
                Ok(rows) if !rows.is_empty() => {
                    lease.back();
                    return Ok(rows);
                }
                // Another client's statement has the same name on the session that a pooler gave us.
                Ok(_) => {
                    lease.broke();
                    self.distrust();
                }
                Err(cause) => {
                    let verdict = error::verdict(&cause);
                    if verdict.usable {
                        lease.back();
                    } else {
                        lease.broke();
                    }
                    match verdict.next {
                        Next::Tell => return Err(Failure::Other(verdict.error(cause))),
                        Next::Locked => return Err(Failure::Locked(verdict.error(cause))),
                        Next::Again => {}
                        Next::Plain => self.distrust(),
                    }
                    last = Some(verdict.error(cause));
                }
            }
        }
        let gave_up = || error::unavailable(Did::Nothing, "others got in the way each time");
        Err(Failure::Other(last.unwrap_or_else(gave_up)))
    }

    fn distrust(&self) {
        if !self.plain.swap(true, Ordering::Relaxed) {
            tracing::warn!("a transaction pooler is before PostgreSQL: statements go as text from now on");
        }
    }
}

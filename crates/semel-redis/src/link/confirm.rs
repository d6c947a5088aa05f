//! Calls that count only once replicas have what they wrote.
//!
//! `WAIT` answers for the last write of its own connection, and holds up whatever comes behind it there. So a call, a write that
//! changes nothing and a `WAIT` go on one way, on a connection of a pool: an answer that wrote nothing itself, such as that to a
//! call repeated on another connection, rests on a write of another connection, which came before the one that changes
//! nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{Pipeline, RedisError, Value, aio::MultiplexedConnection};
use semel_core::store::{Did, StoreError, StoreErrorKind};

use super::{Link, Trouble, Wire, answer};
use crate::{
    script::{By, Call, SCRIPTS},
    verdict,
};

/// Connections to each server, for each runtime. All that wait on them at a time wait for one answer of the replicas: eight of
/// them carry eight calls per round trip between the servers.
pub(super) const LINES: usize = 8;

/// How many replicas must have it, and for how long that may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Confirm {
    pub(crate) replicas: u32,
    pub(crate) within: Duration,
}

impl Confirm {
    /// The command. A zero would wait without an end.
    pub(super) fn command(self) -> redis::Cmd {
        let mut wait = redis::cmd("WAIT");
        wait.arg(self.replicas).arg(u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX).max(1));
        wait
    }
}

/// The connections of one wire.
#[derive(Default)]
pub(super) struct Pool(Vec<Line>);

struct Line {
    connection: MultiplexedConnection,
    waiting: AtomicUsize,
}

/// A call on a line, until it is answered or its caller has left.
struct Waiting<'a>(&'a Line);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Pool {
    pub(super) fn new(connections: Vec<MultiplexedConnection>) -> Arc<Self> {
        let line = |connection| Line { connection, waiting: AtomicUsize::new(0) };
        Arc::new(Self(connections.into_iter().map(line).collect()))
    }

    /// The line on which the fewest wait.
    fn least(&self) -> Option<Waiting<'_>> {
        let line = self.0.iter().min_by_key(|line| line.waiting.load(Ordering::Acquire))?;
        line.waiting.fetch_add(1, Ordering::AcqRel);
        Some(Waiting(line))
    }
}

impl Link {
    /// Runs a script, and says what it said where enough replicas have it. Where they have not, the call is done here, and
    /// may be undone by a failover: nobody can tell.
    pub(super) async fn run_confirmed(
        self: &Arc<Self>,
        call: &Call<'_>,
        asking: bool,
        confirm: Confirm,
    ) -> Result<Value, Trouble> {
        for by in [By::Digest, By::Text] {
            let sent = self.exchange(async |wire: &mut Wire| wire.send_confirmed(call, by, asking, confirm).await);
            let [said, touched, waited]: [Value; 3] =
                sent.await?.try_into().map_err(|_| unconfirmed("the server answered less than it was asked"))?;
            let said = match answer(said) {
                Err(Trouble::Sent(error)) if by == By::Digest && verdict::code(&error) == Some("NOSCRIPT") => continue,
                said => said?,
            };
            return match (answer(touched), answer(waited)) {
                (Ok(_), Ok(Value::Int(have))) if have >= i64::from(confirm.replicas) => Ok(said),
                (Ok(_), Ok(Value::Int(have))) => Err(unconfirmed(&format!(
                    "{have} of {} replicas had it after {:?}",
                    confirm.replicas, confirm.within
                ))),
                (touched, waited) => {
                    // A server that became a replica answers nobody who waits for its own.
                    self.hang_up();
                    let error = touched.and(waited).err().map(Trouble::of_nothing);
                    let why = error.as_ref().map_or_else(|| "WAIT answered no number".to_owned(), verdict::cause);
                    Err(unconfirmed(&why))
                }
            };
        }
        unreachable!("a script that was sent in full is answered")
    }
}

impl Wire {
    async fn send_confirmed(
        &self,
        call: &Call<'_>,
        by: By,
        asking: bool,
        confirm: Confirm,
    ) -> Result<Vec<Value>, RedisError> {
        let mut commands = Pipeline::with_capacity(5);
        let touch = Call { script: &SCRIPTS.touch, key: call.key, args: Vec::new() };
        for command in [call.command(by, self.is_modern), touch.command(By::Text, self.is_modern)] {
            if asking {
                commands.add_command(redis::cmd("ASKING"));
            }
            commands.add_command(command);
        }
        commands.add_command(confirm.command());
        let waiting = self.pool.least();
        let connection = waiting.as_ref().map_or(&self.connection, |waiting| &waiting.0.connection);
        let mut answers = connection.clone().send_packed_commands(&commands, 0, commands.len()).await?;
        if asking && answers.len() == 5 {
            answers.remove(2);
            answers.remove(0);
        }
        Ok(answers)
    }
}

fn unconfirmed(why: &str) -> Trouble {
    Trouble::Unconfirmed(StoreError::new(
        Did::Unknown,
        StoreErrorKind::Unavailable,
        format!("not on its replicas: {why}"),
    ))
}

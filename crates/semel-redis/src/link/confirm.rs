//! Calls that count only once replicas have what they wrote.
//!
//! `WAIT` answers for the last write of its own connection (before 7.2 for all that was written by then), and holds up whatever
//! comes behind it there. So a call, a write that changes nothing and a `WAIT` go on one way, on a connection of a pool: an
//! answer that wrote nothing itself, such as that to a call repeated on another connection, rests on a write of another
//! connection, which came before the one that changes nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{Pipeline, Value, aio::MultiplexedConnection};
use semel_core::{
    env::Tick,
    store::{Did, StoreError, StoreErrorKind},
};

use super::{Link, Trouble, Wire, answer, dial::unusable, silence::Silence};
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

/// The connections of one wire, one at least.
pub(super) struct Pool {
    first: Line,
    more: Vec<Line>,
}

struct Line {
    connection: MultiplexedConnection,
    /// Of each line: others that are answered say nothing of one that is not.
    silence: Silence,
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
    pub(super) fn new(first: MultiplexedConnection, more: Vec<MultiplexedConnection>) -> Arc<Self> {
        let line = |connection| Line { connection, silence: Silence::default(), waiting: AtomicUsize::new(0) };
        Arc::new(Self { first: line(first), more: more.into_iter().map(line).collect() })
    }

    fn lines(&self) -> impl Iterator<Item = &Line> {
        // The first one answers other questions too: it is taken last.
        self.more.iter().chain([&self.first])
    }

    /// The line on which the fewest wait.
    fn least(&self) -> Waiting<'_> {
        let line = self.lines().min_by_key(|line| line.waiting.load(Ordering::Acquire)).unwrap_or(&self.first);
        line.waiting.fetch_add(1, Ordering::AcqRel);
        Waiting(line)
    }

    /// Whether one of them says nothing for longer than an answer may take.
    pub(super) fn is_silent(&self, now: impl Fn() -> Tick, limit: Duration) -> bool {
        self.lines().any(|line| line.silence.is_over(&now, limit))
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
            let wire = self.wire().await.map_err(Trouble::Unsent)?;
            let [said, touched, waited] = self.send_confirmed(&wire, call, by, asking, confirm).await?;
            let said = match answer(said) {
                Err(Trouble::Sent(error)) if by == By::Digest && verdict::code(&error) == Some("NOSCRIPT") => continue,
                said => said?,
            };
            let why = match (answer(touched), answer(waited)) {
                (Ok(_), Ok(Value::Int(have))) if have >= i64::from(confirm.replicas) => return Ok(said),
                (Ok(_), Ok(Value::Int(have))) => {
                    format!("{have} of {} replicas had it after {:?}", confirm.replicas, confirm.within)
                }
                (Ok(_), Ok(_)) => "WAIT answered no number".to_owned(),
                (Err(error), _) | (_, Err(error)) => {
                    if leads_elsewhere(&error) {
                        self.drop_wire(wire.serial);
                    }
                    verdict::cause(&error.into())
                }
            };
            return Err(unconfirmed(&why));
        }
        unreachable!("a script that was sent in full is answered")
    }

    /// The script's answer, that of the write that changes nothing, and how many replicas have it.
    async fn send_confirmed(
        &self,
        wire: &Wire,
        call: &Call<'_>,
        by: By,
        asking: bool,
        confirm: Confirm,
    ) -> Result<[Value; 3], Trouble> {
        let mut commands = Pipeline::with_capacity(5);
        let touch = Call { script: &SCRIPTS.touch, key: call.key, args: Vec::new() };
        for command in [call.command(by, wire.is_modern, None), touch.command(By::Text, wire.is_modern, None)] {
            if asking {
                commands.add_command(redis::cmd("ASKING"));
            }
            commands.add_command(command);
        }
        commands.add_command(confirm.command());
        // Whoever dials for calls that wait makes one.
        let Some(pool) = &wire.pool else {
            return Err(Trouble::Unsent(unusable("no connection to wait on".to_owned())));
        };
        let waiting = pool.least();
        let Waiting(line) = &waiting;
        line.silence.begins(self.now());
        let result = line.connection.clone().send_packed_commands(&commands, 0, commands.len()).await;
        let mut answers = self.heard(&line.silence, wire.serial, result)?;
        if asking && answers.len() == 5 {
            answers.remove(2);
            answers.remove(0);
        }
        answers.try_into().map_err(|_| unconfirmed("the server answered less than it was asked"))
    }
}

/// Whether the server is not the one to talk to any more: one that became a replica answers nobody who waits for its own.
fn leads_elsewhere(trouble: &Trouble) -> bool {
    match trouble {
        Trouble::Sent(error) => verdict::code(error).is_none() || verdict::is_demoted(error),
        Trouble::Unsent(_) | Trouble::Unconfirmed(_) => false,
    }
}

fn unconfirmed(why: &str) -> Trouble {
    Trouble::Unconfirmed(StoreError::new(
        Did::Unknown,
        StoreErrorKind::Unavailable,
        format!("not on its replicas: {why}"),
    ))
}

//! A connection to one server that comes back by itself.
//!
//! Connections are made in a task of their own, since callers give up sooner than a connection may take. A server that
//! says nothing for too long loses its connection, also where every caller has left before the time-out: what counts
//! is since when calls wait for any answer.

mod confirm;
mod dial;
mod follow;
mod fresh;
mod reckoning;
mod silence;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use redis::{Cmd, Pipeline, RedisError, Value, aio::MultiplexedConnection};
use semel_core::{
    env::Tick,
    store::{Did, StoreError, StoreErrorKind},
};
use tokio::sync::watch;

pub(crate) use self::{
    confirm::Confirm,
    dial::{Dialer, Target},
    fresh::Before,
};
use self::{confirm::Pool, dial::Dialed, reckoning::Reckoning, silence::Silence};
use crate::{
    address::Host,
    script::{By, Call},
    verdict,
};

/// After a connection failed, callers hear of it at once for this long.
const REST: Duration = Duration::from_millis(20);

/// A connection in use.
#[derive(Clone)]
pub(crate) struct Wire {
    connection: MultiplexedConnection,
    silence: Arc<Silence>,
    clock: Arc<Reckoning>,
    /// For calls that wait for replicas, where any do.
    pool: Option<Arc<Pool>>,
    /// The server knows the first line of settling scripts (7.0).
    is_modern: bool,
    serial: u64,
}

/// Why a command has no answer that can be used.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// There is no connection: nothing was sent.
    Unsent(StoreError),
    /// It was sent; see [`verdict`].
    Sent(RedisError),
    /// It was done, and not enough replicas have it; or its answer makes no sense.
    Unconfirmed(StoreError),
}

impl Trouble {
    /// The same for a command that would have changed nothing in any case.
    pub(crate) fn of_nothing(self) -> StoreError {
        StoreError::from(self).of_nothing()
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Unsent(error) | Trouble::Unconfirmed(error) => error,
            Trouble::Sent(error) => verdict::of(error),
        }
    }
}

/// One server, or the one that is primary now.
pub(crate) struct Link {
    dialer: Arc<Dialer>,
    target: Target,
    state: Mutex<State>,
    serials: AtomicU64,
    /// Where the last connection led.
    at: watch::Sender<Option<Host>>,
    /// A task follows what the Sentinels say.
    is_followed: AtomicBool,
}

enum State {
    Down { again: Tick, why: Option<Why> },
    Dialing(watch::Receiver<Option<Result<Wire, Why>>>),
    Up(Wire),
}

/// A failed connection, told to everybody who waited for it.
#[derive(Clone, Debug)]
struct Why {
    kind: StoreErrorKind,
    words: Arc<str>,
}

impl Why {
    fn of(error: &StoreError) -> Self {
        Self { kind: error.kind, words: verdict::cause(error).into() }
    }

    fn error(&self) -> StoreError {
        StoreError::new(Did::Nothing, self.kind, self.words.to_string())
    }
}

impl Link {
    pub(crate) fn new(dialer: Arc<Dialer>, target: Target) -> Arc<Self> {
        let state = Mutex::new(State::Down { again: Tick::default(), why: None });
        let (serials, at, is_followed) = (AtomicU64::new(1), watch::Sender::new(None), AtomicBool::new(false));
        Arc::new(Self { dialer, target, state, serials, at, is_followed })
    }

    /// Whether the last connection led there.
    pub(crate) fn is_at(&self, host: &Host) -> bool {
        self.at.borrow().as_ref() == Some(host)
    }

    /// Resolves when another connection has led somewhere else.
    pub(crate) async fn moved_from(&self, host: &Host) {
        let elsewhere = |at: &Option<Host>| at.as_ref().is_some_and(|at| at != host);
        let mut at = self.at.subscribe();
        // The sender is this value's own.
        let _lasts = at.wait_for(elsewhere).await;
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// The server's place, for people and for orders that last.
    pub(crate) fn place(&self) -> String {
        match &self.target {
            Target::Primary(host) | Target::Node(host) => host.to_string(),
            Target::Named { name, .. } => name.clone(),
        }
    }

    /// The connection, made first where there is none.
    async fn wire(self: &Arc<Self>) -> Result<Wire, StoreError> {
        loop {
            let mut dialing = {
                let mut state = self.state.lock();
                match &*state {
                    State::Up(wire) if !self.is_silent(wire) => return Ok(wire.clone()),
                    State::Dialing(dialing) => dialing.clone(),
                    State::Down { again, why: Some(why) } if self.now() < *again => return Err(why.error()),
                    State::Up(_) | State::Down { .. } => {
                        let dialing = self.dial()?;
                        *state = State::Dialing(dialing.clone());
                        dialing
                    }
                }
            };
            if let Ok(result) = dialing.wait_for(Option::is_some).await {
                return match &*result {
                    Some(Ok(wire)) => Ok(wire.clone()),
                    Some(Err(why)) => Err(why.error()),
                    None => continue,
                };
            }
            // The runtime that dialed is gone; another one may be there.
            let mut state = self.state.lock();
            if matches!(&*state, State::Dialing(current) if current.same_channel(&dialing)) {
                *state = State::Down { again: Tick::default(), why: None };
            }
        }
    }

    /// Makes a connection where there is none.
    pub(crate) async fn reach(self: &Arc<Self>) -> Result<(), StoreError> {
        self.wire().await.map(|_| ())
    }

    /// Starts to make a connection.
    fn dial(self: &Arc<Self>) -> Result<watch::Receiver<Option<Result<Wire, Why>>>, StoreError> {
        self.follow();
        let (tell, told) = watch::channel(None);
        let link = Arc::clone(self);
        let task = async move {
            let serial = link.serials.fetch_add(1, Ordering::AcqRel);
            let dialed = link.dialer.dial(&link.target).await;
            let result = match dialed {
                Ok(Dialed { connection, pool, is_modern, clock, host }) => {
                    link.at.send_replace(Some(host));
                    Ok(Wire { connection, silence: Arc::default(), clock: Arc::new(clock), pool, is_modern, serial })
                }
                Err(error) => Err(Why::of(&error)),
            };
            *link.state.lock() = match &result {
                Ok(wire) => State::Up(wire.clone()),
                Err(why) => State::Down { again: link.now() + REST, why: Some(why.clone()) },
            };
            tell.send_replace(Some(result));
        };
        if self.dialer.env().tasks.spawn("semel redis connection", Box::pin(task)) {
            return Ok(told);
        }
        Err(StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, "there is no runtime to connect in"))
    }

    fn now(&self) -> Tick {
        self.dialer.env().clock.now()
    }

    fn is_silent(&self, wire: &Wire) -> bool {
        let (now, limit) = (|| self.now(), self.dialer.response_timeout());
        wire.silence.is_over(now, limit) || wire.pool.as_ref().is_some_and(|pool| pool.is_silent(now, limit))
    }

    /// One command and its answer.
    pub(crate) async fn ask(self: &Arc<Self>, command: &Cmd) -> Result<Value, Trouble> {
        self.exchange(async |wire: &mut Wire, _| wire.connection.send_packed_command(command).await)
            .await
            .and_then(answer)
    }

    /// Several commands on one way, each with an answer of its own.
    pub(crate) async fn ask_all(self: &Arc<Self>, commands: &Pipeline) -> Result<Vec<Value>, Trouble> {
        let count = commands.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        self.exchange(async |wire: &mut Wire, _| wire.connection.send_packed_commands(commands, 0, count).await).await
    }

    /// Runs a script; a server that lost it gets it in full. `asking` follows a slot that is on the move.
    pub(crate) async fn run(self: &Arc<Self>, call: &Call<'_>, asking: bool) -> Result<Value, Trouble> {
        if let Some(confirm) = self.dialer.confirm {
            return self.run_confirmed(call, asking, confirm).await;
        }
        for by in [By::Digest, By::Text] {
            let result = self.exchange(async |wire: &mut Wire, now| wire.run(call, by, asking, now).await);
            let result = result.await.and_then(answer);
            match result {
                Err(Trouble::Sent(error)) if by == By::Digest && verdict::code(&error) == Some("NOSCRIPT") => {}
                result => return result,
            }
        }
        unreachable!("a script that was sent in full is answered")
    }

    /// Runs many scripts on one way. A server that lost one gets it in full, in a second go.
    pub(crate) async fn run_all(self: &Arc<Self>, calls: &[&Call<'_>]) -> Result<Vec<Result<Value, Trouble>>, Trouble> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let send = async |wire: &mut Wire, calls: &[&Call<'_>], by| {
            let mut pipeline = Pipeline::with_capacity(calls.len());
            for call in calls {
                pipeline.add_command(call.command(by, wire.is_modern, None));
            }
            wire.connection.send_packed_commands(&pipeline, 0, calls.len()).await
        };
        let first = self.exchange(async |wire: &mut Wire, _| send(wire, calls, By::Digest).await).await?;
        let mut answers: Vec<_> = first.into_iter().map(answer).collect();
        let is_lost = |answer: &Result<Value, Trouble>| match answer {
            Err(Trouble::Sent(error)) => verdict::code(error) == Some("NOSCRIPT"),
            _ => false,
        };
        let lost: Vec<_> = (0..answers.len()).filter(|n| is_lost(&answers[*n])).collect();
        if !lost.is_empty() {
            let again: Vec<_> = lost.iter().map(|n| calls[*n]).collect();
            let second = self.exchange(async |wire: &mut Wire, _| send(wire, &again, By::Text).await).await?;
            for (n, value) in lost.into_iter().zip(second) {
                answers[n] = answer(value);
            }
        }
        Ok(answers)
    }

    async fn exchange<T>(
        self: &Arc<Self>,
        send: impl AsyncFnOnce(&mut Wire, Tick) -> Result<T, RedisError>,
    ) -> Result<T, Trouble> {
        let mut wire = self.wire().await.map_err(Trouble::Unsent)?;
        let now = self.now();
        wire.silence.begins(now);
        let result = send(&mut wire, now).await;
        self.heard(&wire.silence, wire.serial, result)
    }

    fn heard<T>(&self, silence: &Silence, serial: u64, result: Result<T, RedisError>) -> Result<T, Trouble> {
        match &result {
            // A connection that broke, or whose answers come too late to be told apart from another call's.
            Err(error) if verdict::code(error).is_none() => self.drop_wire(serial),
            _ => silence.ends(),
        }
        result.map_err(Trouble::Sent)
    }

    /// Gives the connection up: the next call makes another.
    fn drop_wire(&self, serial: u64) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Up(wire) if wire.serial == serial) {
            *state = State::Down { again: Tick::default(), why: None };
        }
    }

    /// Gives the connection up, whichever it is: the server is not the one to talk to any more. `false` where there is none.
    pub(crate) fn hang_up(&self) -> bool {
        let mut state = self.state.lock();
        let is_up = matches!(&*state, State::Up(_));
        if is_up {
            *state = State::Down { again: Tick::default(), why: None };
        }
        is_up
    }
}

impl Wire {
    async fn run(&mut self, call: &Call<'_>, by: By, asking: bool, now: Tick) -> Result<Value, RedisError> {
        let shown = if self.clock.is_recent(now) { self.clock.at_most(now) } else { None };
        let command = call.command(by, self.is_modern, shown);
        if !asking {
            return self.connection.send_packed_command(&command).await;
        }
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.add_command(redis::cmd("ASKING")).add_command(command);
        Ok(self.connection.send_packed_commands(&pipeline, 1, 1).await?.pop().unwrap_or_default())
    }
}

/// An error that a server answered is an error here too.
pub(crate) fn answer(value: Value) -> Result<Value, Trouble> {
    match value {
        Value::ServerError(error) => Err(Trouble::Sent(error.into())),
        value => Ok(value),
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*self.state.lock() {
            State::Down { .. } => "down",
            State::Dialing(_) => "dialing",
            State::Up(_) => "up",
        };
        write!(f, "Link({:?}, {state})", self.target)
    }
}

//! The course of a run: round after round, what was fired and what came back. Nothing is judged here.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::answer::{Class, Said};
use super::chance::Chance;
use super::effects;
use super::load::{Request, Tick, single, volley};
use super::place::Place;
use super::plan::Plan;
use super::sheet::{Seen, Sheet, Tally};
use crate::exit::Failure;
use crate::stop::Stop;

/// The repeat asks again this long while a copy that hung up may still be running.
const REPEAT_PATIENCE: Duration = Duration::from_secs(5);
const REPEAT_PAUSE: Duration = Duration::from_millis(200);
const COUNT_PAUSE: Duration = Duration::from_millis(100);

/// One key: its storm and what followed.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) number: u32,
    pub(crate) key: String,
    pub(crate) storm: Sheet,
    pub(crate) repeat: Option<Seen>,
    pub(crate) altered: Option<Seen>,
    /// Effects by `--count-url`.
    pub(crate) counted: Option<Counted>,
}

/// Effects counted after each step of a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) storm: u64,
    pub(crate) repeat: u64,
    pub(crate) altered: u64,
}

impl Counted {
    pub(crate) fn total(self) -> u64 {
        self.storm + self.repeat + self.altered
    }
}

/// What the copies of one class were told, over all storms.
pub(crate) fn said(rounds: &[Round], class: Class) -> BTreeMap<&Said, u64> {
    let mut all = BTreeMap::new();
    for ((of, said), count) in rounds.iter().flat_map(|round| &round.storm.answers) {
        if *of == class {
            *all.entry(said).or_default() += u64::from(*count);
        }
    }
    all
}

/// A request with a key of its own beside the rounds.
#[derive(Debug)]
pub(crate) struct Other {
    pub(crate) key: String,
    pub(crate) seen: Seen,
    pub(crate) counted: Option<u64>,
}

/// A request that should fail, and the good one after it.
#[derive(Debug)]
pub(crate) struct Freed {
    pub(crate) key: String,
    pub(crate) failed: Seen,
    pub(crate) then: Seen,
}

/// Why no further round was run.
#[derive(Debug)]
pub(crate) enum Ended {
    Finished,
    /// A signal.
    Interrupted,
    /// No connection, no answer, no count: nothing can be said from here on.
    Lost(String),
}

#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) rounds: Vec<Round>,
    pub(crate) tally: Tally,
    pub(crate) direct: Option<Direct>,
    pub(crate) other: Option<Other>,
    pub(crate) freed: Option<Freed>,
    pub(crate) ended: Ended,
}

/// The same storms without the guard.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(crate) rounds: Vec<Round>,
    pub(crate) tally: Tally,
}

/// Runs the plan until it is done, a signal comes or the endpoint is lost.
pub(crate) async fn run(plan: &Plan, tick: &Tick, stop: &mut Stop) -> Result<Course, Failure> {
    let mut course = Course {
        rounds: Vec::new(),
        tally: Tally::new(),
        direct: plan.direct.as_ref().map(|_| Direct { rounds: Vec::new(), tally: Tally::new() }),
        other: None,
        freed: None,
        ended: Ended::Finished,
    };
    let ended = tokio::select! {
        ended = all(plan, tick, &mut course) => Some(ended?),
        () = stop.asked() => None,
    };
    course.ended = ended.unwrap_or(Ended::Interrupted);
    Ok(course)
}

async fn all(plan: &Plan, tick: &Tick, course: &mut Course) -> Result<Ended, Failure> {
    let counter = Counter { request: plan.count_request()?, plan };
    let mut chance = Chance::new(plan.seed);
    for number in 1..=plan.rounds {
        let round = match storm(plan, &plan.place, number, &mut chance, &mut course.tally, tick, &counter).await? {
            Ok(round) => round,
            Err(why) => return Ok(Ended::Lost(why)),
        };
        course.rounds.push(round.follow_up(plan, &counter).await?);
        if let (Some(place), Some(direct)) = (&plan.direct, &mut course.direct) {
            match storm(plan, place, number, &mut chance, &mut direct.tally, tick, &counter).await? {
                Ok(round) => direct.rounds.push(round),
                Err(why) => return Ok(Ended::Lost(format!("--direct: {why}"))),
            }
        }
    }
    if plan.key_is_sent {
        course.other = Some(other(plan, &counter).await?);
    }
    course.freed = freed(plan).await?;
    Ok(Ended::Finished)
}

/// One storm; the inner error says why nothing can be told of it.
async fn storm(
    plan: &Plan,
    place: &Place,
    number: u32,
    chance: &mut Chance,
    tally: &mut Tally,
    tick: &Tick,
    counter: &Counter<'_>,
) -> Result<Result<Round, String>, Failure> {
    let key = plan.fresh_key()?;
    let before = counter.now().await?;
    let replies = volley(&plan.request(place, &key)?, &plan.starts(chance), plan.timeout, tick).await;
    tally.add(&replies);
    let sheet = Sheet::of(&replies, &plan.naming);
    // An endpoint that keeps silent can be judged by the count; one that is not there cannot.
    let silent = sheet.answers.is_empty() && !sheet.troubles.is_empty();
    if sheet.unsent as usize == replies.len() || (silent && before.is_none()) {
        let why = sheet.troubles.keys().next().map_or("no answer", String::as_str);
        let url = place.target.url();
        return Ok(Err(format!("round {number}: not one of {} copies got an answer from {url}: {why}", replies.len())));
    }
    let counted = match before {
        Some(before) => {
            let after = counter.settled(sheet.unclear() > 0).await?;
            Some(Counted { storm: grown(before, after)?, ..Counted::default() })
        }
        None => {
            if sheet.unclear() > 0 {
                sleep(plan.settle).await;
            }
            None
        }
    };
    Ok(Ok(Round { number, key, storm: sheet, repeat: None, altered: None, counted }))
}

impl Round {
    /// One more copy, then the altered one if asked for.
    async fn follow_up(mut self, plan: &Plan, counter: &Counter<'_>) -> Result<Self, Failure> {
        let request = plan.request(&plan.place, &self.key)?;
        let before = counter.now().await?;
        self.repeat = Some(self.ask_again(plan, &request).await);
        let between = counter.now().await?;
        if let Some(altered) = plan.altered(&self.key)? {
            self.altered = Some(Seen::of(&single(&altered, plan.timeout).await, &plan.naming));
        }
        if let (Some(before), Some(between), Some(counted)) = (before, between, &mut self.counted) {
            counted.repeat = grown(before, between)?;
            if self.altered.is_some() {
                counted.altered = grown(between, counter.settled(false).await?)?;
            }
        }
        Ok(self)
    }

    /// Asks until there is an answer that says what the key led to, if no copy of the storm got one.
    async fn ask_again(&self, plan: &Plan, request: &Request) -> Seen {
        let began = Instant::now();
        loop {
            let seen = Seen::of(&single(request, plan.timeout).await, &plan.naming);
            let known = !self.storm.names.is_empty() || seen.name.is_some() || self.storm.unclear() == 0;
            if known || began.elapsed() >= REPEAT_PATIENCE.min(plan.timeout) {
                return seen;
            }
            sleep(REPEAT_PAUSE).await;
        }
    }
}

async fn other(plan: &Plan, counter: &Counter<'_>) -> Result<Other, Failure> {
    let key = plan.fresh_key()?;
    let before = counter.now().await?;
    let seen = Seen::of(&single(&plan.request(&plan.place, &key)?, plan.timeout).await, &plan.naming);
    let counted = match before {
        Some(before) => Some(grown(before, counter.settled(seen.said.is_none()).await?)?),
        None => None,
    };
    Ok(Other { key, seen, counted })
}

async fn freed(plan: &Plan) -> Result<Option<Freed>, Failure> {
    let key = plan.fresh_key()?;
    let Some(failing) = plan.failing(&key)? else { return Ok(None) };
    let failed = Seen::of(&single(&failing, plan.timeout).await, &plan.naming);
    let then = Seen::of(&single(&plan.request(&plan.place, &key)?, plan.timeout).await, &plan.naming);
    Ok(Some(Freed { key, failed, then }))
}

/// Reads `--count-url`, where there is one.
struct Counter<'a> {
    request: Option<Request>,
    plan: &'a Plan,
}

impl Counter<'_> {
    async fn now(&self) -> Result<Option<u64>, Failure> {
        match &self.request {
            Some(request) => {
                effects::ask(request, self.plan.count_pointer.as_deref(), self.plan.timeout).await.map(Some)
            }
            None => Ok(None),
        }
    }

    /// The count once it has stood still; at once where every copy had a clear answer. Work that nobody waits for any
    /// more may still be on its way, so the count is watched for `--settle`, but never longer than `--timeout`.
    async fn settled(&self, unclear: bool) -> Result<u64, Failure> {
        let mut count = self.now().await?.unwrap_or_default();
        let began = Instant::now();
        let mut still_since = began;
        while unclear && still_since.elapsed() < self.plan.settle && began.elapsed() < self.plan.timeout {
            sleep(COUNT_PAUSE).await;
            let next = self.now().await?.unwrap_or_default();
            if next != count {
                (count, still_since) = (next, Instant::now());
            }
        }
        Ok(count)
    }
}

fn grown(before: u64, after: u64) -> Result<u64, Failure> {
    after.checked_sub(before).ok_or_else(|| {
        Failure::runtime(format!("--count-url went down from {before} to {after}: it does not count effects"))
    })
}

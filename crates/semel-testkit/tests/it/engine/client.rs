//! Callers and their work, the same under every executor.

use std::{sync::Arc, time::Duration};

use semel_core::{
    engine::{Begin, Call, Engine, OnCancel, Ran, Run, Verdict},
    env::Clock,
    fingerprint::{Fingerprint, Version},
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    judge::Caller,
    policy::Policy,
    record::{Format, Outcome, Withheld},
};
use semel_testkit::{
    checker::{self, Collector, Effect, Question},
    sim::{Seeded, give_way},
};

use super::{crowd::Crowd, reports};

pub(super) fn secret() -> Secret {
    Secret::from_material(b"0123456789abcdef").expect("it is long enough")
}

pub(super) fn identity(key: u64) -> Identity {
    let namespace = Namespace::http("sim").expect("it is a name");
    Identity::new(&secret(), Kind::Key, namespace, &Scope::shared(), &Key::new(&key, Display::Full))
}

/// A key as the collector knows it.
pub(super) fn name(key: u64) -> String {
    format!("key {key}")
}

/// What the work of a call does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plan {
    Succeed,
    /// Finds before its first byte that it cannot be sent.
    NotSent,
    /// Is told that it was not processed; the attempt counts.
    Fails,
    LosesTrack,
    Panics,
    /// Never ends.
    Hangs,
}

/// How a caller goes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Door {
    Owned,
    Inline,
    TwoSteps,
}

/// What is usual in a world.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Customs {
    /// Callers come with credentials, and not all with the same.
    pub(super) strangers: bool,
    /// Each process digests questions in a way of its own, as while a new configuration is rolled out.
    pub(super) versions: bool,
    /// Nothing runs without a one-time token.
    pub(super) tokens: bool,
    /// Some outcomes are recorded without their bodies.
    pub(super) bodiless: bool,
    /// Bodies are of a size that counts.
    pub(super) heavy: bool,
}

/// How many bytes a body has that counts.
const HEAVY: usize = 200;

#[derive(Clone, Debug)]
pub(super) struct Visit {
    /// Which process it comes to.
    pub(super) process: usize,
    pub(super) key: u64,
    pub(super) question: u8,
    /// Whose credentials it comes with.
    pub(super) by: Option<u8>,
    /// With which parameters its process digests the question.
    pub(super) parameters: u32,
    pub(super) needs_token: bool,
    /// How long the body of its outcome is; none is kept otherwise.
    pub(super) body: Option<usize>,
    pub(super) plan: Plan,
    pub(super) door: Door,
    /// How long before the effect, and after it.
    pub(super) before: Duration,
    pub(super) after: Duration,
}

impl Visit {
    pub(super) fn random(random: &Seeded, process: usize, keys: u64, longest: Duration) -> Self {
        let plan = match random.below(12) {
            0 => Plan::NotSent,
            1 => Plan::Fails,
            2 => Plan::LosesTrack,
            3 => Plan::Panics,
            4 if random.one_in(4) => Plan::Hangs,
            _ => Plan::Succeed,
        };
        let door = match random.below(4) {
            0 => Door::Inline,
            1 => Door::TwoSteps,
            _ => Door::Owned,
        };
        Self {
            process,
            key: random.below(keys),
            question: u8::from(random.one_in(8)),
            by: None,
            parameters: 0,
            needs_token: false,
            body: Some(size_of::<u64>()),
            plan,
            door,
            before: random.upto(longest),
            after: random.upto(longest),
        }
    }

    /// The same visit where these are the customs.
    pub(super) fn under(self, customs: Customs, random: &Seeded) -> Self {
        Self {
            by: customs.strangers.then(|| u8::from(random.one_in(5))),
            parameters: u32::from(customs.versions && self.process % 2 == 1),
            needs_token: customs.tokens,
            body: match self.body {
                Some(_) if customs.bodiless && random.one_in(3) => None,
                body => body.map(|len| if customs.heavy { HEAVY } else { len }),
            },
            ..self
        }
    }

    fn call(&self, policy: &Arc<Policy>) -> Call {
        let version = Version { algorithm: 1, parameters: self.parameters };
        let caller = Caller { credentials: self.by.map(|who| [who; 16]), request: None };
        let fingerprint = Fingerprint::stored(version, [self.question; 32]);
        let call = Call::new(identity(self.key), fingerprint, Arc::clone(policy)).by(caller);
        if self.needs_token { call.needs_token() } else { call }
    }

    /// As the collector knows it.
    fn asked(&self) -> Question {
        Question::from(self.question.to_string()).of(self.by.map_or_else(String::new, |who| format!("caller {who}")))
    }

    /// What comes back of the effect with this value.
    fn outcome(&self, value: u64) -> Outcome {
        let Some(len) = self.body else {
            return Outcome::without_body(Format::HTTP, &b""[..], Withheld::NoStore);
        };
        let mut body = value.to_be_bytes().to_vec();
        body.resize(len, 0);
        Outcome::new(Format::HTTP, &b""[..], body)
    }

    /// Goes in, and tells the collector what came of it.
    pub(super) async fn go(self, engine: Engine, policy: Arc<Policy>, collector: Collector, crowd: Arc<Crowd>) {
        let asked = collector.asks(format!("{:?}", self.door), name(self.key), self.asked());
        let clock = Arc::clone(&engine.env().clock);
        let work = Work { visit: self.clone(), collector: collector.clone(), crowd, asked, clock };
        let call = self.call(&policy);
        match self.door {
            Door::Owned => reports::answered(&collector, asked, &engine.run(call, |run| work.run(run)).await),
            // A panic would go on through an inline caller, who is the test here.
            Door::Inline if self.plan != Plan::Panics => {
                let answer = engine.run_inline(call, OnCancel::Unknown, |run| work.run(run)).await;
                reports::answered(&collector, asked, &answer);
            }
            Door::Inline | Door::TwoSteps => match engine.begin(call).await {
                Begin::Granted(grant) | Begin::Unguarded { grant, .. } => {
                    if self.plan == Plan::Panics {
                        drop(grant);
                        return;
                    }
                    let (run, is_unguarded) = (grant.run(), grant.unguarded().is_some());
                    let lost = run.lost();
                    let answer = tokio::select! {
                        biased;
                        answer = work.run(run) => answer,
                        // Nobody stops a caller's own work; this one gives up when it is told that its claim is not its own.
                        () = lost.cancelled() => return,
                    };
                    let kept = grant.settle(answer.verdict).await;
                    if is_unguarded {
                        reports::unguarded(&collector, asked, answer.value, &kept);
                    } else {
                        reports::executed(&collector, asked, answer.value, &kept);
                    }
                }
                Begin::Replay { recorded, waited } => reports::replayed(&collector, asked, &recorded, waited),
                Begin::Refused(refusal) => reports::refused(&collector, asked, &refusal),
                other => panic!("no such answer: {other:?}"),
            },
        }
    }
}

struct Work {
    visit: Visit,
    collector: Collector,
    crowd: Arc<Crowd>,
    asked: checker::Call,
    clock: Arc<dyn Clock>,
}

impl Work {
    async fn sleep(&self, d: Duration) {
        give_way().await;
        if !d.is_zero() {
            self.clock.sleep_until(self.clock.now() + d).await;
        }
    }

    async fn run(self, run: Run) -> Ran<Option<u64>> {
        let visit = &self.visit;
        let _inside = self.crowd.enter(visit.process, visit.key);
        self.sleep(visit.before).await;
        if matches!(visit.plan, Plan::NotSent | Plan::Fails) || !run.still_good() {
            let counts = visit.plan == Plan::Fails;
            return Ran { value: None, verdict: Verdict::Release { counts, answer: None } };
        }
        // A call runs at most once, so its number is a value that no other effect has.
        let value = self.asked.0;
        self.collector.effect(Effect {
            identity: name(visit.key),
            question: visit.asked(),
            value: value.to_string(),
            fence: run.unguarded().is_none().then(|| run.fence().get()),
            call: Some(self.asked),
        });
        self.sleep(visit.after).await;
        let verdict = match visit.plan {
            Plan::LosesTrack => Verdict::Unknown { last: Some("lost track".into()) },
            // Quietly: the hook that prints panics is for those that nobody planned.
            Plan::Panics => std::panic::resume_unwind(Box::new("as planned")),
            Plan::Hangs => std::future::pending().await,
            Plan::Succeed | Plan::NotSent | Plan::Fails => Verdict::Keep(visit.outcome(value)),
        };
        Ran { value: Some(value), verdict }
    }
}

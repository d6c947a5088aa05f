//! Callers who send copies of orders to any of the gateways, and say what they were told.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::RwLock;
use semel_testkit::{
    checker::{Call, Collector, Effect, Told},
    sim::Seeded,
};
use tokio::task::JoinSet;

use crate::system::{
    client::{Answer, Ask},
    upstream,
};

/// How many at once.
pub(super) const WORKERS: usize = 12;

/// Of these, so many always have an order under way that outlasts a lease: whatever happens meets one.
const PATIENT: usize = 2;

/// Their orders are numbered from here.
const LONG: u64 = 1_000_000;

/// The two bodies that are sent with a key.
pub(super) const QUESTIONS: [&str; 2] = ["{\"item\":\"tea\"}", "{\"item\":\"coffee\"}"];

/// What a caller is told where no gateway listens.
const NOBODY: &str = "not connected";

/// What is known of a caller who did not wait for the answer.
const LEFT: &str = "left";

/// Says which call a request belongs to; it goes through to the service.
const CALL: &str = "X-Call";

/// Where gateways are reached now.
#[derive(Clone, Default)]
pub(super) struct Doors(Arc<RwLock<Vec<Option<SocketAddr>>>>);

impl Doors {
    pub(super) fn set(&self, n: usize, door: Option<SocketAddr>) {
        let mut doors = self.0.write();
        if doors.len() <= n {
            doors.resize(n + 1, None);
        }
        doors[n] = door;
    }

    /// One that is open, by chance.
    fn any(&self, random: &Seeded) -> Option<SocketAddr> {
        let open: Vec<_> = self.0.read().iter().copied().flatten().collect();
        open.get(usize::try_from(random.below(open.len() as u64)).unwrap()).copied()
    }
}

/// What callers know.
#[derive(Clone)]
pub(super) struct Callers {
    pub(super) collector: Collector,
    pub(super) doors: Doors,
    /// Orders are numbered from 1; this is the next, and there is always one before it.
    next: Arc<AtomicU64>,
    next_long: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Callers {
    pub(super) fn new(collector: Collector) -> Self {
        let number = |n| Arc::new(AtomicU64::new(n));
        let (next, next_long) = (number(2), number(LONG + 1));
        Self { collector, doors: Doors::default(), next, next_long, over: Arc::default() }
    }

    /// All that were given out.
    pub(super) fn orders(&self) -> impl Iterator<Item = u64> + use<> {
        (1..self.next.load(Ordering::SeqCst)).chain(LONG + 1..self.next_long.load(Ordering::SeqCst))
    }

    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Starts them.
    pub(super) fn start(&self, random: &Seeded) -> JoinSet<()> {
        let mut workers = JoinSet::new();
        for n in 0..WORKERS {
            workers.spawn(self.clone().work(n, random.fork()));
        }
        workers
    }

    async fn work(self, n: usize, random: Seeded) {
        let who = format!("worker {n}");
        let (is_patient, mut order) = (n < PATIENT, None);
        while !self.over.load(Ordering::SeqCst) {
            let mine = order.unwrap_or_else(|| self.choose(is_patient, &random));
            let question = QUESTIONS[usize::from(random.one_in(12))];
            let leaves = !is_patient && random.one_in(10);
            let patience = leaves.then(|| random.upto(Duration::from_millis(400)));
            let said = self.ask(&who, mine, question, patience, &random).await;
            // As long as nobody is there it is still to be ordered: new ones that nobody has run would all run at the end.
            let nobody = said.is_none_or(|(_, label)| label == NOBODY || label == "store-unavailable");
            order = (is_patient && nobody).then_some(mine);
            tokio::time::sleep(random.upto(Duration::from_millis(60))).await;
        }
    }

    /// Most often one of the newest, so that copies meet; now and then one from long ago.
    fn choose(&self, is_patient: bool, random: &Seeded) -> u64 {
        if is_patient {
            return self.next_long.fetch_add(1, Ordering::SeqCst);
        }
        let newest = self.next.load(Ordering::SeqCst) - 1;
        match random.below(10) {
            0 => self.next.fetch_add(1, Ordering::SeqCst),
            2 => (self.next_long.load(Ordering::SeqCst) - 1 - random.below(3)).max(LONG + 1),
            1 => random.below(newest) + 1,
            _ => newest.saturating_sub(random.below(8)).max(1),
        }
    }

    /// Asks once, wherever a gateway is open, and reports what came of it. `None`: none is. Who has no patience leaves in
    /// the middle of it.
    pub(super) async fn ask(
        &self,
        who: &str,
        order: u64,
        question: &str,
        patience: Option<Duration>,
        random: &Seeded,
    ) -> Option<(Told, String)> {
        let door = self.doors.any(random)?;
        let call = self.collector.asks(who, name(order), question);
        let ask = Ask::post(&target(order)).key(&name(order)).field(CALL, &call.0.to_string()).body(question);
        let asking = ask.try_send(door);
        let answer = match patience {
            None => asking.await,
            Some(patience) => tokio::time::timeout(patience, asking).await.unwrap_or(Err(LEFT.into())),
        };
        let (told, label) = read(&answer);
        self.collector.tell(call, told.clone(), label.as_str());
        Some((told, label))
    }
}

fn name(order: u64) -> String {
    format!("order-{order}")
}

/// What the service does with an order: most are quick, some outlast a lease, some break off.
fn target(order: u64) -> String {
    match order % 20 {
        _ if order > LONG => "/slow/1500".into(),
        3 => "/die".into(),
        5 | 11 | 17 => "/slow/300".into(),
        n => format!("/slow/{n}"),
    }
}

/// What an answer tells its caller.
fn read(answer: &Result<Answer, String>) -> (Told, String) {
    let answer = match answer {
        Ok(answer) => answer,
        Err(why) if why.starts_with("connect") => return (Told::Refused, NOBODY.into()),
        Err(why) if why == LEFT => return (Told::Unclear, LEFT.into()),
        Err(_) => return (Told::Unclear, "broken off".into()),
    };
    let (status, problem) = (answer.idempotency_status(), answer.problem());
    let value = || answer.text();
    match (answer.status, status) {
        (200..300, "fresh") => (Told::Fresh(value()), "fresh".into()),
        (200..300, "replayed" | "waited") => (Told::Replayed(value()), status.into()),
        (200..300, "unrecorded") => (Told::Unrecorded(value()), "unrecorded".into()),
        (200..300, "bypassed") => (Told::Unguarded(value()), "bypassed".into()),
        // The service broke off, and the store was away as well.
        (_, "bypassed" | "unrecorded") => (Told::Unclear, problem),
        (422, "rejected") if problem == "key-reused" => (Told::Mismatch, problem),
        (_, "rejected") if problem == "outcome-unavailable" => (Told::Done, problem),
        (_, "rejected") => (Told::Refused, problem),
        (_, "unknown") => (Told::Unclear, problem),
        _ => panic!("an answer that says nothing about what became of the request: {answer:?}"),
    }
}

/// Tells the collector of everything the service does.
pub(super) fn witness(collector: Collector) -> impl Fn(&upstream::Effect, &str) + Send + Sync + 'static {
    move |effect, value| {
        collector.effect(Effect {
            identity: effect.header("idempotency-key").unwrap_or("none").to_owned(),
            question: String::from_utf8_lossy(&effect.body).into_owned().into(),
            value: value.to_owned(),
            fence: effect.header("semel-fence").and_then(|fence| fence.split(';').next()?.parse().ok()),
            call: effect.header(CALL).and_then(|call| call.parse().ok()).map(Call),
        });
    }
}

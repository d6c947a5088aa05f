//! A seeded world of simulated machines: tasks, time and randomness of a whole test come from one number.
//!
//! One thread polls the tasks of all [`Node`]s, a random one of those that are ready each time; time moves to the next
//! sleeper when nobody is ready, and now and then by itself. The same seed gives the same run.

mod random;
mod weather;

pub use random::Seeded;
pub use weather::{Climate, Happened, Weather};

use std::{
    collections::BTreeMap,
    fmt,
    future::{Future, poll_fn},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use semel_core::env::{BoxFuture, Clock, Env, Tasks, Tick};

use crate::clock::ManualClock;

/// The world. Clones are one world.
#[derive(Clone)]
pub struct Sim(Arc<World>);

struct World {
    clock: ManualClock,
    random: Seeded,
    tasks: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    all: BTreeMap<u64, Task>,
    ready: Vec<u64>,
    /// Those that would be ready if their machine was not paused.
    held: Vec<u64>,
}

struct Task {
    node: Node,
    /// Taken out while it is polled.
    future: Option<BoxFuture>,
    is_ready: bool,
}

/// Why a run did not get where it should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stuck {
    /// Nobody is ready and nobody sleeps: what is awaited never comes.
    Hang,
    /// So many steps were made that somebody must be running in circles.
    Livelock,
}

impl Sim {
    /// A world for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let world = World { clock: ManualClock::new(), random: Seeded::new(seed), tasks: Mutex::default() };
        Self(Arc::new(world))
    }

    /// A random source of its own for a part of the test, from the seed and the order of the calls.
    #[must_use]
    pub fn random(&self) -> Seeded {
        self.0.random.fork()
    }

    /// The world's clock.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(GivingWay(self.0.clock.clone()))
    }

    /// A new machine.
    #[must_use]
    pub fn node(&self) -> Node {
        let (is_alive, is_paused) = (Arc::new(AtomicBool::new(true)), Arc::default());
        Node { world: Arc::downgrade(&self.0), is_alive, is_paused }
    }

    /// What runs on `node` sees this.
    #[must_use]
    pub fn env(&self, node: &Node) -> Env {
        Env { clock: self.clock(), rng: Arc::new(self.random()), tasks: Arc::new(node.clone()) }
    }

    /// The machine loses power: its tasks are gone where they stand, and nothing starts on it any more.
    pub fn kill(&self, node: &Node) {
        node.is_alive.store(false, Ordering::SeqCst);
        let gone: Vec<_> = {
            let mut tasks = self.0.tasks.lock();
            let dead: Vec<_> = tasks.all.iter().filter(|(_, t)| t.node.is(node)).map(|(id, _)| *id).collect();
            dead.into_iter().filter_map(|id| tasks.all.remove(&id)).collect()
        };
        // Outside the lock: what is dropped may want to start tasks, which a dead node refuses.
        drop(gone);
    }

    /// The machine stands still: none of its tasks goes on, while time does, and what it has sent is on its way.
    pub fn pause(&self, node: &Node) {
        node.is_paused.store(true, Ordering::SeqCst);
    }

    /// It goes on: all that became ready meanwhile is ready at once, in no order.
    pub fn resume(&self, node: &Node) {
        node.is_paused.store(false, Ordering::SeqCst);
        let mut tasks = self.0.tasks.lock();
        let Table { all, ready, held, .. } = &mut *tasks;
        held.retain(|id| {
            let stays = all.get(id).is_some_and(|task| !task.node.is(node));
            if !stays {
                ready.push(*id);
            }
            stays
        });
    }

    /// Runs until `done`.
    ///
    /// # Errors
    /// [`Stuck`] says why it does not get there.
    pub fn run(&self, done: impl Fn() -> bool) -> Result<(), Stuck> {
        for _ in 0..500_000 {
            if done() {
                return Ok(());
            }
            if self.0.random.one_in(64) {
                self.0.clock.advance(self.0.random.upto(Duration::from_millis(20)));
            }
            if !self.step() {
                let Some(next) = self.0.clock.next_wake() else { return Err(Stuck::Hang) };
                self.0.clock.advance(next.since(self.0.clock.now()));
            }
        }
        Err(Stuck::Livelock)
    }

    /// Polls one task; `false` where none is ready.
    fn step(&self) -> bool {
        let (id, mut future) = {
            let mut tasks = self.0.tasks.lock();
            loop {
                if tasks.ready.is_empty() {
                    return false;
                }
                let at = self.0.random.below(tasks.ready.len() as u64);
                let id = tasks.ready.swap_remove(usize::try_from(at).unwrap_or(0));
                let Some(task) = tasks.all.get_mut(&id) else { continue };
                if task.node.is_paused.load(Ordering::SeqCst) {
                    tasks.held.push(id);
                    continue;
                }
                task.is_ready = false;
                if let Some(future) = task.future.take() {
                    break (id, future);
                }
            }
        };
        let waker = Waker::from(Arc::new(Bell { world: Arc::downgrade(&self.0), id }));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut tasks = self.0.tasks.lock();
        match polled {
            Poll::Ready(()) => drop(tasks.all.remove(&id)),
            Poll::Pending => {
                if let Some(task) = tasks.all.get_mut(&id) {
                    task.future = Some(future);
                    return true;
                }
            }
        }
        drop(tasks);
        true
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({} tasks, {:?})", self.0.tasks.lock().all.len(), self.0.clock)
    }
}

/// A machine. Clones are one machine.
#[derive(Clone)]
pub struct Node {
    world: Weak<World>,
    is_alive: Arc<AtomicBool>,
    is_paused: Arc<AtomicBool>,
}

impl Node {
    /// Whether it has not been killed.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::SeqCst)
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.is_alive, &other.is_alive)
    }

    /// Starts a task on the machine.
    pub fn start(&self, future: impl Future<Output = ()> + Send + 'static) {
        Tasks::spawn(self, "test", Box::pin(future));
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_alive() { "Node" } else { "Node(dead)" })
    }
}

impl Tasks for Node {
    fn spawn(&self, _name: &'static str, future: BoxFuture) -> bool {
        let Some(world) = self.world.upgrade().filter(|_| self.is_alive()) else { return false };
        let mut tasks = world.tasks.lock();
        tasks.next += 1;
        let id = tasks.next;
        tasks.all.insert(id, Task { node: self.clone(), future: Some(future), is_ready: true });
        tasks.ready.push(id);
        true
    }
}

struct Bell {
    world: Weak<World>,
    id: u64,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let Some(world) = self.world.upgrade() else { return };
        let mut tasks = world.tasks.lock();
        if let Some(task) = tasks.all.get_mut(&self.id)
            && !std::mem::replace(&mut task.is_ready, true)
        {
            tasks.ready.push(self.id);
        }
    }
}

/// A clock on which going to sleep always lets others go first, also where it is time already: whoever runs in circles
/// is seen.
#[derive(Clone, Debug, Default)]
pub struct GivingWay(pub ManualClock);

impl Clock for GivingWay {
    fn now(&self) -> Tick {
        self.0.now()
    }

    fn sleep_until(&self, t: Tick) -> BoxFuture {
        let sleep = self.0.sleep_until(t);
        Box::pin(async move {
            give_way().await;
            sleep.await;
        })
    }

    fn wall(&self) -> SystemTime {
        self.0.wall()
    }
}

/// Lets others go first, once. Runs under any executor.
pub async fn give_way() {
    let mut given = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

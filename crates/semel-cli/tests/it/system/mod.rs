//! The gateway as people run it: the binary as a process, a service behind it that counts what it did, clients that
//! write bytes. `SEMEL_BIN` names the binary (`./test` sets it to the release build); `SEMEL_TEST_SCALE=10` makes the
//! loops ten times longer.
#![expect(
    clippy::disallowed_methods,
    reason = "these tests are about real processes in real time: they spawn, sleep and measure like any client"
)]
#![expect(clippy::unwrap_used, reason = "tests, and what only they call")]

mod bounds;
pub(crate) mod client;
mod crashes;
mod disconnects;
mod edges;
pub(crate) mod gateway;
mod hostile;
mod life;
mod outcomes;
mod replays;
mod sameness;
mod storms;
pub(crate) mod upstream;
mod words;

use tokio::sync::{Mutex, MutexGuard};

/// How often a loop goes round.
pub(crate) fn rounds(base: usize) -> usize {
    let scale = std::env::var("SEMEL_TEST_SCALE").ok().and_then(|s| s.parse::<usize>().ok()).unwrap_or(1);
    base * scale
}

/// Held by tests that need the machine to themselves: two storms at once measure each other. (Under nextest each test
/// is a process; there the test group `heavy` does the same.)
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static HEAVY: Mutex<()> = Mutex::const_new(());
    HEAVY.lock().await
}

/// `n` futures at once, their results in order.
pub(crate) async fn together<T: Send + 'static>(
    n: usize,
    make: impl Fn(usize) -> std::pin::Pin<Box<dyn Future<Output = T> + Send>>,
) -> Vec<T> {
    let tasks: Vec<_> = (0..n).map(|i| tokio::spawn(make(i))).collect();
    let mut results = Vec::with_capacity(n);
    for task in tasks {
        results.push(task.await.expect("a client does not panic"));
    }
    results
}

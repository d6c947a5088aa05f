//! What a finished record costs, in bytes and in allocations, counted by the allocator and not guessed from the
//! process's size. A binary of its own, because the allocator counts all that its process does.

#![expect(clippy::unwrap_used, reason = "all of this file is tests")]

use std::sync::Arc;

use bytes::Bytes;
use semel_core::{
    engine::{Answer, Call, Engine, Ran, Verdict},
    fingerprint::Fingerprint,
    identity::{Display, Identity, Key, Kind, Namespace, Scope},
    policy::Policy,
    record::{Format, Outcome},
};
use semel_testkit::memory::{Since, alone, most_for_each};

semel_testkit::count_allocations!();

const HEAD: usize = 90;

struct Bench {
    engine: Engine,
    policy: Arc<Policy>,
    done: u64,
}

impl Bench {
    fn new() -> Self {
        Self { engine: Engine::memory(), policy: Policy::key().build().unwrap(), done: 0 }
    }

    /// Finishes `count` records, each with a head and `body` bytes cut out of a buffer that is much larger, as bytes
    /// from a connection are.
    async fn finish(&mut self, count: u64, body: usize) {
        for _ in 0..count {
            self.done += 1;
            let key = Key::new(&("order", self.done), Display::Masked);
            let namespace = Namespace::once("memory").unwrap();
            let id = Identity::new(self.engine.secret(), Kind::Key, namespace, &Scope::shared(), &key);
            let call = Call::new(id, Fingerprint::NONE, Arc::clone(&self.policy)).shown(key.shown());
            let answer = self.engine.run(call, async move |_run| {
                let buffer = Bytes::from(vec![7; HEAD + body + 8_192]);
                let outcome = Outcome::new(Format::HTTP, buffer.slice(..HEAD), buffer.slice(HEAD..HEAD + body));
                Ran { value: (), verdict: Verdict::Keep(outcome) }
            });
            assert!(matches!(answer.await, Answer::Executed { .. }));
        }
    }
}

#[test]
fn a_finished_record_takes_at_most_twice_its_payload_and_400_bytes() {
    for body in [0, 60, 1_000, 5_000] {
        alone(async {
            let mut bench = Bench::new();
            bench.finish(1, body).await;
            let most = most_for_each(500, async || bench.finish(500, body).await).await;
            let bound = 2 * (HEAD + body) + 400;
            assert!(most <= bound, "{most} bytes for a payload of {}, the bound is {bound}", HEAD + body);
        });
    }
}

#[test]
fn a_fresh_call_makes_few_allocations() {
    alone(async {
        let mut bench = Bench::new();
        bench.finish(5_000, 60).await;
        let since = Since::now();
        bench.finish(1_000, 60).await;
        let each = since.allocations() as f64 / 1_000.0;
        // Two of them are the work's own: its buffer, and the shared handle of that buffer.
        assert!(each <= 15.5, "{each} allocations");
    });
}

//! What is told to people.

use std::{
    fmt::{self, Write},
    sync::Arc,
};

use parking_lot::Mutex;
use semel_core::engine::Engine;
use semel_http::{GuardLayer, RequestView, Rule};
use tower::{Layer, service_fn};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use crate::support::*;

/// The lines of a thread, from when it is set.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn with(&self, words: &str) -> usize {
        self.0.lock().iter().filter(|line| line.contains(words)).count()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().level()));
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

const FORGETS: &str = "payments on a store that forgets";

#[tokio::test]
async fn a_rule_for_money_on_a_store_that_forgets_is_told_once() {
    let lines = Lines::default();
    let _set = tracing::subscriber::set_default(lines.clone());
    let engine = Engine::memory();
    let handle = service_fn(|_: Ask| async { Ok::<_, std::convert::Infallible>(answer(201, "done")) });

    drop(GuardLayer::new(engine.clone(), rule().internal().build().unwrap()));
    assert_eq!(lines.with(FORGETS), 0);
    let layer = GuardLayer::new(engine.clone(), rule().payment().named("charge").build().unwrap());
    assert_eq!((lines.with(FORGETS), lines.with("rule=\"charge\"")), (1, 1), "{:?}", lines.0);
    for key in ["a", "b"] {
        assert_eq!(send(&layer.layer(handle), post(key, "")).await.status, 201);
    }
    assert_eq!(lines.with(FORGETS), 1);

    // Where a layer has many rules, with the first request of one.
    let many: Arc<Rule> = Arc::new(rule().payment().named("refund").build().unwrap());
    let layer = GuardLayer::routed(engine, move |_: &RequestView<'_>| Some(Arc::clone(&many)));
    assert_eq!(lines.with(FORGETS), 1);
    for key in ["c", "d"] {
        assert_eq!(send(&layer.layer(handle), post(key, "")).await.status, 201);
    }
    assert_eq!((lines.with(FORGETS), lines.with("rule=\"refund\"")), (2, 1));
}

//! The progress bar: on stderr, and only where that is a terminal.

use std::io::IsTerminal;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::load::Tick;
use super::plan::Plan;

pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn start(plan: &Plan) -> Self {
        let sides = if plan.direct.is_some() { 2 } else { 1 };
        let copies = u64::from(plan.rounds) * u64::from(plan.concurrency) * sides;
        let target =
            if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(copies), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos} of {len} copies, {eta} left") {
            bar.set_style(style.progress_chars("█░░"));
        }
        Self(bar)
    }

    pub(crate) fn tick(&self) -> Tick {
        let bar = self.0.clone();
        Arc::new(move || bar.inc(1))
    }

    /// Takes the bar off the screen: what follows is the result.
    pub(crate) fn end(self) {
        self.0.finish_and_clear();
    }
}

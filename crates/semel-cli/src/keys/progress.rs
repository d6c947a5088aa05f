//! What is told while a long walk over a store goes on: one line on stderr, and only where that is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn start() -> Self {
        let target =
            if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        // Nobody knows how long it is: a store does not say how many keys it has.
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{msg}, {elapsed}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(super) fn tell(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.tick();
    }

    /// Takes the line off the screen: what follows is the result.
    pub(super) fn end(self) {
        self.0.finish_and_clear();
    }
}

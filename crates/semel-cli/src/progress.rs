//! What is told while something takes long: one line on stderr, and only where that is a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nobody knows how long it is: what was done so far, and for how long.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn start() -> Self {
        let target =
            if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{msg}, {elapsed}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// The time goes on by itself, every second, while one call is waited for.
    pub(crate) fn waiting_for(what: &str) -> Self {
        let progress = Self::start();
        progress.tell(what);
        progress.0.enable_steady_tick(Duration::from_secs(1));
        progress
    }

    pub(crate) fn tell(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.tick();
    }

    /// Takes the line off the screen: what follows is the result.
    pub(crate) fn end(self) {
        self.0.finish_and_clear();
    }
}

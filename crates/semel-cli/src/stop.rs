//! The signals by which a person, a supervisor or a terminal that closes asks a command to end.

use std::future::pending;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for Ctrl-C, SIGTERM and SIGHUP from its creation on; until then the system's default (die at once) holds.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
    /// None where whoever started the process ignores hangups, and after the first request to end.
    hangup: Option<Signal>,
}

impl Stop {
    /// Takes the signals over; SIGHUP not where it is ignored, as under `nohup`. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// The system refused a signal handler.
    pub fn listen() -> io::Result<Self> {
        // Elsewhere than on Linux nobody can say, and a hangup is heard.
        let ignored = std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status));
        let hangup = if ignored { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())?, hangup })
    }

    /// Ends with the next of the signals. A hangup counts as the first request alone: a terminal that closes sends several,
    /// by the kernel and by the shell. Cancel-safe: a signal that arrives between two calls is not lost.
    pub async fn asked(&mut self) {
        let Self { interrupt, terminate, hangup } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hung_up => {}
        }
        // The handler stays: from here on hangups do nothing.
        self.hangup = None;
    }
}

/// Whether SIGHUP, the first of the signals, is among the ignored ones in `/proc/PID/status`.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_hangup_is_seen_in_the_status_of_the_process() {
        let status = |mask: &str| format!("Name:\tsemel\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\t01\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        for mask in ["0000000000001000", "0000000000000006", "", "x"] {
            assert!(!ignores_hangup(&status(mask)), "{mask}");
        }
        assert!(!ignores_hangup(""));
    }
}

//! The two signals by which a person or a supervisor asks a command to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for Ctrl-C and SIGTERM from its creation on; until then the system's default (die at once) holds.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Takes both signals over. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// The system refused a signal handler.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Ends with the next of the two signals. Cancel-safe: a signal that arrives between two calls is not lost.
    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

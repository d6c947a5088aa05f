//! How a command ends: the four exit codes every command of `semel` shares.

use std::fmt::Display;
use std::process::ExitCode;

/// What the process tells its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, nothing to object to.
    Clean,
    /// 1: the command worked and found something wrong, or not what it was asked for.
    Finding,
    /// 2: the command line or a file cannot be understood.
    Usage,
    /// 3: the command could not do its work (unreachable, refused by the system, interrupted before the end).
    Runtime,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Clean => 0,
            Exit::Finding => 1,
            Exit::Usage => 2,
            Exit::Runtime => 3,
        })
    }
}

/// Why a command ended before it had a result: a message for a person and the exit code that goes with it.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    /// The command line asks for something that cannot be.
    pub fn usage(message: impl Display) -> Self {
        Self { exit: Exit::Usage, message: message.to_string() }
    }

    /// What the command line names is not there.
    pub fn not_there(message: impl Display) -> Self {
        Self { exit: Exit::Finding, message: message.to_string() }
    }

    /// The surroundings did not let the command do its work.
    pub fn runtime(message: impl Display) -> Self {
        Self { exit: Exit::Runtime, message: message.to_string() }
    }

    /// The exit code that goes with it.
    pub fn exit(&self) -> Exit {
        self.exit
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::runtime(format!("{error:#}"))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::runtime(error)
    }
}

//! Log lines on standard error: text for people, JSON on request. A line that cannot be written is lost, and that is all.

use std::io::IsTerminal as _;

use semel_gateway::config::{Log, LogFormat, LogLevel};
use tracing::Level;
use tracing_subscriber::filter::LevelFilter;

/// From here on log lines are written. A second call changes nothing: the first subscriber of a process stays.
pub(crate) fn write(log: &Log) {
    let level = LevelFilter::from_level(match *log.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
        LogLevel::Trace => Level::TRACE,
    });
    // Where a line cannot be written, a line about that cannot be either; the subscriber's attempt at it panics.
    let lines = tracing_subscriber::fmt().log_internal_errors(false).with_max_level(level).with_writer(std::io::stderr);
    // Whoever set a subscriber before wants it to stay.
    let _ = match *log.format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines.with_ansi(colour()).with_target(false).try_init(),
    };
}

/// Colour only on a terminal, and where nobody minds.
fn colour() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
        || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
    std::io::stderr().is_terminal() && !unwanted
}

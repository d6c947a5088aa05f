//! `semel`: one binary, one command per job.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use semel_cli::term::Look;
use semel_cli::{address, check, demo, doctor, gateway, keys, migrate, prove};

/// Fewer instructions per request than the system's, for the gateway's many small outcomes.
///
/// On Linux mimalloc is linked in the place of `malloc`, which the standard library's allocator calls. The way through
/// `GlobalAlloc` tells mimalloc the alignment of each allocation, and looking at it takes longer than the allocation.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: std::alloc::System = std::alloc::System;

#[cfg(target_os = "linux")]
use mimalloc as _;

/// Fewer instructions per request than the system's, for the gateway's many small outcomes.
#[cfg(not(target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Many identical requests, one effect.
#[derive(Parser)]
#[command(
    name = "semel",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 fine, 1 something was found, 2 usage, 3 could not do the work."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what duplicates do to a service, and what they do behind Semel
    Demo(demo::Args),
    /// Run the HTTP gateway in front of a service
    Gateway(Box<gateway::Args>),
    /// Fire concurrent duplicates at an endpoint and say how many took effect
    Prove(Box<prove::Args>),
    /// Read the gateway's configuration, print it in plain words, find mistakes
    Check(Box<check::Args>),
    /// Look at the configuration and its live surroundings: store, upstreams, clocks
    Doctor(Box<doctor::Args>),
    /// Make the tables of a PostgreSQL or MySQL store, or bring them up to this version
    Migrate(Box<migrate::Args>),
    /// Look into a store, and settle by hand what nobody can tell
    Keys(Box<keys::Args>),
}

/// An empty variable is one that is not set: compose files and unit files pass on what nobody filled in.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let is_empty = arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
        if is_empty { arg.env(None::<&'static str>) } else { arg }
    });
    command.mut_subcommands(without_empty_variables)
}

fn main() -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    let parsed = without_empty_variables(Cli::command()).try_get_matches();
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = parsed.unwrap_or_else(|error| address::explained(error, &command).exit());
    let ended = match cli.command {
        Command::Demo(args) => demo::run(&args, demo::start),
        Command::Gateway(args) => gateway::run(&args),
        Command::Prove(args) => prove::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Keys(args) => keys::run(&args),
    };
    ended
        .unwrap_or_else(|failure| {
            // A closed stderr leaves nobody to tell; the exit code still says it.
            let _ = std::io::stderr().write_all(Look::of_stderr().told(&format!("error: {failure}")).as_bytes());
            failure.exit()
        })
        .into()
}

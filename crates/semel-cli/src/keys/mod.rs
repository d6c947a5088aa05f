//! `semel keys`: look into a store, and settle by hand what nobody can tell.

mod again;
pub mod args;
mod audit;
mod change;
mod confirm;
mod export;
mod find;
mod list;
mod pages;
mod show;
mod stats;
mod time;
mod view;

use semel_core::env::Env;
use semel_gateway::config::{Bytes, StoreConfig, StoreUrl};
use semel_gateway::stores::{self, Opened};

use crate::address::Takes;
use crate::config::{Told, source_or_default};
use crate::exit::{Exit, Failure};

pub use args::{Args, Command, StoreArgs};

/// Runs the command to its end.
///
/// # Errors
/// Usage: a configuration that cannot be used, a key that is not unambiguous, a change nobody confirmed. Finding: a key that is
/// not there.
/// Runtime: a store that cannot be opened or does not answer, stdout that is gone.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let opened = runtime.block_on(open(&args.store, Told::unless(args.command.is_json())))?;
    let exit = runtime.block_on(async {
        let store = &*opened.store;
        match &args.command {
            Command::List(args) => list::run(store, args).await,
            Command::Show(args) => show::run(store, args).await,
            Command::Delete(args) => change::delete(store, args).await,
            Command::Resolve(args) => change::resolve(store, args).await,
            Command::Purge(args) => change::purge(store, args).await,
            Command::Export(args) => export::run(store, args).await,
            Command::Stats(args) => stats::run(store, args).await,
            Command::Audit(args) => audit::run(store, args).await,
        }
    });
    opened.close();
    exit
}

/// Opens the store that the flags and the file name. `told`: whether a file that nobody named is told of.
///
/// # Errors
/// As [`run`].
pub async fn open(args: &StoreArgs, told: Told) -> Result<Opened, Failure> {
    let file = source_or_default(args.config.as_ref(), Takes::Store, told)?;
    let read = StoreConfig::from_parts(file, &args.flags());
    let config = read.map_err(|refused| Failure::usage(format!("the configuration cannot be used:\n\n{refused}")))?;
    match &*config.store.url {
        StoreUrl::Memory => {
            return Err(Failure::usage(
                "the memory store is in the gateway's own process: nothing outside can look into it. Its metrics are on the \
                 gateway's admin address",
            ));
        }
        StoreUrl::Embedded(dir) if !dir.exists() => {
            return Err(Failure::usage(format!(
                "there is no store in {}: name the gateway's with -c FILE, --data-dir DIR or --store URL",
                dir.display()
            )));
        }
        _ => {}
    }
    stores::open(&config.store, config.secret_file.as_ref(), Bytes(0), &Env::system()).await.map_err(Failure::runtime)
}

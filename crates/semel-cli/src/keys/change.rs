//! `semel keys delete`, `resolve`, `purge`: asked, audited, done.

use std::io::Write as _;

use bytes::Bytes;
use semel_core::env::{Rng as _, SystemRng};
use semel_core::identity::Identity;
use semel_core::record::{Payload, Record, Rest, StateCode};
use semel_core::store::{Resolution, Resolved, StoreAdmin, Target};
use semel_core::{Owner, StoreTime};
use semel_gateway::config;

use super::args::{Delete, Purge, Resolve};
use super::audit::Deed;
use super::confirm::confirm;
use super::find::find;
use super::show::words;
use super::view::View;
use crate::exit::{Exit, Failure};
use crate::progress::Progress;
use crate::term::Look;

/// Records that one purge call removes.
const PURGE: usize = 1_000;

pub(super) async fn delete(store: &dyn StoreAdmin, args: &Delete) -> Result<Exit, Failure> {
    let (identity, record, now) = find(store, &args.identity).await?;
    let state = record.reads_as(now);
    match state {
        StateCode::Done | StateCode::Free | StateCode::Parked => {}
        StateCode::InFlight => {
            return Err(Failure::usage("it runs: deleting it would let a second one begin. Wait until it has ended"));
        }
        StateCode::Unknown => {
            return Err(Failure::usage(
                "nobody can tell its outcome: deleting it would run it again. Settle it with `semel keys resolve`",
            ));
        }
    }
    show(&identity, &record, now)?;
    if !confirm(args.word.yes, "Delete it? The next request with this key runs, as if it were the first.")? {
        return not_done();
    }
    let deed = Deed::new("delete", Some((&identity, state.name())), &args.word.reason);
    deed.keep(store).await?;
    if store.delete(&identity, state).await.map_err(Failure::runtime)? {
        return done("deleted");
    }
    deed.refused(store).await?;
    changed_meanwhile()
}

pub(super) async fn resolve(store: &dyn StoreAdmin, args: &Resolve) -> Result<Exit, Failure> {
    let ttl = config::duration(&args.ttl).map_err(|why| Failure::usage(format!("--ttl is no time: {why}")))?;
    let (identity, record, now) = find(store, &args.identity).await?;
    let state = record.reads_as(now);
    let is_over = state == StateCode::InFlight && record.lease_until <= now;
    if !matches!(state, StateCode::Unknown | StateCode::Parked) && !is_over {
        let why = match state {
            StateCode::InFlight => "it runs, and will tell its outcome itself",
            StateCode::Done => "its outcome is recorded",
            _ => "nothing runs, and the next request will",
        };
        return Err(Failure::usage(format!(
            "it is {}: {why}. Only unknown and parked records are settled",
            state.name()
        )));
    }
    let Some(fence) = record.fence else {
        return Err(Failure::usage("it was never granted to anybody: there is nothing to settle"));
    };
    show(&identity, &record, now)?;
    let (action, question) = match args.completed {
        true => ("resolve-completed", "Did it take place? Copies will be told so, and it never runs again."),
        false => ("resolve-failed", "Did it certainly not take place? The next request with this key runs."),
    };
    if !confirm(args.word.yes, question)? {
        return not_done();
    }
    let rest = without_payload(&record)?;
    let to = match args.completed {
        true => Resolution::Completed { rest, body_kept: false, ttl },
        false => Resolution::Failed { keep: ttl, rest },
    };
    let deed = Deed::new(action, Some((&identity, state.name())), &args.word.reason);
    deed.keep(store).await?;
    let target = Target { identity: &identity, fence, resolver: fresh_owner() };
    match store.resolve(target, &to).await.map_err(Failure::runtime)? {
        Resolved::Ok(fence) => done(&format!("settled, under fence {}", fence.get())),
        Resolved::Conflict(_) => {
            deed.refused(store).await?;
            changed_meanwhile()
        }
    }
}

pub(super) async fn purge(store: &dyn StoreAdmin, args: &Purge) -> Result<Exit, Failure> {
    if !confirm(args.word.yes, "Remove all records whose time has ended? Gateways do so themselves, every 30 s.")? {
        return not_done();
    }
    Deed::new("purge", None, &args.word.reason).keep(store).await?;
    let (mut removed, mut unresolved) = (0, 0);
    let progress = Progress::start();
    let ended = loop {
        progress.tell(&format!("looking for what has ended: {}", so_far(removed, unresolved)));
        match store.purge(PURGE).await {
            Ok(purged) => {
                removed += purged.removed;
                unresolved += purged.unresolved.len();
                if !purged.more {
                    break Ok(());
                }
            }
            Err(error) => break Err(error),
        }
    };
    progress.end();
    let so_far = so_far(removed, unresolved);
    match ended {
        Ok(()) => done(&so_far),
        Err(error) => Err(Failure::runtime(format!("{so_far}, and then the store failed: {error}. Run it again"))),
    }
}

fn so_far(removed: usize, unresolved: usize) -> String {
    match unresolved {
        0 => format!("{removed} removed"),
        n => format!("{removed} removed, {n} of them with an outcome that nobody ever told"),
    }
}

/// The record's meta part alone: what a person settles has no recorded answer.
fn without_payload(record: &Record) -> Result<Bytes, Failure> {
    let rest = Rest::read(&record.rest)
        .map_err(|_| Failure::usage("the record was written by a newer version: settle it with that one"))?;
    Ok(Rest::write(&record.rest[..rest.meta_len], &Payload::Nothing))
}

fn fresh_owner() -> Owner {
    let mut bytes = [0; 16];
    SystemRng.fill(&mut bytes);
    Owner::from_bytes(bytes)
}

fn show(identity: &Identity, record: &Record, now: StoreTime) -> Result<(), Failure> {
    let text = Look::of_stderr().fit(&words(&View::of(identity, record, now)));
    Ok(std::io::stderr().write_all(text.as_bytes())?)
}

fn done(what: &str) -> Result<Exit, Failure> {
    writeln!(std::io::stderr(), "{what}")?;
    Ok(Exit::Clean)
}

fn not_done() -> Result<Exit, Failure> {
    writeln!(std::io::stderr(), "nothing was done")?;
    Ok(Exit::Finding)
}

fn changed_meanwhile() -> Result<Exit, Failure> {
    writeln!(std::io::stderr(), "nothing was done: the record changed meanwhile. Look at it again")?;
    Ok(Exit::Finding)
}

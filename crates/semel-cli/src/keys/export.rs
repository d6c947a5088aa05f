//! `semel keys export`.

use std::io::{BufWriter, Write as _};

use semel_core::store::StoreAdmin;

use super::args::Narrow;
use super::pages::Pages;
use super::view::View;
use crate::exit::{Exit, Failure};
use crate::term::Out;

pub(super) async fn run(store: &dyn StoreAdmin, args: &Narrow) -> Result<Exit, Failure> {
    let mut out = BufWriter::new(Out::stdout());
    let mut pages = Pages::of(store, args.filter());
    while let Some((entries, now)) = pages.next().await? {
        for entry in entries {
            let view = View::of(&entry.identity, &entry.record, now);
            writeln!(out, "{}", serde_json::to_string(&view).map_err(anyhow::Error::from)?)?;
        }
    }
    out.flush()?;
    Ok(Exit::Clean)
}

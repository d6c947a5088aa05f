//! The one record that a person means.

use semel_core::StoreTime;
use semel_core::identity::Identity;
use semel_core::record::Record;
use semel_core::store::{Filter, StoreAdmin};

use super::pages::Pages;
use crate::exit::Failure;

/// Fewer digits name too many.
const LEAST_DIGITS: usize = 4;

/// The record of a whole identity, or the only one whose digits begin so; a part is looked for among all records.
pub(super) async fn find(store: &dyn StoreAdmin, text: &str) -> Result<(Identity, Record, StoreTime), Failure> {
    if let Ok(identity) = text.parse::<Identity>() {
        let seen = store.get(&identity).await.map_err(Failure::runtime)?;
        return match seen.record {
            Some(record) => Ok((identity, record, seen.now)),
            None => Err(Failure::not_there(format!("there is no record of {text}: it has expired, or never was"))),
        };
    }
    let digits = text.rsplit(':').next().unwrap_or(text).to_ascii_lowercase();
    if digits.len() < LEAST_DIGITS || digits.len() > 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Failure::usage(format!(
            "`{text}` is no identity: name it as `semel keys list` does, or by at least {LEAST_DIGITS} of its hexadecimal \
             digits"
        )));
    }
    let mut found: Vec<(Identity, Record, StoreTime)> = Vec::new();
    let mut pages = Pages::of(store, Filter::default());
    while let Some((entries, now)) = pages.next().await? {
        for entry in entries {
            // Two pages may show one record.
            let is_new = !found.iter().any(|(identity, ..)| *identity == entry.identity);
            if is_new && const_hex::encode(entry.identity.digest()).starts_with(&digits) {
                found.push((entry.identity, entry.record, now));
            }
        }
    }
    match found.len() {
        0 => {
            Err(Failure::not_there(format!("no record's identity begins with {digits}: it has expired, or never was")))
        }
        1 => Ok(found.remove(0)),
        n => Err(Failure::usage(format!("{n} identities begin with {digits}: name more of the digits"))),
    }
}

//! All records of a store, page by page.

use semel_core::StoreTime;
use semel_core::store::{Cursor, Entry, Filter, StoreAdmin};

use crate::exit::Failure;

/// Records asked for at a time.
const PAGE: usize = 500;

/// A walk over a store's records. It holds one page at a time.
pub(super) struct Pages<'s> {
    store: &'s dyn StoreAdmin,
    filter: Filter,
    after: Option<Cursor>,
    is_over: bool,
}

impl<'s> Pages<'s> {
    pub(super) fn of(store: &'s dyn StoreAdmin, filter: Filter) -> Self {
        Self { store, filter, after: None, is_over: false }
    }

    /// The next page and the store's time; `None` at the end. A page may be empty.
    pub(super) async fn next(&mut self) -> Result<Option<(Vec<Entry>, StoreTime)>, Failure> {
        if self.is_over {
            return Ok(None);
        }
        let page = self.store.list(&self.filter, self.after.as_ref(), PAGE).await.map_err(Failure::runtime)?;
        self.is_over = page.next.is_none();
        self.after = page.next;
        Ok(Some((page.entries, page.now)))
    }
}

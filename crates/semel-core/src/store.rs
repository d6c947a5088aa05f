#![doc = include_str!("store.md")]

mod changes;
mod error;
mod finding;
mod future;
mod memory;
mod shape;

pub use changes::Changes;
pub use error::{Did, StoreError, StoreErrorKind};
pub use finding::{Finding, Grade};
pub use future::{Pending, Reply, StoreFuture};
pub use memory::{Capacity, MemoryStore};
pub use shape::{
    Ask, AskFor, Claim, Claimed, Cursor, Durability, Entry, Extended, FenceStrength, Filter, Health, Issued, NewToken,
    Page, Purged, Releasing, Renewal, Renewed, Resolution, Resolved, Seen, Settled, Settlement, StoreFacts, Target,
};

use std::{sync::Weak, time::Duration};

use crate::{identity::Identity, ids::Fence, record::StateCode};

/// What executes. See the [module](self) for the contract that every method is held to.
pub trait Store: Send + Sync + 'static {
    /// Takes the exclusive right to run, or says what is there. Durable before the answer, where the store is durable.
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed>;

    /// Moves the ends of leases; one answer each, in the batch's order, and an error of its own for one that got none.
    /// An error of the call is everybody's. Never creates a record.
    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>>;

    /// Which part of the store has this record, where parts can fail one without the other (the masters of a Cluster): the
    /// engine renews those of each part in a call of its own, and what one does not answer in time holds up no other. A
    /// hint, from memory. 0 where the store is one.
    fn part(&self, id: &Identity) -> u64 {
        let _one = id;
        0
    }

    /// Records an outcome, or that nobody can tell it.
    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled>;

    /// Gives a claim back, parks it, or abandons one whose fate is unknown.
    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled>;

    /// Makes a one-time token.
    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued>;

    /// Moves the expiry of an unused token to `now + ttl`, at most to its `max_life`.
    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended>;

    /// Takes an unused token back; `false`, and nothing changed, where it is used, in flight or gone.
    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool>;

    /// Reads a record; what has expired is absent.
    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen>;

    /// Resolves when the record may have changed since it showed `seen`. A hint: it may resolve early or never, the
    /// engine polls behind it.
    fn wait<'a>(&'a self, id: &'a Identity, seen: Option<Fence>) -> StoreFuture<'a, ()>;

    /// Whether the store works, and its clock.
    fn health(&self) -> Reply<'_, Health>;

    /// What this store can promise. Constant for the life of the value.
    fn facts(&self) -> StoreFacts;

    /// From now on tells `to` of every record that a person settles, deletes or withdraws, in whatever process: engines
    /// remember outcomes for a while. For shared stores that can; where nobody tells, what is remembered is at most
    /// `TierConfig::ttl` old ([`StoreFacts::tells_changes`]). Returns at once; a connection that it needs is made in the
    /// background, and [`Changes::missed`] says when it is there, when it broke, and when there is another.
    fn tell_changes(&self, to: Weak<dyn Changes>) {
        drop(to);
    }
}

/// What people use. `Arc<dyn StoreAdmin>` coerces to `Arc<dyn Store>`.
pub trait StoreAdmin: Store {
    /// One page of records, in the order of the store's keys; expired ones are left out. A page shows a record once; what
    /// changes while a listing goes on may be left out or shown by two pages, and on Redis, whose own order moves while its
    /// table grows or shrinks, any record may be shown by two.
    fn list<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, max: usize) -> Reply<'a, Page>;

    /// Settles an unclear record by a person's word: compares the fence and raises it.
    fn resolve<'a>(&'a self, target: Target<'a>, to: &'a Resolution) -> Reply<'a, Resolved>;

    /// Removes a record in the expected state (done, free or parked); `false` where it is in another or not there.
    fn delete<'a>(&'a self, id: &'a Identity, expected: StateCode) -> Reply<'a, bool>;

    /// Removes at most `max` expired records, and says whether there may be [more](Purged::more): one call may look at a part
    /// of the store only, so that it is short whatever the size, and the next goes on from there. How many it removed says
    /// nothing about how many are left. After an error the next call may begin from the front; ends of unknowns that the
    /// failed one came upon are told by that.
    fn purge(&self, max: usize) -> Reply<'_, Purged>;

    /// Keeps a line about what a person did, beside the records; as durable as they are. A store keeps at least the last
    /// thousand lines. The text is the caller's, without a line break.
    fn audit<'a>(&'a self, line: &'a str) -> Reply<'a, ()>;

    /// The last lines that were kept, the newest first, at most `max`.
    fn audited(&self, max: usize) -> Reply<'_, Vec<String>>;
}

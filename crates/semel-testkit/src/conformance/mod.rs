#![doc = include_str!("../conformance.md")]

#[doc(hidden)]
pub mod cases;
mod expect;
mod list;
mod model;
mod seeded;
mod shifted;
mod stage;

pub use model::{check as check_against_the_model, play_seed as play_against_the_model};
pub use seeded::{Bug, is_caught};
pub use shifted::{Shift, Shifted};
pub use stage::Stage;

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use semel_core::{identity::Identity, store::StoreAdmin};

/// A place where one store, and only this test's, lives. One type per store and topology.
pub trait Bed: Sized + Send + Sync + 'static {
    /// How many random sequences [`check_against_the_model`] tries; a quarter as many are others each time.
    const SEQUENCES: u32 = 256;
    /// Whether two pages of a list may show the same record, as the order of the store's keys moves where others work too.
    const SHOWS_TWICE: bool = false;
    /// How far off the store's clock a claim's own time may be: a claimant may reckon it. Zero where the store looks at its clock.
    const RECKONED_WITHIN: Duration = Duration::ZERO;

    /// A new place, empty.
    fn start() -> impl Future<Output = Self> + Send;

    /// A client of the place's store; each call makes one of its own where a store can have several, and all see the
    /// same records.
    fn client(&self) -> impl Future<Output = Arc<dyn StoreAdmin>> + Send;

    /// Moves the store's clock ahead. Where nobody can, the times of all that is stored move back instead, and
    /// clients see the store through a [`Shifted`].
    fn advance(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Puts a record's bytes (see [`Record::encode`](semel_core::record::Record::encode)) in place behind the store's
    /// back, as a restored backup or a newer process would; `None` takes the record away, as a flush would.
    fn plant(&self, id: &Identity, bytes: Option<Bytes>) -> impl Future<Output = ()> + Send;

    /// Ends the store and opens it again on what it kept: a client made afterwards sees that. `false` for a store that
    /// keeps nothing ([`Durability::None`](semel_core::store::Durability::None)); such a one does nothing here.
    fn reopen(&self) -> impl Future<Output = bool> + Send {
        async { false }
    }

    /// From now on the [part](semel_core::store::Store::part) of the store that has this record does not answer, while the
    /// others do; `false` where the store is one, or where others use it too.
    fn take_part_away(&self, id: &Identity) -> impl Future<Output = bool> + Send {
        let _nobody = id;
        async { false }
    }

    /// How much the store has written so far, in any unit that grows with each write; `None` where nobody counts.
    fn written(&self) -> impl Future<Output = Option<u64>> + Send {
        async { None }
    }
}

/// Runs one case on a new bed, on a runtime of its own with two threads.
///
/// # Panics
/// When the case does, which is how it fails; or when there is no runtime to be had.
pub fn run<B: Bed>(case: impl AsyncFnOnce(&Stage<B>)) {
    runtime().block_on(async { case(&Stage::set().await).await });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime starts")
}

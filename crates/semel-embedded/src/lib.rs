//! The durable store of one process: one directory, one sync for many claims.
//!
//! ```no_run
//! use std::{path::Path, sync::Arc};
//! use semel_core::{env::Env, store::StoreAdmin};
//! use semel_embedded::{EmbeddedStore, Options};
//!
//! let store = EmbeddedStore::open(Path::new("semel-data"), &Env::system(), &Options::default())?;
//! let secret = store.secret().cloned(); // the directory's own, as none was configured
//! let store: Arc<dyn StoreAdmin> = Arc::new(store);
//! # drop((store, secret));
//! # Ok::<(), semel_embedded::OpenError>(())
//! ```
//!
//! # What survives what
//! | event | what holds |
//! |---|---|
//! | `kill -9` at any moment | every answered write; an answered claim that was running reads as unknown |
//! | power cut, `durability = power` | the same |
//! | power cut, `durability = process` | every answered claim; a completion of the last moments may read as unknown |
//! | full disk | claims are refused early, running work settles out of a reserve ([`Options::reserve`]) |
//! | a failed write or sync | the store takes no more writes until it is opened again; replays go on |
//! | the wall clock set back | store time goes on from the last batch's mark, it never runs back |
//! | synced batches gone from the end of the journal | [`OpenError::Lost`]: no crash does that. After a power cut what was answered in the last second or so before is not missed |
//! | a second process on the directory | is refused with the first one's process id |
//!
//! # How it works
//! A call is decided in memory, by the pure functions of [`semel_core::transition`], under the lock of one of 64 shards;
//! what it changes goes to one writer thread in the order of the decisions. The thread appends all that waits to a journal
//! as one batch, syncs once, notes how far it came, and answers. So one sync serves as many claims as came in during the one before it, and a synced
//! claim carries every earlier change with it. What the disk does not hold yet is read from memory.
//!
//! What is written stays where it is, and an index in memory says where. The journal is kept in segments; the oldest goes
//! when nothing in it counts any more, which is when its records have ended. Where too little of the whole counts, what the
//! oldest still holds is copied to the end in the background, whether or not anybody calls. Records that have ended are
//! forgotten when somebody purges; those of before an open at once, and when room becomes short all, again and again until
//! there is room. What had ended at the last batch is not there for the next open.
//!
//! Records in flight live in memory whole: a renewal is no I/O, and its lease is never written. When the directory is
//! opened again, the lease of every record in flight is over at that moment.
//!
//! # Cost
//! | call | round trips to the disk |
//! |---|---|
//! | claim | one write and one sync, and 32 bytes into the manifest without a sync; shared by all that wait |
//! | settle, release | the same; with [`Power::Process`] completions wait for the write only |
//! | duplicate of a record in flight, or finished lately | none, no allocation for the future |
//! | duplicate of an older record | one read, on the caller's thread, under the lock of its shard |
//! | renew, wait | none |
//! | list | one read for each record that it shows; and a look through one share's index, which grows by the table |
//! | purge | one read for 256 records that ended in an older segment, nothing is written |
//!
//! *On disk* a request takes its claim and its outcome, each with 132 bytes more; claims are given up with their segment. In
//! the long run the journal is at most twice what counts and four segments of 64 MiB.
//!
//! *In memory* a finished record takes about 48 bytes as long as it is there: its place in the index. While it is among the
//! newest it takes its bytes and about 250 more ([`Options::cache`] bounds these), and the newest segment 40 to 60 bytes
//! for each request in it. At open 40 bytes are read for each record, and the newest segment whole.
//!
//! A read that finds a cold record blocks the calling thread for it; that is what a thread hop would cost too. A key that
//! is fresh is not looked for on the disk: the index knows all.
//!
//! # The stored format
#![doc = include_str!("../FORMAT.md")]

mod audit;
mod directory;
mod disk;
mod error;
mod inspect;
mod log;
mod open;
mod options;
mod shard;
mod share;
mod space;
mod store;

pub use error::OpenError;
pub use inspect::inspect;
pub use options::{Options, Power};
pub use store::EmbeddedStore;

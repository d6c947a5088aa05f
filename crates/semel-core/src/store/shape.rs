//! The questions and answers of the store's calls.

use std::{fmt, time::Duration};

use bytes::Bytes;

use crate::{
    fingerprint::Fingerprint,
    identity::{Birth, Identity},
    ids::{Fence, Owner, StoreTime},
    record::{Record, StateCode},
};

/// The parts of a claim's question that its maker chooses; see [`Ask::new`].
#[derive(Clone, Debug)]
pub struct AskFor {
    /// Whose record.
    pub identity: Identity,
    /// What is asked.
    pub fingerprint: Fingerprint,
    /// How long the claim is exclusive without a renewal.
    pub lease: Duration,
    /// How long renewals may stretch it (`max_hold`).
    pub hold: Duration,
    /// How long its outcome stays unknown after that, if nobody settles it (`unknown_ttl`).
    pub keep: Duration,
    /// How long after a lease's end a takeover waits (`settle_after`).
    pub grace: Duration,
    /// Only an issued token may be claimed.
    pub needs_token: bool,
    /// Whether the record this claim makes allows takeover.
    pub takeover: bool,
    /// In store time: a claim that arrives later is refused.
    pub not_after: StoreTime,
    /// What the record carries; see [`Rest`](crate::record::Rest).
    pub rest: Bytes,
}

/// A claim's question. Only it can make the [`Claim`] that answers it.
#[derive(Clone, Debug)]
pub struct Ask {
    owner: Owner,
    what: AskFor,
}

impl Ask {
    /// A question by `owner`, who must be new for every claim (and the same for its repeats).
    #[must_use]
    pub const fn new(owner: Owner, what: AskFor) -> Self {
        Self { owner, what }
    }

    /// Who asks.
    #[must_use]
    pub const fn owner(&self) -> Owner {
        self.owner
    }

    /// Moves the time after which a store refuses it: for a repeat.
    pub const fn set_not_after(&mut self, not_after: StoreTime) {
        self.what.not_after = not_after;
    }

    /// The grant. For stores: called where the record was written, and nowhere else.
    #[must_use]
    pub const fn grant(&self, fence: Fence, attempt: u32) -> Claim {
        Claim { identity: self.what.identity, owner: self.owner, fence, attempt }
    }
}

impl std::ops::Deref for Ask {
    type Target = AskFor;

    fn deref(&self) -> &AskFor {
        &self.what
    }
}

/// Proof of the exclusive right. Made only by [`Ask::grant`] and not `Clone`: owner, identity and fence cannot be
/// mixed up.
#[derive(Debug)]
pub struct Claim {
    identity: Identity,
    owner: Owner,
    fence: Fence,
    attempt: u32,
}

impl Claim {
    /// Whose record.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Who holds it.
    #[must_use]
    pub const fn owner(&self) -> Owner {
        self.owner
    }

    /// The number of the grant.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// Which grant of the record's life it is, counted from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }
}

/// A claim's answer.
#[derive(Debug)]
#[must_use]
pub enum Claimed {
    /// The right to run.
    Granted {
        /// The proof.
        claim: Claim,
        /// What is left of the lease.
        left: Duration,
        /// The store's clock.
        now: StoreTime,
        /// Whether the claim took the place of an outcome that nobody ever told and whose time had ended. The end of an
        /// unknown is an event, whoever notices it: this call or [`StoreAdmin::purge`](super::StoreAdmin::purge).
        unresolved: bool,
    },
    /// Nothing was written; what is there, as the store saw it ([`judge`](crate::judge::judge) says what it means).
    Found {
        /// The record, expired or not; `None` where there is none.
        record: Option<Record>,
        /// The store's clock.
        now: StoreTime,
    },
    /// It arrived past its `not_after`; nothing was written.
    Late {
        /// The store's clock.
        now: StoreTime,
    },
}

/// One claim of a batch to renew.
#[derive(Debug)]
pub struct Renewal<'a> {
    /// Which.
    pub claim: &'a Claim,
    /// The lease it should have from now on.
    pub lease: Duration,
    /// `unknown_ttl`: the lease never reaches into it.
    pub keep: Duration,
}

/// The answer to one renewal.
#[derive(Debug)]
#[must_use]
pub enum Renewed {
    /// What is left of the lease; it stops growing at `max_hold`.
    Left(Duration),
    /// No such record: the store lost it. Nothing was created.
    Missing,
    /// Somebody else's, or no longer in flight.
    Lost(Record),
}

/// What a claim becomes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Settlement {
    /// The outcome is in `rest`.
    Done {
        /// What was asked, should the record have to be made anew.
        fingerprint: Fingerprint,
        /// Meta part and outcome.
        rest: Bytes,
        /// Whether the body is in it.
        body_kept: bool,
        /// How long it is replayed, from now on.
        ttl: Duration,
    },
    /// Nobody can tell.
    Unknown {
        /// What was asked, should the record have to be made anew.
        fingerprint: Fingerprint,
        /// Meta part and the last error.
        rest: Bytes,
        /// `unknown_ttl`.
        ttl: Duration,
    },
}

/// What is given back.
#[derive(Debug)]
#[non_exhaustive]
pub enum Releasing<'a> {
    /// A claim that is held.
    Held {
        /// Which.
        claim: &'a Claim,
        /// Whether the attempt counts; work that was not sent gives its count back.
        counts: bool,
        /// Free, or parked for a person.
        park: bool,
        /// How long the record stays.
        keep: Duration,
        /// Meta part and, if parked, the last error.
        rest: Bytes,
    },
    /// A claim of which nobody knows whether it arrived: frees it if it did. The attempt is given back. Once this is answered after
    /// the claim's `not_after`, a copy that comes later is to change nothing: a store that cannot refuse it as late when it
    /// comes has to see to that now.
    Fate {
        /// Whose record.
        identity: &'a Identity,
        /// Who asked.
        owner: Owner,
        /// How long the record stays.
        keep: Duration,
        /// Meta part.
        rest: Bytes,
    },
}

/// The answer to a settlement or release.
#[derive(Debug)]
#[must_use]
pub enum Settled {
    /// It stands.
    Ok {
        /// The store had lost the claim; the outcome was written anew.
        restored: bool,
    },
    /// Refused: the record is somebody else's by now, or settled otherwise.
    Lost(Record),
}

/// A one-time token to issue.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Its identity.
    pub identity: Identity,
    /// How long it can be used.
    pub ttl: Duration,
    /// How far that can be extended, from now.
    pub max_life: Duration,
    /// Meta part.
    pub rest: Bytes,
}

/// The answer to an issue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Issued {
    /// It is there, unused.
    Issued {
        /// Until when.
        expires_at: StoreTime,
    },
    /// There is a record of that identity already.
    Exists,
}

/// The answer to an extension.
#[derive(Debug)]
#[must_use]
pub enum Extended {
    /// The token's new expiry.
    Until(StoreTime),
    /// Not an unused token; what is there, nothing changed.
    Found(Option<Record>),
}

/// A record as it was read.
#[derive(Debug)]
pub struct Seen {
    /// The record, if there is one that has not expired.
    pub record: Option<Record>,
    /// The store's clock.
    pub now: StoreTime,
}

/// Whether a store works.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// The store's clock.
    pub now: StoreTime,
    /// Whether claims would be written now, as far as the store can tell without writing one: not where it may not write,
    /// and not where it knows that it has no room. What it cannot tell the engine hears from its answers
    /// ([`StoreState::full`](crate::engine::StoreState::full)).
    pub writable: bool,
    /// How many records there are, where that is cheap to know.
    pub records: Option<u64>,
    /// How many bytes they take, where that is cheap to know.
    pub bytes: Option<u64>,
    /// What is wrong, for people; empty when nothing is.
    pub trouble: String,
    /// Since when a shared store has its records; another one than before says that it lost them. `None` where the store
    /// is this process's own.
    pub birth: Option<Birth>,
}

/// What a store can promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreFacts {
    /// Its name for people: `memory`, `embedded`.
    pub name: &'static str,
    /// What survives what.
    pub durability: Durability,
    /// Whether its fence can be relied on.
    pub fence: FenceStrength,
    /// The largest `rest` it takes, in bytes.
    pub max_rest: u64,
    /// Whether other processes work on it too, at the end of a connection. A store of this process answers duplicates
    /// from its own memory: then nothing is gained by remembering its answers.
    pub shared: bool,
    /// Whether [`Store::tell_changes`](super::Store::tell_changes) tells what people change. Where a shared store does
    /// not, a process goes on replaying what it remembers for `TierConfig::ttl` at most.
    pub tells_changes: bool,
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing: it ends with the process.
    None,
    /// The end of the process; at a power cut answered records may read as unknown.
    Process,
    /// A power cut.
    Power,
}

/// Whether a fence can be relied on where a write has to be refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FenceStrength {
    /// It never repeats.
    Strong,
    /// It may repeat after a failover.
    Advisory,
}

/// Which records to list; empty means all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Only of this namespace.
    pub namespace: Option<String>,
    /// Only of this rule.
    pub rule: Option<String>,
    /// Only those that read as this state.
    pub state: Option<StateCode>,
}

/// Where a listing goes on; opaque.
#[derive(Clone, PartialEq, Eq)]
pub struct Cursor(pub Bytes);

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({} bytes)", self.0.len())
    }
}

/// What a purge removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Purged {
    /// How many records.
    pub removed: usize,
    /// Those among them whose outcome nobody ever told.
    pub unresolved: Vec<Identity>,
    /// There may be more to remove: ask again. `false` says that none is left that had ended when the first of these calls
    /// began, but for those that somebody works on.
    pub more: bool,
}

/// One page of a listing.
#[derive(Debug)]
pub struct Page {
    /// The records.
    pub entries: Vec<Entry>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
    /// The store's clock.
    pub now: StoreTime,
}

/// One listed record.
#[derive(Debug)]
pub struct Entry {
    /// Whose.
    pub identity: Identity,
    /// What is there.
    pub record: Record,
}

/// What a person speaks about, and who speaks.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Whose record.
    pub identity: &'a Identity,
    /// The fence the person saw.
    pub fence: Fence,
    /// A fresh owner for the person's word: a completion that comes later is refused.
    pub resolver: Owner,
}

/// What a person says about an unclear record.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Resolution {
    /// It took place.
    Completed {
        /// Meta part and, if known, the outcome.
        rest: Bytes,
        /// Whether the outcome's body is in it.
        body_kept: bool,
        /// How long that is replayed.
        ttl: Duration,
    },
    /// It did not: the next request runs.
    Failed {
        /// How long the freed record stays.
        keep: Duration,
        /// Meta part.
        rest: Bytes,
    },
}

/// The answer to a person's word.
#[derive(Debug)]
#[must_use]
pub enum Resolved {
    /// It stands, under this fence.
    Ok(Fence),
    /// The record is not there, or in a state or under a fence that the person did not see.
    Conflict(Option<Record>),
}

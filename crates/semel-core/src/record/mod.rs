//! The one record that serves every entrance: what stores compare, what they only carry, and how it reads.

mod encode;
mod outcome;
mod rest;
mod room;
mod sum;

pub use encode::{HEADER_LEN, MAGIC};
pub use outcome::{Body, Format, Outcome, Withheld};
pub use rest::{Meta, Payload, Rest, Torn, without_body};

use bytes::Bytes;

use crate::{
    fingerprint::Fingerprint,
    ids::{Fence, Owner, StoreTime},
};

/// The version of the record's format that this process writes.
pub const VERSION: u8 = 1;

/// One record. A store compares the named fields and only carries `rest`.
#[derive(Clone, Debug)]
pub struct Record {
    /// Format version. A record of a version this process does not know has nothing but this and reads as in flight.
    pub version: u8,
    /// The stored state; [`Record::reads_as`] says what it means at a time.
    pub state: StateCode,
    /// See [`Flags`].
    pub flags: Flags,
    /// What was asked; [`Fingerprint::NONE`] while free.
    pub fingerprint: Fingerprint,
    /// The owner of the last grant; kept in every state.
    pub owner: Owner,
    /// The fence of the last grant; kept in every state. `None` where nothing was ever granted.
    pub fence: Option<Fence>,
    /// How many grants counted so far.
    pub attempt: u32,
    /// In flight: the lease's end. Unknown: since when. An issued token: the time it may be extended to.
    pub lease_until: StoreTime,
    /// From this moment on the record is absent, whatever the sweeper has done.
    pub expires_at: StoreTime,
    /// Core's own encoding, opaque to stores: see [`Rest`].
    pub rest: Bytes,
}

impl Record {
    /// Whether the record stands at `now`.
    #[must_use]
    pub fn is_here(&self, now: StoreTime) -> bool {
        self.expires_at > now
    }

    /// Whether this process can read the record's fields.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.version == VERSION
    }

    /// Whether nobody ever told its outcome: should its time end so, that is an event.
    #[must_use]
    pub fn is_unresolved(&self) -> bool {
        self.is_readable() && matches!(self.state, StateCode::InFlight | StateCode::Unknown)
    }

    /// Whether the grant `owner`, `fence` is the record's last one.
    #[must_use]
    pub fn belongs_to(&self, owner: Owner, fence: Fence) -> bool {
        self.owner == owner && self.fence == Some(fence)
    }

    /// What the record means at `now`: an in-flight record whose lease is over reads as unknown, unless the record
    /// itself allows takeover. Nothing is written by reading.
    #[must_use]
    pub fn reads_as(&self, now: StoreTime) -> StateCode {
        match self.state {
            StateCode::InFlight if self.lease_until <= now && !self.flags.has(Flags::TAKEOVER) => StateCode::Unknown,
            other => other,
        }
    }
}

/// The stored states.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum StateCode {
    /// Nobody runs, nothing is decided: a released attempt, or an issued token.
    Free = 0,
    /// Somebody runs under a lease.
    InFlight = 1,
    /// The outcome is recorded.
    Done = 2,
    /// An outcome that nobody can tell.
    Unknown = 3,
    /// Failed too often: a person decides.
    Parked = 4,
}

impl StateCode {
    /// The state of a stored byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Free,
            1 => Self::InFlight,
            2 => Self::Done,
            3 => Self::Unknown,
            4 => Self::Parked,
            _ => return None,
        })
    }

    /// The name for people and for `--json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::InFlight => "in-flight",
            Self::Done => "done",
            Self::Unknown => "unknown",
            Self::Parked => "parked",
        }
    }
}

/// Bits beside the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Flags(u8);

impl Flags {
    /// A one-time token that was issued.
    pub const ISSUED: Self = Self(1);
    /// The record allows another owner once the lease and the grace are over.
    pub const TAKEOVER: Self = Self(2);
    /// The outcome's body was kept.
    pub const BODY_KEPT: Self = Self(4);
    /// Somebody waits for a change: the one who settles says so.
    pub const WATCHED: Self = Self(8);
    /// Completed by the service in its own transaction.
    pub const ADOPTED: Self = Self(16);
    /// No flag. The bits from 32 on are for a store's own, and nobody else sees them.
    pub const NONE: Self = Self(0);

    /// The flags of a stored byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    /// The byte, as stored.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// Whether all of `flags` are set.
    #[must_use]
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These and `flags`.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// These without `flags`.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// Only those of these that are in `flags`.
    #[must_use]
    pub const fn only(self, flags: Self) -> Self {
        Self(self.0 & flags.0)
    }

    /// `flags` if `when`, else none.
    #[must_use]
    pub const fn when(when: bool, flags: Self) -> Self {
        if when { flags } else { Self::NONE }
    }
}

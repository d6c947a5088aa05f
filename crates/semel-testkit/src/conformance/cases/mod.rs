//! The cases, by call. Each is a statement about every store; it panics where the store is wrong.

mod prelude {
    pub(super) use std::time::Duration;

    pub(super) use bytes::Bytes;
    pub(super) use semel_core::{
        Fence, StoreTime,
        judge::Judgement,
        record::{Flags, Record, StateCode},
        store::{Ask, AskFor, Issued, NewToken, Releasing, Renewal, Renewed, Settlement, Target},
    };

    pub(super) use super::super::{Bed, Stage, expect::*, stage::*};

    pub(super) const SECOND: Duration = Duration::from_secs(1);
    /// More than the slack: past a moment and well past it.
    pub(super) const AFTER: Duration = Duration::from_secs(60);
}

pub mod admin;
pub mod carry;
pub mod changes;
pub mod claim;
pub mod complete;
pub mod fence;
pub mod last;
pub mod race;
pub mod release;
pub mod renew;
pub mod resolve;
pub mod takeover;
pub mod token;
pub mod unknown;
pub mod unreadable;

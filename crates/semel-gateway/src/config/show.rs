//! Values as people read them.

use std::time::Duration;

use super::outcome::StatusSet;
use super::policy_types::{
    Attempts, Fingerprint, HeaderList, InFlight, Keep, KeyFormat, KeyPattern, Message, Missing, OnDuplicate,
    OnStoreError, RejectStatus, ReplayHeaders, Strictness, Suspect,
};
use super::units::{Bytes, show_duration};

/// A value in words.
pub(super) trait Show {
    fn show(&self) -> String;
}

impl Show for bool {
    fn show(&self) -> String {
        if *self { "yes" } else { "no" }.to_owned()
    }
}

impl Show for Duration {
    fn show(&self) -> String {
        show_duration(*self)
    }
}

macro_rules! by_display {
    ($($ty:ty),*) => { $( impl Show for $ty { fn show(&self) -> String { self.to_string() } } )* };
}

by_display!(
    u32,
    Attempts,
    Bytes,
    HeaderList,
    KeyFormat,
    KeyPattern,
    Missing,
    Keep,
    OnDuplicate,
    RejectStatus,
    Message,
    InFlight,
    OnStoreError,
    Strictness,
    StatusSet,
    Fingerprint,
    ReplayHeaders,
    Suspect
);

//! The settings of a rule, in one list. Reading, layering (rule over preset over `[defaults]` over built-in) and the words of
//! `semel check` are generated from it, so that a setting cannot be read and forgotten, or in force and not shown.

use std::time::Duration;

use super::outcome::StatusSet;
use super::policy_types::{
    Attempts, Fingerprint, HeaderList, InFlight, Keep, KeyFormat, KeyPattern, Message, Missing, OnDuplicate,
    OnStoreError, RejectStatus, ReplayHeaders, Strictness, Suspect,
};
use super::read::{Report, Section};
use super::setting::{Origin, Setting};
use super::show::Show;
use super::units::Bytes;

macro_rules! policy {
    ($( $(#[$doc:meta])* $field:ident: $ty:ty, )*) => {
        /// Every setting of a rule, in force, each with where it came from. The keys of the file have the same names.
        #[derive(Clone, PartialEq, Debug)]
        pub struct Policy { $( $(#[$doc])* pub $field: Setting<$ty>, )* }

        /// Some of the settings: a rule's own, a preset's, `[defaults]`.
        #[derive(Clone, Default)]
        pub(super) struct Layer { $( pub(super) $field: Option<Setting<$ty>>, )* }

        impl Layer {
            /// Takes every setting out of a table.
            pub(super) fn read(section: &mut Section<'_>, report: &mut Report) -> Self {
                Self { $( $field: section.read(stringify!($field), report), )* }
            }

            /// The keys that were written, with their places.
            pub(super) fn written(&self) -> Vec<(&'static str, Origin)> {
                let mut keys = Vec::new();
                $( if let Some(setting) = &self.$field { keys.push((stringify!($field), setting.origin)); } )*
                keys
            }

            /// `self` where it says something, else `weaker`.
            pub(super) fn over(self, weaker: Self) -> Self {
                Self { $( $field: self.$field.or(weaker.$field), )* }
            }

            /// `self` where it says something, else the built-in values.
            pub(super) fn resolve(self, built_in: Policy) -> Policy {
                Policy { $( $field: self.$field.unwrap_or(built_in.$field), )* }
            }
        }

        impl Policy {
            /// Name, value in words and origin of every setting, in the order of the documentation.
            pub fn lines(&self) -> Vec<Line> {
                vec![ $( Line { key: stringify!($field), value: self.$field.value.show(), origin: self.$field.origin }, )* ]
            }
        }
    };
}

/// One setting in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The key in the file.
    pub key: &'static str,
    /// The value as a person reads it.
    pub value: String,
    /// Who said so.
    pub origin: Origin,
}

policy! {
    /// Headers that may carry the key, first hit wins.
    key: HeaderList,
    /// Shortest key taken, in characters; the longest has 255.
    key_min_length: u32,
    /// What a key must look like.
    key_format: KeyFormat,
    /// Whether a key must be a quoted string, as the IETF draft writes it.
    key_quoted: bool,
    /// What a whole key must look like.
    key_pattern: KeyPattern,
    /// Whether method and path belong to the identity, so that one key may be used on several routes.
    per_route: bool,
    /// What happens to a request without a key.
    missing: Missing,
    /// How long an outcome is kept, from settlement.
    ttl: Duration,
    /// How long an unknown outcome is kept; never under `ttl`.
    unknown_ttl: Keep,
    /// How long a claim stands without renewal. Renewed at a third while the work runs.
    lease: Duration,
    /// Longest life of one claim, renewed or not.
    max_hold: Duration,
    /// Whether a dead owner's work is run again. Needs `upstream_idempotent`.
    takeover: bool,
    /// The word of the operator that running twice has one effect.
    upstream_idempotent: bool,
    /// How long after the lease's end a takeover waits: a dead lease is not a dead request.
    settle_after: Duration,
    /// Attempts before the record is parked for a person.
    max_attempts: Attempts,
    /// What a duplicate of a finished request gets.
    on_duplicate: OnDuplicate,
    /// What a rejected duplicate is answered with.
    reject_status: RejectStatus,
    /// What a rejected duplicate is told.
    message: Message,
    /// Under `reject`: headers whose equal value marks a network's retry of the same click; it gets the answer.
    retry_id: HeaderList,
    /// What becomes of a request that is equal in all but the key to one that ran within `suspect_window`, or runs.
    suspect: Suspect,
    /// How long a request is remembered for that, from the end of its run.
    suspect_window: Duration,
    /// What a duplicate of a running request gets.
    on_in_flight: InFlight,
    /// What happens while the store is away.
    on_store_error: OnStoreError,
    /// What an answer that does not tell (5xx, broken, timed out) means.
    strictness: Strictness,
    /// Statuses that mean: it did not happen, the key is free again.
    release_on: StatusSet,
    /// Statuses that mean: this is the outcome, keep it.
    keep_on: StatusSet,
    /// Statuses that mean: nobody can tell.
    unknown_on: StatusSet,
    /// What must be equal in two requests with one key.
    fingerprint: Fingerprint,
    /// Headers that tell callers apart where the principal does not.
    credentials: HeaderList,
    /// Header fields of the answer that are recorded beyond, or not recorded despite, the built-in list.
    replay: ReplayHeaders,
    /// Largest body of a guarded request; larger ones get 413.
    request_body: Bytes,
    /// Largest recorded body; larger answers are passed on and recorded without body.
    response_body: Bytes,
}

//! The table of defaults of mode `key`, and the presets over it. What is not written here has no value anywhere else.

use std::time::Duration;

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE};
use semel_http::key::Pattern;

use super::outcome::StatusSet;
use super::policy::{Layer, Policy};
use super::policy_types::{
    Attempts, Fingerprint, HeaderList, InFlight, Keep, KeyFormat, KeyPattern, Message, Missing, OnDuplicate,
    OnStoreError, RejectStatus, ReplayHeaders, Strictness, Suspect, WAIT,
};
use super::read::{Fault, Node, Read, text};
use super::server::Limits;
use super::setting::Setting;
use super::words::words;

const DAY: Duration = Duration::from_hours(24);

/// The header of the IETF draft and of most payment services.
pub(super) const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A rule in mode `key` about which nothing was said. `whole` is its upstream's time-out for the whole exchange.
pub(super) fn mode_key(whole: Duration, limits: &Limits) -> Policy {
    Policy {
        key: Setting::default(HeaderList(vec![KEY_HEADER])),
        key_min_length: Setting::default(1),
        key_format: Setting::default(KeyFormat::Any),
        key_quoted: Setting::default(false),
        key_pattern: Setting::default(KeyPattern(Pattern::any())),
        per_route: Setting::default(false),
        missing: Setting::default(Missing::Required),
        ttl: Setting::default(DAY),
        unknown_ttl: Setting::derived("as long as ttl", Keep::For(DAY)),
        lease: Setting::default(Duration::from_secs(10)),
        max_hold: Setting::default(Duration::from_mins(10)),
        takeover: Setting::default(false),
        upstream_idempotent: Setting::default(false),
        settle_after: Setting::derived("the upstream's whole time-out", whole),
        max_attempts: Setting::default(Attempts::Unlimited),
        on_duplicate: Setting::default(OnDuplicate::Replay),
        reject_status: Setting::default(RejectStatus::Conflict),
        message: Setting::default(Message::Standard),
        // Not the key's header: it is the same in every duplicate, so that nothing would ever be rejected.
        retry_id: Setting::default(HeaderList(vec![REQUEST_ID])),
        suspect: Setting::default(Suspect::Off),
        suspect_window: Setting::default(Duration::from_mins(1)),
        on_in_flight: Setting::default(InFlight::Wait(WAIT)),
        on_store_error: Setting::default(OnStoreError::Closed),
        strictness: Setting::default(Strictness::Strict),
        release_on: Setting::default(StatusSet::default()),
        keep_on: Setting::default(StatusSet::default()),
        unknown_on: Setting::default(StatusSet::default()),
        fingerprint: Setting::default(Fingerprint::Bytes),
        credentials: Setting::default(HeaderList(vec![AUTHORIZATION, COOKIE])),
        replay: Setting::default(ReplayHeaders::default()),
        request_body: limits.request_body,
        response_body: limits.response_body,
    }
}

words! {
    /// A named set of defaults. What the rule says itself wins over it.
    Preset {
        /// Money moves: strict, closed, replayed for a day, an unknown outcome stays until someone settles it.
        Payment = "payment",
        /// Between own services: strict, waits and replays, kept five minutes.
        Internal = "internal",
        /// Callbacks to handlers that commit in one transaction: whatever failed runs again.
        Callback = "callback",
    }
}

impl Preset {
    /// What the preset says.
    pub(super) fn layer(self) -> Layer {
        fn set<T>(preset: Preset, value: T) -> Option<Setting<T>> {
            Some(Setting::preset(preset.word(), value))
        }
        match self {
            Self::Payment => Layer {
                missing: set(self, Missing::Required),
                ttl: set(self, DAY),
                unknown_ttl: set(self, Keep::Forever),
                takeover: set(self, false),
                on_duplicate: set(self, OnDuplicate::Replay),
                on_store_error: set(self, OnStoreError::Closed),
                strictness: set(self, Strictness::Strict),
                ..Layer::default()
            },
            Self::Internal => Layer {
                ttl: set(self, Duration::from_mins(5)),
                on_duplicate: set(self, OnDuplicate::Replay),
                on_in_flight: set(self, InFlight::Wait(WAIT)),
                strictness: set(self, Strictness::Strict),
                ..Layer::default()
            },
            Self::Callback => Layer {
                takeover: set(self, true),
                upstream_idempotent: set(self, true),
                on_duplicate: set(self, OnDuplicate::Replay),
                strictness: set(self, Strictness::Relaxed),
                release_on: set(self, StatusSet::of(&[400..=499, 500..=599])),
                ..Layer::default()
            },
        }
    }
}

/// The preset of a table; those of later versions are named as such.
pub(super) struct Named(pub(super) Preset);

impl Read for Named {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        match text(node, "a word", "put it between quotes")? {
            "form" => Err(Fault::new("= \"form\" is not in this version")
                .why("it needs one-time tokens or digests of the request")
                .fix("choices: \"payment\", \"internal\", \"callback\"")),
            word => Preset::from_word(word).map(Self),
        }
    }
}

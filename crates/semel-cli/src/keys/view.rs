//! A record as people and programs see it: no key, no credential, no body in clear.

use std::time::Duration;

use semel_core::StoreTime;
use semel_core::identity::Identity;
use semel_core::record::{Body, Flags, HEADER_LEN, Payload, Record, Rest, StateCode, Withheld};
use serde::Serialize;

/// One record. The JSON of `semel keys list --json`, `show --json` and `export`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct View {
    pub(super) identity: String,
    pub(super) state: &'static str,
    pub(super) namespace: String,
    pub(super) kind: &'static str,
    pub(super) rule: String,
    /// The key as people may see it, masked where the rule masks it.
    pub(super) key: String,
    pub(super) attempt: u32,
    pub(super) fence: Option<u64>,
    pub(super) takeover: bool,
    pub(super) issued: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_left_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unknown_for_ms: Option<u64>,
    pub(super) expires_in_ms: u64,
    pub(super) bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<Recorded>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_error: Option<String>,
}

/// What is recorded of an outcome.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Recorded {
    pub(super) status: Option<u16>,
    pub(super) body_kept: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why_not: Option<&'static str>,
    pub(super) body_bytes: u64,
    pub(super) settled_ago_ms: u64,
}

impl View {
    pub(super) fn of(identity: &Identity, record: &Record, now: StoreTime) -> Self {
        let rest = Rest::read(&record.rest).ok();
        let text = |part: fn(&Rest<'_>) -> String| rest.as_ref().map(part).unwrap_or_default();
        let state = record.reads_as(now);
        let (outcome, last_error) = match rest.as_ref().map(|rest| &rest.payload) {
            Some(Payload::Outcome { outcome, settled_at }) => {
                let (body_kept, why_not, body_bytes) = match &outcome.body {
                    Body::Whole(body) => (true, None, body.len() as u64),
                    Body::Withheld(Withheld::TooLarge { len }) => (false, Some("larger than the rule's cap"), *len),
                    Body::Withheld(Withheld::NoStore) => (false, Some("the answer forbids to store it"), 0),
                    Body::Withheld(Withheld::Dropped) => (false, Some("dropped for want of room"), 0),
                    Body::Withheld(_) => (false, Some("for a reason that this version does not know"), 0),
                };
                let status = semel_http::recorded_status(outcome).map(|status| status.as_u16());
                let settled_ago_ms = millis(now.since(*settled_at));
                (Some(Recorded { status, body_kept, why_not, body_bytes, settled_ago_ms }), None)
            }
            Some(Payload::Words(words)) => (None, Some(words.to_string())),
            Some(Payload::Nothing) | None => (None, None),
        };
        let runs = state == StateCode::InFlight;
        Self {
            identity: identity.to_string(),
            state: state.name(),
            namespace: identity.namespace().as_str().to_owned(),
            kind: identity.kind().name(),
            rule: text(|rest| rest.meta.rule.to_owned()),
            key: text(|rest| rest.meta.key.to_owned()),
            attempt: record.attempt,
            fence: record.fence.map(semel_core::Fence::get),
            takeover: record.flags.has(Flags::TAKEOVER),
            issued: record.flags.has(Flags::ISSUED),
            lease_left_ms: runs.then(|| millis(record.lease_until.since(now))),
            unknown_for_ms: (state == StateCode::Unknown).then(|| millis(now.since(record.lease_until))),
            expires_in_ms: millis(record.expires_at.since(now)),
            bytes: (HEADER_LEN + record.rest.len()) as u64,
            outcome,
            last_error,
        }
    }

    /// The first digits, enough to name it by.
    pub(super) fn short(&self) -> &str {
        short(&self.identity)
    }

    /// All digits, without what they are of.
    pub(super) fn digits(&self) -> &str {
        digits(&self.identity)
    }

    pub(super) fn expires_in(&self) -> Duration {
        Duration::from_millis(self.expires_in_ms)
    }
}

/// Of an identity as text: the first digits, enough to name it by.
pub(super) fn short(identity: &str) -> &str {
    let digits = digits(identity);
    digits.get(..16).unwrap_or(digits)
}

fn digits(identity: &str) -> &str {
    identity.rsplit(':').next().unwrap_or_default()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

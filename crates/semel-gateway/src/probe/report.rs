//! What a gateway tells of a probe: as one line of JSON, and a seal that only a holder of the secret can make.

use std::fmt;

use semel_core::identity::{Purpose, Secret};
use serde::{Deserialize, Serialize};

use super::mark::same;

/// The answer to a probe.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The program's version.
    pub version: String,
    /// Which gateway: random, another one with each start.
    pub instance: String,
    /// The probe's number, as hexadecimal digits.
    pub nonce: String,
    /// The gateway's clock, in milliseconds since 1970.
    pub clock_ms: u64,
    /// Its store.
    pub store: StoreSeen,
    /// The digest of its rules: [`Config::rules_digest`](crate::config::Config::rules_digest).
    pub rules: String,
    /// What became of this copy.
    pub took: Took,
    /// The request as it arrived.
    pub saw: Saw,
}

/// A gateway's store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreSeen {
    /// Its kind: `memory`, `embedded`, `redis`, …
    pub name: String,
    /// Its clock, in milliseconds since 1970; absent where it did not answer.
    pub clock_ms: Option<u64>,
}

/// What became of one copy of a probe.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Took {
    /// It ran, at this gateway.
    Ran,
    /// It is a copy of one that ran at this gateway.
    Copy {
        /// The gateway's instance.
        of: String,
    },
    /// It was refused, for this reason.
    Refused(String),
}

/// A request as it arrived.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Saw {
    /// Its method.
    pub method: String,
    /// Its path and query.
    pub target: String,
    /// Its host.
    pub host: String,
    /// Its fields.
    pub fields: Vec<Field>,
    /// Keyed digest of its body: [`Saw::digest`].
    pub body: String,
}

/// A header field, its value as a keyed digest: what clients send to prove who they are is told to nobody.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Field {
    /// Its name, in small letters.
    pub name: String,
    /// [`Saw::digest`] of its value.
    pub digest: String,
}

impl Saw {
    /// The digest by which asker and gateway compare what was sent with what arrived.
    #[must_use]
    pub fn digest(secret: &Secret, bytes: &[u8]) -> String {
        const_hex::encode(secret.digest(Purpose::Probe, &[b"part", bytes]).short())
    }

    /// Whether a field arrived with this value: `None` where it did not arrive at all.
    #[must_use]
    pub fn has(&self, secret: &Secret, name: &str, value: &[u8]) -> Option<bool> {
        let digest = Self::digest(secret, value);
        let mut found = self.fields.iter().filter(|field| field.name == name).peekable();
        found.peek()?;
        Some(found.any(|field| field.digest == digest))
    }
}

/// Why an answer is no report of a gateway with this secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no report of a gateway with this secret")
    }
}

impl std::error::Error for Broken {}

impl Report {
    /// As it is sent: a line of JSON, a line with the seal.
    #[must_use]
    pub fn seal(&self, secret: &Secret) -> String {
        // A struct of texts and numbers has a JSON form.
        let json = serde_json::to_string(self).unwrap_or_default();
        let seal = secret.digest(Purpose::Probe, &[b"answer", json.as_bytes()]);
        format!("{json}\n{}\n", const_hex::encode(seal.as_bytes()))
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// [`Broken`]: not a report, one of another secret, or one that was changed on the way.
    pub fn open(body: &[u8], secret: &Secret) -> Result<Self, Broken> {
        let text = std::str::from_utf8(body).map_err(|_| Broken)?;
        let (json, seal) = text.trim_end().rsplit_once('\n').ok_or(Broken)?;
        let made = secret.digest(Purpose::Probe, &[b"answer", json.as_bytes()]);
        if !same(const_hex::encode(made.as_bytes()).as_bytes(), seal.as_bytes()) {
            return Err(Broken);
        }
        serde_json::from_str(json).map_err(|_| Broken)
    }
}

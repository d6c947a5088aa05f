//! What is sent, and what comes back.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use semel_core::env::Env;
use semel_core::identity::Secret;
use semel_gateway::config::{Config, Mode, Principal};
use semel_gateway::probe::{ASK, BadMark, Mark, PATH, Report, Wish};

use super::Through;
use crate::exit::Failure;
use crate::prove::load::{self, Answer, Request, Start};
use crate::prove::{self, Target, Trust, field};

/// Longest wait for an answer, connecting included.
const LIMIT: Duration = Duration::from_secs(10);

/// What proxies that read bodies may put into another order or form.
const BODY: &str = "{\"b\": 1.0,\n \"a\": \"\\u00fc ü\",  \"a\": null}\n";

/// An address, resolved.
#[derive(Clone)]
pub(super) struct Place {
    /// As it was given.
    pub(super) shown: String,
    inner: prove::Place,
}

impl Place {
    pub(super) async fn find(target: &Target, trust: &Trust) -> Result<Self, String> {
        let inner = prove::Place::find(target.below(PATH)?, trust).await?;
        Ok(Self { shown: target.url().to_owned(), inner })
    }

    /// The path and query that are sent.
    pub(super) fn path(&self) -> String {
        self.inner.target.path().to_string()
    }

    pub(super) fn host(&self) -> &str {
        self.inner.target.authority()
    }
}

/// Makes and sends probes.
pub(super) struct Asker {
    pub(super) secret: Secret,
    env: Env,
    /// What `--header` names.
    given: HeaderMap,
    /// Fields that carry keys.
    pub(super) keys: Vec<HeaderName>,
    /// Fields that tell a network's retry from a person's.
    pub(super) retry_ids: Vec<HeaderName>,
    /// What tells callers apart.
    pub(super) principal: Principal,
}

/// One probe: what it is sent with.
pub(super) struct Probe {
    pub(super) mark: Mark,
    pub(super) fields: HeaderMap,
}

/// What one copy came back with.
pub(super) enum Reply {
    /// A gateway's report, and the answer it came in.
    Report(Box<Report>, Answer),
    /// A gateway's, that the mark is no good.
    Bad(BadMark),
    /// Somebody else's answer.
    Foreign(Answer),
    /// None.
    Trouble(String),
}

impl Asker {
    pub(super) fn new(args: &Through, config: &Config, secret: &Secret) -> Result<Self, Failure> {
        let mut given = HeaderMap::new();
        for line in &args.headers {
            let (name, value) = field(line)?;
            let value = HeaderValue::from_str(&value)
                .map_err(|_| Failure::usage(format!("--header {name}: the value cannot stand in a field")))?;
            given.append(name, value);
        }
        let guarded = || config.rules.iter().filter(|rule| rule.mode.value == Mode::Key);
        let names = |of: &mut dyn Iterator<Item = HeaderName>| {
            let mut names: Vec<HeaderName> = Vec::new();
            for name in of {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            names
        };
        let keys = names(&mut guarded().flat_map(|rule| rule.policy.key.0.iter().cloned()));
        let retry_ids = names(&mut guarded().flat_map(|rule| rule.policy.retry_id.0.iter().cloned()));
        let principal = config.principal.value.clone();
        Ok(Self { secret: secret.clone(), env: Env::system(), given, keys, retry_ids, principal })
    }

    pub(super) fn now(&self) -> SystemTime {
        self.env.clock.wall()
    }

    /// Whether `--header` names the field.
    pub(super) fn is_given(&self, name: &HeaderName) -> bool {
        self.given.contains_key(name)
    }

    /// A new one. Its copies are sent with the same fields.
    pub(super) fn probe(&self, wish: Wish) -> Result<Probe, Failure> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce)
            .map_err(|error| Failure::runtime(format!("the system has no randomness: {error}")))?;
        let at = self.now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mark = Mark { nonce, at_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX), wish };
        let word = |what: &str| {
            let digits = const_hex::encode(nonce);
            HeaderValue::from_str(&format!("semel-{what}-{digits}")).unwrap_or(HeaderValue::from_static("semel"))
        };
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for name in &self.keys {
            fields.insert(name, word("key"));
        }
        for name in &self.retry_ids {
            fields.insert(name, word("request"));
        }
        // Whoever stands before the gateway must not let a client say who it is.
        if let Principal::Header(name) = &self.principal {
            fields.insert(name, word("somebody-else"));
        }
        for (name, value) in &self.given {
            fields.insert(name, value.clone());
        }
        let mark_text = mark.sign(&self.secret);
        fields.insert(ASK, HeaderValue::from_str(&mark_text).unwrap_or(HeaderValue::from_static("")));
        Ok(Probe { mark, fields })
    }

    fn request(place: &Place, probe: &Probe) -> Request {
        Request {
            place: place.inner.clone(),
            method: Method::POST,
            headers: probe.fields.clone(),
            body: Bytes::from_static(BODY.as_bytes()),
        }
    }

    pub(super) async fn one(&self, place: &Place, probe: &Probe) -> Reply {
        self.read(load::single(&Self::request(place, probe), LIMIT).await, probe)
    }

    /// So many copies at once, each on a connection of its own.
    pub(super) async fn copies(&self, place: &Place, probe: &Probe, copies: usize) -> Vec<Reply> {
        let starts = vec![Start::default(); copies];
        let silent: load::Tick = Arc::new(|| {});
        let replies = load::volley(&Self::request(place, probe), &starts, LIMIT, &silent).await;
        replies.into_iter().map(|reply| self.read(reply, probe)).collect()
    }

    fn read(&self, reply: load::Reply, probe: &Probe) -> Reply {
        let answer = match reply.result {
            Ok(answer) => answer,
            Err(trouble) => return Reply::Trouble(trouble.words()),
        };
        if let Some(bad) = BadMark::of(&answer.body) {
            return Reply::Bad(bad);
        }
        let nonce = const_hex::encode(probe.mark.nonce);
        match Report::open(&answer.body, &self.secret) {
            // Somebody may have kept an answer and give it again.
            Ok(report) if report.nonce == nonce => Reply::Report(Box::new(report), answer),
            _ => Reply::Foreign(answer),
        }
    }

    pub(super) fn body(&self) -> &'static [u8] {
        BODY.as_bytes()
    }
}

//! A checked run: what is sent, how often, and how the result is read.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::args::Args;
use super::chance::Chance;
use super::effects::Naming;
use super::key;
use super::load::{Request, Start};
use super::place::Place;
use super::target::Target;
use super::trust::Trust;
use crate::exit::Failure;

const DEFAULT_BODY: &str = r#"{"item":"book","qty":1}"#;
const PLACEHOLDER: &str = "{key}";

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) place: Place,
    pub(crate) direct: Option<Place>,
    pub(crate) count: Option<Place>,
    pub(crate) count_pointer: Option<String>,
    pub(crate) naming: Naming,
    pub(crate) rounds: u32,
    pub(crate) concurrency: u32,
    pub(crate) ramp: Duration,
    pub(crate) timeout: Duration,
    pub(crate) settle: Duration,
    pub(crate) expected: u64,
    pub(crate) seed: u64,
    pub(crate) method: Method,
    pub(crate) keyed: bool,
    /// Another key is another request: it is in the header, or somewhere in what is sent.
    pub(crate) key_is_sent: bool,
    key_header: HeaderName,
    key_prefix: String,
    headers: Vec<(HeaderName, String)>,
    body: Body,
    altered: Option<Body>,
    failing: Option<Failing>,
    disconnect: f64,
    disconnect_within: Duration,
}

#[derive(Clone, Debug)]
enum Body {
    /// `{key}` in it stands for the key.
    Text(String),
    Bytes(Bytes),
}

#[derive(Debug)]
struct Failing {
    body: Option<Body>,
    header: Option<(HeaderName, String)>,
}

/// Larger than any body that a gateway takes by itself; each of the copies has it in memory.
const MOST_OF_A_BODY: u64 = 64 << 20;

impl Plan {
    pub(crate) async fn new(args: &Args) -> Result<Self, Failure> {
        let has_body = !matches!(args.method, Method::GET | Method::HEAD);
        let body = match (&args.body, &args.body_file) {
            (Some(text), _) => Body::Text(text.clone()),
            (None, Some(file)) => Body::Bytes(
                semel_gateway::named::read(file, MOST_OF_A_BODY)
                    .map_err(|error| Failure::usage(format!("cannot read --body-file {}: {error}", file.display())))?
                    .into(),
            ),
            (None, None) => Body::Text(if has_body { DEFAULT_BODY.to_owned() } else { String::new() }),
        };
        let mut headers = args.headers.iter().map(|line| field(line)).collect::<Result<Vec<_>, _>>()?;
        if !body.is_empty() && !headers.iter().any(|(name, _)| name == CONTENT_TYPE) {
            headers.push((CONTENT_TYPE, checked_value("--content-type", &args.content_type)?));
        }
        checked_value("--key-prefix", &args.key_prefix)?;
        let failing = match (&args.failing_body, &args.failing_header) {
            (None, None) => None,
            (text, line) => {
                Some(Failing { body: text.clone().map(Body::Text), header: line.as_deref().map(field).transpose()? })
            }
        };
        let altered = match args.altered.as_deref() {
            None => None,
            Some("") => Some(body.changed()?),
            Some(text) => Some(Body::Text(text.to_owned())),
        };
        let naming = match (&args.effect_pointer, &args.effect_header) {
            (Some(pointer), _) => Naming::Pointer(pointer.clone()),
            (None, Some(name)) => Naming::Header(name.clone()),
            (None, None) => Naming::Whole,
        };
        let key_is_sent =
            !args.no_key || body.names_key() || headers.iter().any(|(_, value)| value.contains(PLACEHOLDER));
        let trust = Trust::with(args.ca.as_deref())?;
        Ok(Self {
            place: find(&args.url, &trust).await?,
            direct: optional(args.direct.as_ref(), &trust).await?,
            count: optional(args.count_url.as_ref(), &trust).await?,
            count_pointer: args.count_pointer.clone(),
            naming,
            rounds: args.rounds,
            concurrency: args.concurrency,
            ramp: args.ramp,
            timeout: args.timeout,
            settle: args.settle,
            expected: args.expect_effects,
            // Short enough to copy by hand.
            seed: args.seed.map_or_else(|| key::random().map(|bits| bits >> 40), Ok)?,
            method: args.method.clone(),
            keyed: !args.no_key,
            key_is_sent,
            key_header: args.key_header.clone(),
            key_prefix: args.key_prefix.clone(),
            headers,
            body,
            altered,
            failing,
            disconnect: args.disconnect,
            disconnect_within: args.disconnect_within,
        })
    }

    /// A key nobody has used, whatever the seed is.
    pub(crate) fn fresh_key(&self) -> Result<String, Failure> {
        key::fresh(&self.key_prefix)
    }

    pub(crate) fn request(&self, place: &Place, key: &str) -> Result<Request, Failure> {
        self.request_with(place, key, &self.body, None)
    }

    /// The same key, another body; `None` where that was not asked for.
    pub(crate) fn altered(&self, key: &str) -> Result<Option<Request>, Failure> {
        self.altered.as_ref().map(|body| self.request_with(&self.place, key, body, None)).transpose()
    }

    /// The request the endpoint fails on; `None` where nobody said how.
    pub(crate) fn failing(&self, key: &str) -> Result<Option<Request>, Failure> {
        let Some(failing) = &self.failing else { return Ok(None) };
        let body = failing.body.as_ref().unwrap_or(&self.body);
        self.request_with(&self.place, key, body, failing.header.as_ref()).map(Some)
    }

    fn request_with(
        &self,
        place: &Place,
        key: &str,
        body: &Body,
        extra: Option<&(HeaderName, String)>,
    ) -> Result<Request, Failure> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers.iter().chain(extra) {
            headers.append(name, value_of(&value.replace(PLACEHOLDER, key))?);
        }
        if self.keyed {
            headers.insert(&self.key_header, value_of(key)?);
        }
        Ok(Request { place: place.clone(), method: self.method.clone(), headers, body: body.for_key(key) })
    }

    /// The question to `--count-url`: a GET with the given headers and no key.
    pub(crate) fn count_request(&self) -> Result<Option<Request>, Failure> {
        let Some(place) = &self.count else { return Ok(None) };
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers.iter().filter(|(name, _)| name != CONTENT_TYPE) {
            headers.append(name, value_of(value)?);
        }
        Ok(Some(Request { place: place.clone(), method: Method::GET, headers, body: Bytes::new() }))
    }

    /// One round's starts: the first copy at once, the others anywhere in the ramp.
    pub(crate) fn starts(&self, chance: &mut Chance) -> Vec<Start> {
        (0..self.concurrency)
            .map(|index| Start {
                after: if index == 0 { Duration::ZERO } else { chance.moment(self.ramp) },
                hangs_up: (chance.share() < self.disconnect).then(|| chance.early_moment(self.disconnect_within)),
            })
            .collect()
    }
}

impl Body {
    fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
        }
    }

    fn names_key(&self) -> bool {
        matches!(self, Self::Text(text) if text.contains(PLACEHOLDER))
    }

    fn for_key(&self, key: &str) -> Bytes {
        match self {
            Self::Text(text) => text.replace(PLACEHOLDER, key).into(),
            Self::Bytes(bytes) => bytes.clone(),
        }
    }

    /// Another intent in the same form: one more member in a JSON object, one more byte elsewhere.
    fn changed(&self) -> Result<Self, Failure> {
        if self.is_empty() {
            return Err(Failure::usage("there is no body to alter; give one with --altered='…'"));
        }
        let text = match self {
            Self::Text(text) => text.clone(),
            Self::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => text.to_owned(),
                Err(_) => return Ok(Self::Bytes([bytes.as_ref(), b"."].concat().into())),
            },
        };
        match serde_json::from_str::<serde_json::Value>(&text) {
            Ok(serde_json::Value::Object(mut members)) => {
                members.insert("altered_by_prove".to_owned(), true.into());
                Ok(Self::Text(serde_json::Value::Object(members).to_string()))
            }
            _ => Ok(Self::Text(text + ".")),
        }
    }
}

async fn find(target: &Target, trust: &Trust) -> Result<Place, Failure> {
    Place::find(target.clone(), trust).await.map_err(Failure::runtime)
}

async fn optional(target: Option<&Target>, trust: &Trust) -> Result<Option<Place>, Failure> {
    match target {
        Some(target) => find(target, trust).await.map(Some),
        None => Ok(None),
    }
}

pub(crate) fn field(line: &str) -> Result<(HeaderName, String), Failure> {
    let parts = line.split_once(':').and_then(|(name, value)| Some((name.trim().parse().ok()?, value.trim())));
    let Some((name, value)) = parts else {
        return Err(Failure::usage(format!("not a header field: '{line}'; write it as 'Name: value'")));
    };
    Ok((name, checked_value("--header", value)?))
}

fn checked_value(flag: &str, value: &str) -> Result<String, Failure> {
    match HeaderValue::from_str(value) {
        Ok(_) => Ok(value.to_owned()),
        Err(_) => Err(Failure::usage(format!("the value of {flag} cannot stand in a header field"))),
    }
}

fn value_of(text: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(text).map_err(|error| Failure::usage(format!("'{text}' cannot stand in a header: {error}")))
}

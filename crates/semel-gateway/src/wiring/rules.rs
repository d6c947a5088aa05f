//! The file's rules, as the engine and the guard take them.

use std::borrow::Cow;
use std::sync::Arc;

use http::StatusCode;
use http::header::HOST;
use semel_core::policy::{NEVER, OnDuplicate, OnInFlight, OnStoreError, PolicyBuilder};
use semel_http::classify::Outcomes;
use semel_http::fingerprint::{FingerprintMode, Json, RequestUri, Target};
use semel_http::key::{self, Syntax};
use semel_http::principal::{self, Credentials};
use semel_http::{
    Caps, MissingKey, RejectStatus, ReplayHeaders, RequestView, Rule, RuleBuilder, RuleError, Rules, Suspect,
};

use super::StartError;
use super::transport::{bytes, size};
use crate::config::{
    self, Asked, Attempts, Config, Fingerprint, Found, InFlight, Keep, KeyFormat, Methods, Missing, Mode, Principal,
    StatusSet, Strictness,
};

/// The rules of the file, found by method, host and path.
pub(super) struct Table {
    routes: Arc<config::Rules>,
    /// In the file's order; none where the rule is off.
    rules: Vec<Option<Arc<Rule>>>,
}

impl Table {
    pub(super) fn new(config: &Config) -> Result<Self, StartError> {
        let rules = config.rules.iter().map(|rule| match rule.mode.value {
            Mode::Off => Ok(None),
            Mode::Key => make(config, rule).map(|made| Some(Arc::new(made))),
        });
        Ok(Self { routes: Arc::new(config.rules.clone()), rules: rules.collect::<Result<_, _>>()? })
    }
}

impl Rules for Table {
    fn find(&self, request: &RequestView<'_>) -> Option<Arc<Rule>> {
        self.rules.get(find(&self.routes, request)?.index)?.clone()
    }

    fn otherwise(&self, request: &RequestView<'_>) -> Option<Arc<Rule>> {
        let has_key = |rule: &config::Rule| rule.policy.key.0.iter().any(|name| request.headers.contains_key(name));
        let host = if self.routes.by_host() { host(request) } else { None };
        let asked = Asked { method: request.method, host, path: request.uri.path() };
        self.rules.get(self.routes.otherwise(&asked, has_key)?)?.clone()
    }
}

/// The place of a request's rule.
pub(super) fn find(routes: &config::Rules, request: &RequestView<'_>) -> Option<Found> {
    let host = if routes.by_host() { host(request) } else { None };
    routes.find(request.method, host, request.uri.path())
}

/// The host a request is for: of its target, where it has one, else of its header.
pub(super) fn host<'a>(request: &RequestView<'a>) -> Option<&'a str> {
    request.uri.host().or_else(|| host_field(request))
}

/// The header's text. It is the first field of nearly every request: the first of a pass costs less than a look.
fn host_field<'a>(request: &RequestView<'a>) -> Option<&'a str> {
    request.headers.iter().find(|(name, _)| **name == HOST)?.1.to_str().ok()
}

/// Where a question was put: host and target. Two hosts behind one gateway are two services, and the same key at the
/// other one is a mismatch, never its answer.
///
/// Ports and addresses do not tell services apart here: a retry that goes to another instance, or to the same one on
/// another port, is still a retry.
struct HostAndTarget;

impl Target for HostAndTarget {
    fn target<'a>(&self, request: &RequestView<'a>) -> Cow<'a, str> {
        let authority = request.uri.authority().map(http::uri::Authority::as_str);
        let host = authority.or_else(|| host_field(request)).unwrap_or_default();
        let (host, target) = (name_of(host), RequestUri.target(request));
        // Put together by hand: this is made for each guarded request, and the formatter takes ten times as long.
        let mut out = String::with_capacity(2 + host.len() + target.len());
        out.push_str("//");
        out.push_str(host);
        out.make_ascii_lowercase();
        out.push_str(&target);
        Cow::Owned(out)
    }

    fn path_at(&self, target: &str) -> usize {
        let host = target.strip_prefix("//").unwrap_or_default();
        2 + host.find('/').unwrap_or(host.len())
    }
}

/// The name in `name:port`; empty for an address.
fn name_of(host: &str) -> &str {
    let name = host.bytes().rposition(|b| b == b':').map_or(host, |colon| &host[..colon]);
    // An address ends in a digit; hardly any name does, and only one that does is read as an address.
    let is_address = name.ends_with(|c: char| c.is_ascii_digit()) && name.parse::<std::net::Ipv4Addr>().is_ok();
    if name.starts_with('[') || is_address { "" } else { name }
}

fn make(config: &Config, rule: &config::Rule) -> Result<Rule, StartError> {
    let refused = |error: RuleError| StartError::Rule(rule.name.to_string(), error.to_string());
    let p = &rule.policy;
    let syntax = Syntax::default().min_len(size(*p.key_min_length));
    let syntax = match *p.key_format {
        KeyFormat::Any => syntax,
        KeyFormat::Uuid => syntax.uuid(),
    };
    let syntax = if *p.key_quoted { syntax.quoted() } else { syntax };
    let mut builder = Rule::key()
        .named(&rule.name)
        .namespace(config.store.namespace.value.0)
        .source(key::header(p.key.0.iter().cloned()).syntax(syntax).like(p.key_pattern.0.clone()))
        .credentials(Credentials::headers(p.credentials.0.iter().cloned()))
        .missing(match *p.missing {
            Missing::Required => MissingKey::Required,
            Missing::Optional => MissingKey::Optional,
        })
        .fingerprint(fingerprint(rule)?)
        .target(HostAndTarget)
        .outcomes(outcomes(p))
        .replay(ReplayHeaders::default().allow(p.replay.allow.0.iter().cloned()).deny(p.replay.deny.0.iter().cloned()))
        .caps(Caps { request: bytes(p.request_body.0), response: bytes(p.response_body.0) })
        .reject_status(match *p.reject_status {
            config::RejectStatus::Conflict => RejectStatus::Conflict,
            config::RejectStatus::TooManyRequests => RejectStatus::TooManyRequests,
        })
        .retry_id(p.retry_id.0.iter().cloned())
        .policy(|policy| settings(policy, p, config));
    builder = match &rule.route.methods {
        Methods::AllUnsafe => builder.every_method(),
        Methods::These(methods) => builder.methods(methods.iter().cloned()),
    };
    let suspect = match *p.suspect {
        config::Suspect::Off => None,
        config::Suspect::Count => Some(Suspect::Count),
        config::Suspect::Reject => Some(Suspect::Reject),
    };
    if let Some(what) = suspect {
        builder = builder.suspect(what, *p.suspect_window);
    }
    if *p.per_route {
        builder = builder.per_route();
    }
    whose(builder, &config.principal).build().map_err(refused)
}

fn whose(builder: RuleBuilder, principal: &Principal) -> RuleBuilder {
    match principal {
        Principal::Shared => builder.principal(principal::shared()),
        Principal::Header(name) => builder.principal(principal::trusted_header(name.clone())),
        Principal::ApiKey(name) => builder.principal(principal::api_key(name.clone())),
    }
}

fn settings(policy: PolicyBuilder, p: &config::Policy, config: &Config) -> PolicyBuilder {
    let policy = policy
        .ttl(*p.ttl)
        .unknown_ttl(match *p.unknown_ttl {
            Keep::For(time) => time,
            Keep::Forever => NEVER,
        })
        .lease(*p.lease)
        .max_hold(*p.max_hold)
        .max_attempts(match *p.max_attempts {
            Attempts::Unlimited => u16::MAX,
            Attempts::Most(n) => n,
        })
        .on_duplicate(match *p.on_duplicate {
            config::OnDuplicate::Replay => OnDuplicate::Replay,
            config::OnDuplicate::Reject => OnDuplicate::Reject,
        })
        .on_in_flight(match *p.on_in_flight {
            InFlight::Wait(time) => OnInFlight::Wait(time),
            InFlight::Reject => OnInFlight::Reject,
        })
        .on_store_error(match *p.on_store_error {
            config::OnStoreError::Closed => OnStoreError::Closed,
            config::OnStoreError::Open => OnStoreError::Open,
        })
        .max_running(size(*config.limits.max_running.rule));
    let policy = match &*p.message {
        config::Message::Standard => policy,
        config::Message::Text(text) => policy.message(text.as_str()),
    };
    if *p.takeover { policy.takeover(*p.settle_after) } else { policy }
}

fn fingerprint(rule: &config::Rule) -> Result<FingerprintMode, StartError> {
    let fields = match &*rule.policy.fingerprint {
        Fingerprint::Bytes => return Ok(FingerprintMode::Bytes),
        Fingerprint::Form => return Ok(FingerprintMode::Form),
        Fingerprint::Route => return Ok(FingerprintMode::Route),
        Fingerprint::None => return Ok(FingerprintMode::None),
        Fingerprint::Json(fields) => fields,
    };
    let mut json = Ok(Json::default());
    for pointer in &fields.include {
        json = json.and_then(|json| json.only(pointer));
    }
    for pointer in &fields.exclude {
        json = json.and_then(|json| json.without(pointer));
    }
    for pointer in &fields.unordered {
        json = json.and_then(|json| json.unordered(pointer));
    }
    json.map(FingerprintMode::Json).map_err(|error| StartError::Rule(rule.name.to_string(), error.to_string()))
}

fn outcomes(p: &config::Policy) -> Outcomes {
    let table = match *p.strictness {
        Strictness::Strict => Outcomes::strict(),
        Strictness::Relaxed => Outcomes::relaxed(),
    };
    table.release_on(statuses(&p.release_on)).keep_on(statuses(&p.keep_on)).unknown_on(statuses(&p.unknown_on))
}

fn statuses(set: &StatusSet) -> impl Iterator<Item = StatusCode> {
    set.ranges().iter().flat_map(Clone::clone).filter_map(|status| StatusCode::from_u16(status).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_looked_up_where_a_rule_is_for_one() {
        let other = "[[rule]]\nname = \"other\"\nmatch = \"POST /*\"";
        let place = |host_of_a_rule: &str| {
            let config = config(&format!("{host_of_a_rule}\n{other}"));
            let request = http::Request::post("/orders").header(HOST, "shop.test:80").body(()).unwrap();
            (config.rules.by_host(), find(&config.rules, &RequestView::of(&request)).unwrap().index)
        };
        assert_eq!(place(""), (false, 0));
        assert_eq!(place("host = \"shop.test\""), (true, 0));
        assert_eq!(place("host = \"bank.test\""), (true, 1));
    }

    /// A file with one rule, these lines at its end.
    fn config(lines: &str) -> Config {
        let text = format!(
            "[upstream.shop]
            urls = [\"http://127.0.0.1:3000\"]
            [principal]
            header = \"X-User\"
            [[rule]]
            name = \"one\"
            match = \"POST /orders\"
            {lines}"
        );
        let file = config::Source::new("semel.toml", text);
        Config::from_parts(Some(file), &config::Flags::default()).unwrap()
    }

    /// The guard's rule of a file's.
    fn made(lines: &str) -> Rule {
        let config = config(lines);
        make(&config, config.rules.get(0).unwrap()).unwrap()
    }

    #[test]
    fn a_rejected_duplicate_is_answered_as_the_file_says() {
        for (lines, expected) in [
            ("", RejectStatus::Conflict),
            ("reject_status = 409", RejectStatus::Conflict),
            ("reject_status = 429", RejectStatus::TooManyRequests),
        ] {
            assert_eq!(made(lines).reject_status, expected, "{lines}");
        }
    }

    #[test]
    fn suspects_are_looked_for_as_the_file_says() {
        let of = |lines| made(lines).suspect();
        let minute = std::time::Duration::from_secs(60);
        assert_eq!(of(""), None, "it costs something");
        assert_eq!(of("suspect = \"off\""), None);
        assert_eq!(of("suspect = \"count\""), Some((Suspect::Count, minute)));
        assert_eq!(of("suspect = \"reject\"\nsuspect_window = \"2min\""), Some((Suspect::Reject, 2 * minute)));
    }

    #[test]
    fn the_same_target_at_another_host_is_another_question() {
        let target = |uri: &str, host: &str| {
            let request = http::Request::post(uri).header(HOST, host).body(()).unwrap();
            HostAndTarget.target(&RequestView::of(&request)).into_owned()
        };
        assert_eq!(target("/orders?a=1", "Shop.test"), "//shop.test/orders?a=1");
        assert_eq!(target("/orders?a=1", "shop.test:80"), target("http://shop.test/orders?a=1", "ignored"));
        assert_ne!(target("/orders", "shop.test"), target("/orders", "bank.test"));
        assert_eq!(target("/orders", "shop.test"), target("/orders", "shop.test:8080"));
        for address in ["127.0.0.1:8080", "10.0.0.7", "[::1]:8080", "[::1]", ""] {
            assert_eq!(target("/orders", address), "///orders", "{address}");
        }
    }
}

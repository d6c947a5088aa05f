//! Builds a rule: presets are named sets of visible defaults.

use std::{fmt, sync::atomic::AtomicBool, time::Duration};

use http::{HeaderName, Method};
use semel_core::{
    identity::{BadName, Namespace},
    observe::Seldom,
    policy::{Policy, PolicyBuilder, PolicyError},
};

use super::{Caps, Methods, MissingKey, RejectStatus, Rule};
use crate::{
    classify::{Classify, Outcomes},
    fingerprint::{FingerprintMode, Target},
    key::{self, ExtractKey},
    names::{IDEMPOTENCY_KEY, X_REQUEST_ID},
    principal::{Credentials, Identify},
    replay::ReplayHeaders,
    suspect::{Suspect, Suspects},
};

/// Whoever asks the same an hour later means it.
const LONGEST_SUSPECT: Duration = Duration::from_secs(3_600);

/// Builds a [`Rule`]; see [`Rule::key`].
///
/// ```
/// use std::time::Duration;
/// use semel_http::{Rule, principal};
/// let rule = Rule::key()
///     .payment()
///     .named("charge")
///     .principal(principal::trusted_header(http::HeaderName::from_static("x-user")))
///     .policy(|p| p.lease(Duration::from_secs(5)))
///     .build()?;
/// assert_eq!(rule.name(), "charge");
/// # Ok::<(), semel_http::RuleError>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct RuleBuilder {
    policy: PolicyBuilder,
    namespace: Result<Namespace, BadName>,
    key: Option<Box<dyn ExtractKey>>,
    principal: Option<Box<dyn Identify>>,
    credentials: Credentials,
    missing: MissingKey,
    methods: Methods,
    per_route: bool,
    fingerprint: FingerprintMode,
    target: Option<Box<dyn Target>>,
    classify: Option<Box<dyn Classify>>,
    outcomes: Outcomes,
    replay: ReplayHeaders,
    caps: Caps,
    retry_id: Vec<HeaderName>,
    /// For money.
    payment: bool,
    reject_status: RejectStatus,
    suspect: Option<(Suspect, Duration)>,
}

impl RuleBuilder {
    pub(super) fn new() -> Self {
        Self {
            policy: Policy::key(),
            namespace: Namespace::layer("default"),
            key: None,
            principal: None,
            credentials: Credentials::default(),
            missing: MissingKey::default(),
            methods: Methods::These(vec![Method::POST, Method::PATCH]),
            per_route: false,
            fingerprint: FingerprintMode::default(),
            target: None,
            classify: None,
            outcomes: Outcomes::strict(),
            replay: ReplayHeaders::default(),
            caps: Caps::default(),
            retry_id: vec![X_REQUEST_ID.clone()],
            payment: false,
            reject_status: RejectStatus::default(),
            suspect: None,
        }
    }

    /// For money: strict, kept 24 h, duplicates replayed, an unknown outcome never ends by itself. On a store that forgets
    /// when its process ends, the guard warns of it once.
    pub fn payment(mut self) -> Self {
        self.policy = self.policy.payment();
        self.outcomes = Outcomes::strict();
        self.missing = MissingKey::Required;
        self.payment = true;
        self
    }

    /// For calls between one's own services: strict, copies wait, kept 5 minutes.
    pub fn internal(mut self) -> Self {
        self.policy = self.policy.internal();
        self.outcomes = Outcomes::strict();
        self
    }

    /// For callbacks into handlers that commit in one transaction and are idempotent themselves: relaxed, 4xx and 5xx
    /// released, and an owner that died is taken over `settle_after` (the whole time a handler may take) its lease.
    pub fn callback(mut self, settle_after: Duration) -> Self {
        self.policy = self.policy.callback(settle_after);
        self.outcomes = Outcomes::relaxed().release_4xx();
        self
    }

    /// The rule's name: 1 to 64 printable ASCII characters.
    pub fn named(mut self, name: &str) -> Self {
        self.policy = self.policy.named(name);
        self
    }

    /// The service it guards, `orders` say: rules of one service share their keys, services on one store do not. Without
    /// it the service is called `default`.
    pub fn service(mut self, name: &str) -> Self {
        self.namespace = Namespace::layer(name);
        self
    }

    /// The namespace itself.
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = Ok(namespace);
        self
    }

    /// Changes the policy that the preset has set.
    pub fn policy(mut self, change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Self {
        self.policy = change(self.policy);
        self
    }

    /// Where the key is; `Idempotency-Key` unless said otherwise.
    pub fn source(mut self, key: impl ExtractKey) -> Self {
        self.key = Some(Box::new(key));
        self
    }

    /// Whose the key is. There is no default: see [`principal`](crate::principal) for the choices.
    pub fn principal(mut self, principal: impl Identify) -> Self {
        self.principal = Some(Box::new(principal));
        self
    }

    /// What tells callers apart where the scope is shared: `Authorization` and `Cookie` unless said otherwise.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = credentials;
        self
    }

    /// What becomes of a request without a key: refused unless said otherwise.
    pub const fn missing(mut self, missing: MissingKey) -> Self {
        self.missing = missing;
        self
    }

    /// The methods that need a key where `missing` says so: POST and PATCH unless said otherwise.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = Methods::These(methods.into_iter().collect());
        self
    }

    /// Every unsafe method needs a key where `missing` says so.
    pub fn every_method(mut self) -> Self {
        self.methods = Methods::Unsafe;
        self
    }

    /// Makes method and path part of the identity.
    pub const fn per_route(mut self) -> Self {
        self.per_route = true;
        self
    }

    /// What must be the same for a second copy to be the same question: every byte unless said otherwise.
    pub fn fingerprint(mut self, mode: FingerprintMode) -> Self {
        self.fingerprint = mode;
        self
    }

    /// Where the question was put, if a router in front changes the target.
    pub fn target(mut self, target: impl Target) -> Self {
        self.target = Some(Box::new(target));
        self
    }

    /// The outcome table, instead of the preset's.
    pub fn outcomes(mut self, outcomes: Outcomes) -> Self {
        self.outcomes = outcomes;
        self
    }

    /// Another way to judge answers, instead of a table.
    pub fn classify(mut self, classify: impl Classify) -> Self {
        self.classify = Some(Box::new(classify));
        self
    }

    /// Which header fields are recorded.
    pub fn replay(mut self, replay: ReplayHeaders) -> Self {
        self.replay = replay;
        self
    }

    /// How large bodies may be.
    pub const fn caps(mut self, caps: Caps) -> Self {
        self.caps = caps;
        self
    }

    /// Where a request id is read from under `on_duplicate = reject`: `X-Request-Id` unless said otherwise. The key's own
    /// header field would say nothing here, since it is the same in every duplicate.
    pub fn retry_id(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.retry_id = names.into_iter().collect();
        self
    }

    /// What a rejected duplicate is answered with: 409 unless said otherwise.
    pub const fn reject_status(mut self, status: RejectStatus) -> Self {
        self.reject_status = status;
        self
    }

    /// Looks for requests of one caller that are equal in all but the key and come within `window` of each other: what the
    /// fingerprint compares, in the memory of this process, for at most the last 57,344 requests of the rule. Callers who
    /// cannot be told apart (no principal, no credentials) are not compared. Not looked for unless said so: it costs a
    /// fresh key a digest that is kept, and a look.
    pub const fn suspect(mut self, what: Suspect, window: Duration) -> Self {
        self.suspect = Some((what, window));
        self
    }

    /// The rule.
    ///
    /// # Errors
    /// [`RuleError`] says what is missing or cannot be.
    pub fn build(self) -> Result<Rule, RuleError> {
        let suspects = match self.suspect {
            None => None,
            Some(_) if matches!(self.fingerprint, FingerprintMode::Route | FingerprintMode::None) => {
                return Err(RuleError::Suspect(
                    "this fingerprint leaves out the body, so that all requests of a caller to a route are equal",
                ));
            }
            Some((_, window)) if window.is_zero() || window > LONGEST_SUSPECT => {
                return Err(RuleError::Suspect("its window is not between a nanosecond and an hour"));
            }
            Some((what, window)) => Some(Suspects::new(what, window)),
        };
        Ok(Rule {
            principal: self.principal.ok_or(RuleError::NoPrincipal)?,
            policy: self.policy.build().map_err(RuleError::Policy)?,
            namespace: self.namespace.map_err(RuleError::Service)?,
            key: self.key.unwrap_or_else(|| Box::new(key::header([IDEMPOTENCY_KEY.clone()]))),
            credentials: self.credentials,
            missing: self.missing,
            methods: self.methods,
            per_route: self.per_route,
            fingerprint: self.fingerprint,
            target: self.target.unwrap_or_else(default_target),
            classify: self.classify.unwrap_or_else(|| Box::new(self.outcomes)),
            replay: self.replay,
            caps: self.caps,
            retry_id: self.retry_id,
            unwarned: AtomicBool::new(self.payment),
            reject_status: self.reject_status,
            suspects,
            nameless: Seldom::every(Duration::from_secs(60)),
            unread: Seldom::every(Duration::from_secs(60)),
        })
    }
}

#[cfg(feature = "axum")]
fn default_target() -> Box<dyn Target> {
    Box::new(crate::fingerprint::AxumOriginalUri)
}

#[cfg(not(feature = "axum"))]
fn default_target() -> Box<dyn Target> {
    Box::new(crate::fingerprint::RequestUri)
}

impl fmt::Debug for RuleBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleBuilder").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// A rule that cannot be.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// Nobody said whose the key is.
    NoPrincipal,
    /// The policy cannot be.
    Policy(PolicyError),
    /// The service's name cannot be.
    Service(BadName),
    /// Suspects cannot be looked for, for this reason.
    Suspect(&'static str),
}

/// The words of [`Display`](fmt::Display): a `main` that returns the error writes this form.
impl fmt::Debug for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPrincipal => f.write_str(
                "a key belongs to somebody: choose `.principal(…)` from `principal::trusted_header` (an \
                 authenticating proxy in front), `principal::api_key`, `principal::extension` (an authentication layer \
                 in front), or `principal::shared` (everybody; callers are told apart by their credentials)",
            ),
            Self::Policy(why) => why.fmt(f),
            Self::Service(why) => why.fmt(f),
            Self::Suspect(why) => write!(f, "suspect: {why}"),
        }
    }
}

impl std::error::Error for RuleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoPrincipal | Self::Suspect(_) => None,
            Self::Policy(why) => Some(why),
            Self::Service(why) => Some(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use semel_core::policy::NEVER;

    use super::*;
    use crate::principal;

    #[test]
    fn a_rule_without_a_principal_names_the_choices() {
        let why = Rule::key().build().unwrap_err();
        assert_eq!(why, RuleError::NoPrincipal);
        for choice in ["trusted_header", "api_key", "extension", "shared"] {
            assert!(why.to_string().contains(choice), "{choice}");
            assert!(format!("{why:?}").contains(choice), "{choice}: a `main` that returns it writes this");
        }
    }

    #[test]
    fn every_method_means_those_nobody_has_heard_of_as_well() {
        let methods = Rule::key().principal(principal::shared()).every_method().build().unwrap().methods;
        for method in ["POST", "PUT", "DELETE", "PURGE"] {
            assert!(methods.contains(&method.parse().unwrap()), "{method}");
        }
        for method in ["GET", "HEAD", "OPTIONS", "CONNECT"] {
            assert!(!methods.contains(&method.parse().unwrap()), "{method}");
        }
    }

    #[test]
    fn presets_are_sets_of_visible_defaults() {
        let build = |b: RuleBuilder| b.principal(principal::shared()).build().unwrap();
        assert_eq!(build(Rule::key().payment()).policy.unknown_ttl(), NEVER);
        assert_eq!(build(Rule::key().internal()).policy.ttl(), Duration::from_secs(300));
        let callback = build(Rule::key().callback(Duration::from_secs(60)));
        assert_eq!(callback.policy.takeover(), Some(Duration::from_secs(60)));
        assert_eq!(callback.classify.failed(), crate::Mark::Release);
        assert_eq!(build(Rule::key().named("x")).name(), "x");
    }

    #[test]
    fn what_cannot_be_is_an_error_with_its_reason() {
        let shared = || Rule::key().principal(principal::shared());
        assert!(matches!(shared().service("Orders!").build(), Err(RuleError::Service(_))));
        assert!(matches!(shared().policy(|p| p.max_attempts(0)).build(), Err(RuleError::Policy(_))));
        let suspect = |seconds| shared().suspect(Suspect::Count, Duration::from_secs(seconds));
        assert!(suspect(60).build().is_ok() && suspect(3_600).build().is_ok());
        for wrong in [
            suspect(0),
            suspect(3_601),
            suspect(60).fingerprint(FingerprintMode::Route),
            suspect(60).fingerprint(FingerprintMode::None),
        ] {
            assert!(matches!(wrong.build(), Err(RuleError::Suspect(_))));
        }
    }
}

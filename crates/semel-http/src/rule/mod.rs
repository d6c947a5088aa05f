//! What the guard does for a route.

mod builder;

use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

pub use builder::{RuleBuilder, RuleError};
use http::{HeaderName, Method};
use semel_core::{identity::Namespace, observe::Seldom, policy::Policy};

use crate::{
    classify::Classify,
    fingerprint::{FingerprintMode, Target},
    key::ExtractKey,
    principal::{Credentials, Identify},
    replay::ReplayHeaders,
    suspect::{Suspect, Suspects},
    view::RequestView,
};

/// What the guard does for a route; made by [`Rule::key`]. Its parts can be replaced afterwards.
#[non_exhaustive]
pub struct Rule {
    /// How long things last and what duplicates get; the rule's name is the policy's.
    pub policy: Arc<Policy>,
    /// Where its records belong: other services on the same store have others.
    pub namespace: Namespace,
    /// Where the key is.
    pub key: Box<dyn ExtractKey>,
    /// Whose it is.
    pub principal: Box<dyn Identify>,
    /// What tells callers apart where the scope is shared.
    pub credentials: Credentials,
    /// What becomes of a request without a key.
    pub missing: MissingKey,
    /// The methods to which `missing` applies. A key is honoured on every unsafe method; without one the others pass.
    pub methods: Methods,
    /// Whether method and path are part of the identity: the same key on another route is then another intent, where
    /// otherwise it is refused as reused.
    pub per_route: bool,
    /// What must be the same for a second copy to be the same question.
    pub fingerprint: FingerprintMode,
    /// Where the question was put.
    pub target: Box<dyn Target>,
    /// What an answer means.
    pub classify: Box<dyn Classify>,
    /// Which header fields are recorded.
    pub replay: ReplayHeaders,
    /// How large bodies may be.
    pub caps: Caps,
    /// Where a request id is read from, first hit wins: under `on_duplicate = reject` a repeat with the same one comes
    /// from the network, not from a second click, and gets the answer.
    pub retry_id: Vec<HeaderName>,
    /// Set until it was told, where it is so, that a rule for money is on a store that forgets.
    pub(crate) unwarned: AtomicBool,
    /// What a rejected duplicate is answered with.
    pub reject_status: RejectStatus,
    /// What its requests asked lately, where it looks for equal ones under different keys.
    pub(crate) suspects: Option<Suspects>,
    /// Keeps lines about requests without a principal from filling the log.
    pub(crate) nameless: Seldom,
    /// The same for answers whose `Semel-Outcome` is no word of ours.
    pub(crate) unread: Seldom,
}

impl Rule {
    /// A rule for the client's own key.
    pub fn key() -> RuleBuilder {
        RuleBuilder::new()
    }

    /// The rule's name, as metrics and records carry it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.policy.name()
    }

    /// What becomes of requests that are equal in all but the key, and within which time, where that is looked for.
    #[must_use]
    pub fn suspect(&self) -> Option<(Suspect, Duration)> {
        self.suspects.as_ref().map(|suspects| (suspects.what, suspects.window))
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("policy", &self.policy).field("key", &self.key).finish_non_exhaustive()
    }
}

/// The methods that need a key where a rule requires one.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Methods {
    /// Every method that may have an effect, those that nobody has heard of included.
    Unsafe,
    /// These.
    These(Vec<Method>),
}

impl Methods {
    /// Whether a request with this method needs a key.
    #[must_use]
    pub fn contains(&self, method: &Method) -> bool {
        match self {
            Self::Unsafe => !method.is_safe() && *method != Method::CONNECT,
            Self::These(methods) => methods.contains(method),
        }
    }
}

/// What becomes of a request without a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum MissingKey {
    /// 400 `key-missing`.
    #[default]
    Required,
    /// It passes without a guard, marked `bypassed`.
    Optional,
}

/// The status of a rejected duplicate; the problem is `duplicate` in both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum RejectStatus {
    /// 409, without `Retry-After`: no client repeats it by itself.
    #[default]
    Conflict,
    /// 429, with the rest of the window as `Retry-After`. Many clients repeat a 429 by themselves, and after the window
    /// that is a new run: for those who are meant to.
    TooManyRequests,
}

/// How large bodies may be, in bytes. Both are held in memory while a request is guarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// A request's body (8 MiB). A longer one is refused with 413, never passed unguarded.
    pub request: usize,
    /// A recorded answer's body (8 MiB). A longer one is passed on and recorded without its body: duplicates are told
    /// that it is done, and it never runs again.
    pub response: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self { request: 8 << 20, response: 8 << 20 }
    }
}

/// Finds the rule for a request: the first that matches, in the order of a file. Object safe.
pub trait Rules: Send + Sync + 'static {
    /// The rule; `None` lets the request pass without a guard.
    fn find(&self, request: &RequestView<'_>) -> Option<Arc<Rule>>;

    /// Asked of a request that is about to pass without a guard: the rule that would not let it pass, were its path read
    /// in another way ([`path::readings`](crate::path::readings)). Such a request is refused: the service behind may read
    /// it so. None unless said otherwise.
    fn otherwise(&self, request: &RequestView<'_>) -> Option<Arc<Rule>> {
        let _ = request;
        None
    }
}

impl<F: Fn(&RequestView<'_>) -> Option<Arc<Rule>> + Send + Sync + 'static> Rules for F {
    fn find(&self, request: &RequestView<'_>) -> Option<Arc<Rule>> {
        self(request)
    }
}

//! From a request's head to a pass, a refusal, or a ticket for the guarded way.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response};
use semel_core::{
    engine::Engine,
    identity::{Display, Identity, Key, Kind, Purpose, ScopeTag},
    judge::Caller,
    observe::{Event, What},
    policy::OnDuplicate,
};

use super::{
    RuleSet, Shared,
    early::Ahead,
    seen::{Seen, is_ours},
};
use crate::{
    names::{IDEMPOTENCY_KEY, Status},
    path,
    principal::PrincipalError,
    problem::{Asker, Problem, ProblemKind},
    rule::{MissingKey, Rule},
    view::RequestView,
};

/// What becomes of a request.
pub(super) enum Admitted {
    /// It streams through untouched.
    Passes(Option<Status>),
    /// It is answered here.
    Refused(Box<Response<Bytes>>),
    /// It is guarded.
    Guarded(Arc<Ticket>, Claimant),
}

/// A guarded request, for those who run it and those who answer it.
pub(super) struct Ticket {
    pub(super) shared: Arc<Shared>,
    pub(super) rule: Arc<Rule>,
    pub(super) identity: Identity,
    pub(super) asker: Asker,
    pub(super) ahead: Ahead,
}

/// Who claims: what the engine is told beside the identity.
pub(super) struct Claimant {
    pub(super) scope: ScopeTag,
    pub(super) caller: Caller,
    /// The key as people may see it.
    pub(super) shown: String,
    /// The request offers to upgrade.
    pub(super) upgrade: bool,
}

/// Removes what only the guard may say.
#[cold]
pub(super) fn strip(headers: &mut HeaderMap) {
    let ours: Vec<_> = headers.keys().filter(|name| is_ours(name.as_str())).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

/// `least` is the least length of the body, as far as it is known.
pub(super) fn admit(shared: &Arc<Shared>, request: &RequestView<'_>, seen: Seen, least: u64) -> Admitted {
    // An upgrade is a safe method or CONNECT. A mere offer to upgrade, on a POST say, is no way around the guard.
    if request.method.is_safe() || *request.method == Method::CONNECT {
        return Admitted::Passes(None);
    }
    let rule = match &shared.rules {
        RuleSet::One(rule) => Arc::clone(rule),
        RuleSet::Many(rules) => match rules.find(request) {
            Some(rule) => {
                shared.look_at(&rule);
                rule
            }
            // A key that nobody keeps is told so.
            None => {
                let has_key = request.headers.contains_key(&IDEMPOTENCY_KEY);
                return passes(shared, request, has_key.then_some(Status::Bypassed));
            }
        },
    };
    let text = match rule.key.extract(request) {
        Ok(Some(text)) => text,
        Ok(None) if rule.missing == MissingKey::Required && rule.methods.contains(request.method) => {
            return refused(shared, &rule, request, &Problem::new(ProblemKind::KeyMissing));
        }
        Ok(None) => return passes(shared, request, Some(Status::Bypassed)),
        Err(why) => {
            let problem = Problem::new(ProblemKind::KeyInvalid).detail(sentence(&why));
            return refused(shared, &rule, request, &problem);
        }
    };
    let secret = shared.engine.secret();
    let scope = match rule.principal.scope(request, secret) {
        Ok(scope) => scope,
        Err(why) => {
            nameless(shared, &rule, why);
            return refused(shared, &rule, request, &Problem::new(ProblemKind::PrincipalMissing));
        }
    };
    if least > rule.caps.request as u64 {
        return refused(shared, &rule, request, &Problem::new(ProblemKind::RequestTooLarge));
    }
    if shared.bodies.requests.is_too_full_for(least) {
        return refused(shared, &rule, request, &of_body(ProblemKind::TooManyBodies));
    }
    let key = if rule.per_route {
        let target = rule.target.target(request);
        let path = target.split('?').next().unwrap_or_default();
        let (before, path) = path.split_at_checked(rule.target.path_at(&target)).unwrap_or(("", path));
        let capitals = in_capitals(request.method);
        let method = capitals.as_ref().unwrap_or(request.method).as_str();
        // One identity for the spellings of both: what tells them apart is the fingerprint, and then it is 422.
        Key::new(&(&*text, method, before, path::canonical(path)), Display::Masked)
    } else {
        Key::new(&*text, Display::Masked)
    };
    let caller = Caller {
        credentials: match scope.is_verified() || (rule.credentials.are_usual() && !seen.credentials) {
            true => None,
            false => rule.credentials.digest(secret, request.headers),
        },
        request: request_id(shared, &rule, request.headers),
    };
    let ticket = Ticket {
        shared: Arc::clone(shared),
        identity: Identity::new(secret, Kind::Key, rule.namespace, &scope, &key),
        asker: if seen.asker { Asker::of(request.headers) } else { Asker::default() },
        ahead: Ahead::default(),
        rule,
    };
    Admitted::Guarded(
        Arc::new(ticket),
        Claimant { scope: scope.tag(), caller, shown: key.into_shown(), upgrade: seen.upgrade },
    )
}

/// Why a body was not taken. Others may be through in a moment.
pub(super) fn of_body(kind: ProblemKind) -> Problem {
    let problem = Problem::new(kind);
    if kind == ProblemKind::TooManyBodies { problem.retry_after(Duration::from_secs(1)) } else { problem }
}

/// A request with an effect that no rule guards passes only where that is so however its path and its method are read.
fn passes(shared: &Shared, request: &RequestView<'_>, status: Option<Status>) -> Admitted {
    let bad = |rule: &Rule, detail: &'static str| {
        refused(shared, rule, request, &Problem::new(ProblemKind::BadRequest).detail(detail))
    };
    if let RuleSet::Many(rules) = &shared.rules
        && let Some(rule) = rules.otherwise(request)
    {
        return bad(&rule, SPELLED);
    }
    if let Some(method) = in_capitals(request.method)
        && let Some(rule) = stopping(shared, &RequestView { method: &method, ..*request })
    {
        return bad(&rule, SMALL);
    }
    Admitted::Passes(status)
}

/// The rule that would guard a request, or refuse it.
#[cold]
fn stopping(shared: &Shared, request: &RequestView<'_>) -> Option<Arc<Rule>> {
    if request.method.is_safe() || *request.method == Method::CONNECT {
        return None;
    }
    let stops = |rule: &Arc<Rule>| {
        let wants_key = rule.missing == MissingKey::Required && rule.methods.contains(request.method);
        wants_key || !matches!(rule.key.extract(request), Ok(None))
    };
    match &shared.rules {
        RuleSet::One(rule) => Some(Arc::clone(rule)).filter(stops),
        RuleSet::Many(rules) => rules.find(request).filter(stops).or_else(|| rules.otherwise(request)),
    }
}

/// The method as some frameworks read it, where that is another one: methods are told apart by case.
fn in_capitals(method: &Method) -> Option<Method> {
    let text = method.as_str();
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return None;
    }
    Method::from_bytes(text.to_ascii_uppercase().as_bytes()).ok()
}

const SMALL: &str = "This method can be read as the one that is written in capitals, which is guarded; nothing was run. Send \
                     the method in capitals.";

const SPELLED: &str = "This path can be read as another one, which is guarded; nothing was run. Send the path exactly as \
                       the service publishes it.";

/// Only a rule that rejects duplicates has to tell a network's retry from a second click.
fn request_id(shared: &Shared, rule: &Rule, headers: &HeaderMap) -> Option<[u8; 16]> {
    if rule.policy.on_duplicate() != OnDuplicate::Reject {
        return None;
    }
    let name = rule.retry_id.iter().find(|name| headers.contains_key(*name))?;
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    Some(shared.engine.secret().digest(Purpose::RequestId, &lines).short())
}

/// Tells the observers of a request that is refused before it has an identity.
pub(super) fn turned_away(engine: &Engine, rule: &Rule, kind: ProblemKind) {
    engine.tell(&Event::new(&Identity::nobody(), rule.name(), What::TurnedAway(kind.name())));
}

/// Says what whoever stands in front of the guard has left out; once in a while, since every request may lack it.
#[cold]
fn nameless(shared: &Shared, rule: &Rule, why: PrincipalError) {
    let Some(withheld) = rule.nameless.next(shared.engine.env().clock.now()) else { return };
    let rule_name = rule.name();
    match rule.principal.header() {
        Some(header) => tracing::warn!(
            rule = rule_name,
            withheld,
            "{why}: the proxy in front must set {header} once on each request; refused with 403"
        ),
        None => tracing::warn!(
            rule = rule_name,
            withheld,
            "{why}: authentication must run before the guard and leave it; refused with 403"
        ),
    }
}

fn refused(shared: &Shared, rule: &Rule, request: &RequestView<'_>, problem: &Problem) -> Admitted {
    turned_away(&shared.engine, rule, problem.kind());
    Admitted::Refused(Box::new(problem.answer(&Asker::of(request.headers))))
}

/// `the key is empty` → `The key is empty.`
fn sentence(why: &dyn std::fmt::Display) -> String {
    let mut text = why.to_string();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text.push('.');
    text
}

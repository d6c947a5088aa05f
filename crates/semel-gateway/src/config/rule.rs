//! `[[rule]]`: what the gateway does for a route.

use std::sync::Arc;

use http::Method;
use semel_http::path;

use super::constraint;
use super::policy::{Layer, Policy};
use super::policy_types::{Attempts, Keep, Missing};
use super::preset::{Named, Preset, mode_key};
use super::problem::Problem;
use super::read::{Fault, Node, Read, Report, Section, text};
use super::route::{Match, Methods, PathPattern, Route, is_unsafe};
use super::server::Limits;
use super::setting::{Origin, Setting};
use super::upstream::{Upstream, WHOLE, no_such_upstream};
use super::words::words;

words! {
    /// Where a rule's identities come from.
    Mode {
        /// A key that the client sends.
        Key = "key",
        /// Nowhere: the route passes unguarded, whatever the client sends.
        Off = "off",
    }
}

struct NamedMode(Mode);

impl Read for NamedMode {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let later = |mode: &str, part: &str| {
            Err(Fault::new(format!("= \"{mode}\" is not in this version"))
                .why(format!("it comes with {part}"))
                .fix("mode = \"key\" guards requests that carry the client's key; mode = \"off\" lets a route pass"))
        };
        match text(node, "a word", "put it between quotes")? {
            "token" => later("token", "one-time tokens"),
            "expression" => later("expression", "expressions over the request"),
            "digest" => later("digest", "windows over the request's digest"),
            "shadow" => Err(Fault::new("= \"shadow\" is no mode").fix("mode = \"key\" and shadow = true")),
            word => Mode::from_word(word).map(Self),
        }
    }
}

/// One rule, validated, every setting in force.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name: in metrics, logs and messages. Letters, digits, `.`, `_`, `-`.
    pub name: Arc<str>,
    /// Where it was said.
    pub origin: Origin,
    /// Where identities come from.
    pub mode: Setting<Mode>,
    /// The preset in force, the rule's own or that of `[defaults]`.
    pub preset: Option<Setting<Preset>>,
    /// The requests it is about.
    pub route: Route,
    /// Where they go: an index into the configuration's upstreams.
    pub upstream: usize,
    /// What happens to them.
    pub policy: Policy,
    /// Settings written in the rule itself, for the rules of `semel check`.
    pub(super) own: Vec<(&'static str, Origin)>,
}

/// `[defaults]`, read once and laid under every rule.
pub(super) struct Defaults {
    pub(super) upstream: Option<Setting<String>>,
    preset: Option<Setting<Preset>>,
    layer: Layer,
}

impl Defaults {
    pub(super) fn read(mut section: Section<'_>, report: &mut Report) -> Self {
        let defaults = Self {
            upstream: section.read("upstream", report),
            preset: read_preset(&mut section, report),
            layer: Layer::read(&mut section, report),
        };
        refuse_later(&mut section, report);
        section.finish(report);
        defaults
    }

    /// Everything that stands under a rule's own words, the nearer over the farther.
    fn under(&self, preset: Option<Preset>) -> Layer {
        let layer = |preset: Option<Preset>| preset.map(Preset::layer).unwrap_or_default();
        layer(preset).over(self.layer.clone()).over(layer(self.preset.map(|p| p.value)))
    }
}

fn read_preset(section: &mut Section<'_>, report: &mut Report) -> Option<Setting<Preset>> {
    section.read::<Named>("preset", report).map(|s| Setting { value: s.value.0, origin: s.origin })
}

/// Settings of later versions: refused, never accepted and ignored.
fn refuse_later(section: &mut Section<'_>, report: &mut Report) {
    let alone = "leave it out";
    for (key, why) in [
        ("window", "it belongs to the modes digest and expression"),
        ("period", "it belongs to the mode expression"),
        ("probe", "unknown outcomes are settled by hand or by their time in this version"),
        ("encrypt", "stored answers are not encrypted in this version"),
        ("shadow", "rules are enforced, or off, in this version"),
    ] {
        section.refuse(key, why, alone, report);
    }
}

impl Rule {
    /// `None` where it has no usable name, route or upstream (reported).
    pub(super) fn read(mut section: Section<'_>, shared: &Shared<'_>, report: &mut Report) -> Option<Self> {
        let at = section.origin();
        let name = read_name(&mut section, report);
        let mode = section
            .read::<NamedMode>("mode", report)
            .map_or_else(|| Setting::default(Mode::Key), |s| Setting { value: s.value.0, origin: s.origin });
        let route = read_route(&mut section, report);
        let upstream = match section.read::<String>("upstream", report) {
            None => Some(0),
            Some(wanted) => {
                let found = shared.upstreams.iter().position(|u| *u.name == *wanted.value);
                if found.is_none() && shared.upstreams_hold {
                    let names: Vec<String> = shared.upstreams.iter().map(|u| u.name.to_string()).collect();
                    report.push(no_such_upstream("rule.upstream", &wanted, &names));
                }
                found
            }
        };
        let preset = read_preset(&mut section, report);
        let layer = Layer::read(&mut section, report);
        refuse_later(&mut section, report);
        section.finish(report);

        let own = layer.written();
        // Without a usable upstream the rule is lost, but its own mistakes are told all the same.
        let whole = upstream.and_then(|u| shared.upstreams.get(u)).map_or(Setting::default(WHOLE), |u| u.whole);
        let under = shared.defaults.under(preset.map(|p| p.value));
        let mut policy = layer.over(under).resolve(mode_key(*whole, shared.limits));
        derive(&mut policy);
        let preset = preset.or(shared.defaults.preset);
        if mode.value == Mode::Key {
            let label = name.as_deref().map_or_else(|| "this rule".to_owned(), |name| format!("rule `{name}`"));
            constraint::check(&label, at, &policy, &whole, report);
        }
        Some(Self { name: name?, origin: at, mode, preset, route: route?, upstream: upstream?, policy, own })
    }

    /// The rule of a gateway without rules: any unsafe method that carries a key is guarded, everything else passes.
    pub(super) fn zero_config(shared: &Shared<'_>, report: &mut Report) -> Option<Self> {
        let whole = shared.upstreams.first()?.whole;
        let mut built_in = mode_key(*whole, shared.limits);
        built_in.missing = Setting::default(Missing::Optional);
        let mut policy = shared.defaults.under(None).resolve(built_in);
        derive(&mut policy);
        let preset = shared.defaults.preset;
        constraint::check("rule `default`", Origin::Default, &policy, &whole, report);
        Some(Self {
            name: "default".into(),
            origin: Origin::Default,
            mode: Setting::default(Mode::Key),
            preset,
            route: Route { methods: Methods::AllUnsafe, host: None, path: PathPattern::all() },
            upstream: 0,
            policy,
            own: Vec::new(),
        })
    }
}

/// What every rule is read against.
pub(super) struct Shared<'a> {
    pub(super) defaults: &'a Defaults,
    pub(super) limits: &'a Limits,
    pub(super) upstreams: &'a [Upstream],
    /// Whether every upstream of the file was usable: otherwise a missing name may be one that was reported already.
    pub(super) upstreams_hold: bool,
}

fn read_name(section: &mut Section<'_>, report: &mut Report) -> Option<Arc<str>> {
    let before = report.problems.len();
    let Some(name) = section.read::<String>("name", report) else {
        if report.problems.len() == before {
            report.push(
                Problem::error(section.origin(), "a rule without a name")
                    .why("metrics, logs and messages speak of it by its name")
                    .fix("name = \"submit-order\""),
            );
        }
        return None;
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if name.len() > 64 || !name.bytes().all(plain) {
        report.push(
            Problem::error(name.origin, format!("`rule.name` is no name: `{}`", name.value))
                .fix("letters, digits, dots, dashes and underscores, at most 64"),
        );
        return None;
    }
    Some(name.value.into())
}

fn read_route(section: &mut Section<'_>, report: &mut Report) -> Option<Route> {
    let before = report.problems.len();
    let matched = section.read::<Match>("match", report);
    let methods = section.read::<Methods>("methods", report);
    let host = section.read("host", report);
    let Some(matched) = matched else {
        if report.problems.len() == before {
            report.push(Problem::error(section.origin(), "a rule without `match`").fix("match = \"POST /orders\""));
        }
        return None;
    };
    let Match { methods: inline, path } = matched.value;
    let methods = match (inline, methods) {
        (Some(_), Some(list)) => {
            report.push(
                Problem::error(list.origin, "methods stand in `match` and in `methods`")
                    .fix("keep one: match = \"/orders\" with methods = [\"POST\", \"PUT\"]"),
            );
            list.value
        }
        (Some(one), None) => one,
        (None, Some(list)) => list.value,
        (None, None) => Methods::built_in(),
    };
    (report.problems.len() == before).then_some(Route { methods, host: host.map(|h| h.value), path })
}

/// Values that follow from others where nobody named them.
fn derive(policy: &mut Policy) {
    if let Origin::Derived(_) = policy.unknown_ttl.origin {
        policy.unknown_ttl.value = Keep::For(*policy.ttl);
    }
    if *policy.takeover && policy.max_attempts.origin == Origin::Default {
        policy.max_attempts = Setting::derived("ten under takeover", Attempts::Most(10));
    }
}

/// The rules, compiled: tried in order, the first match wins.
#[derive(Clone, Debug)]
pub struct Rules {
    list: Vec<Rule>,
    from_file: bool,
    by_host: bool,
    /// Whether it matters how a path is read.
    misreadable: bool,
}

/// What the rule of a request depends on.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The method.
    pub method: &'a Method,
    /// The host, where a rule is for one.
    pub host: Option<&'a str>,
    /// The path as it came.
    pub path: &'a str,
}

/// The rule of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its place among the rules.
    pub index: usize,
    /// Whether the rule names the method. Where it does not, the request is guarded only if it carries a key; without one it passes.
    pub named: bool,
}

impl Rules {
    pub(super) fn new(list: Vec<Rule>, from_file: bool) -> Self {
        let by_host = list.iter().any(|rule| rule.route.host.is_some());
        // One rule for all that may have an effect, as without a file: then nothing depends on the path.
        let misreadable = !matches!(&*list, [rule] if rule.route.is_everything());
        Self { list, from_file, by_host, misreadable }
    }

    /// Whether a file named them; otherwise there is the built-in one for every request with a key.
    pub fn from_file(&self) -> bool {
        self.from_file
    }

    /// Whether a rule is for one host; otherwise nobody has to find out a request's.
    pub fn by_host(&self) -> bool {
        self.by_host
    }

    /// The rules in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.list.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The rule at an index that [`Rules::find`] gave.
    pub fn get(&self, index: usize) -> Option<&Rule> {
        self.list.get(index)
    }

    /// The first rule that names method, host and path; else the first for host and path, good for a request that carries a key.
    /// Safe methods and CONNECT have none. Allocates nothing; costs one comparison of segments per rule tried.
    pub fn find(&self, method: &Method, host: Option<&str>, path: &str) -> Option<Found> {
        self.first(method, |route| route.is_at(host, path))
    }

    fn first(&self, method: &Method, is_at: impl Fn(&Route) -> bool) -> Option<Found> {
        if !is_unsafe(method) {
            return None;
        }
        let mut by_key = None;
        for (index, rule) in self.list.iter().enumerate() {
            if !is_at(&rule.route) {
                continue;
            }
            if rule.route.methods.contains(method) {
                return Some(Found { index, named: true });
            }
            if by_key.is_none() && rule.mode.value == Mode::Key {
                by_key = Some(Found { index, named: false });
            }
        }
        by_key
    }

    /// For a request that the rule of its path lets pass, or that has none: the place of the rule that would not let it pass,
    /// were the path read in another way. `has_key` tells whether it carries a rule's key. Where no rule is about the path as
    /// it came, other case and a slash at the end count as other ways, too: where a service tells those apart, each has a rule.
    pub fn otherwise(&self, asked: &Asked<'_>, has_key: impl Fn(&Rule) -> bool) -> Option<usize> {
        let Asked { method, host, path } = *asked;
        if !self.misreadable || !is_unsafe(method) {
            return None;
        }
        let stops = |found: Found| {
            let rule = self.list.get(found.index).filter(|rule| rule.mode.value == Mode::Key)?;
            let wants_key = *rule.policy.missing == Missing::Required && found.named;
            (wants_key || has_key(rule)).then_some(found.index)
        };
        let Some(readings) = path::readings(path) else {
            // Nobody can say which one it is.
            return self
                .list
                .iter()
                .enumerate()
                .filter(|(_, rule)| rule.route.is_on(host))
                .find_map(|(index, rule)| stops(Found { index, named: rule.route.methods.contains(method) }));
        };
        let exact = |reading: &[u8]| self.first(method, |route| route.path.matches(reading) && route.is_on(host));
        if let Some(index) = readings.iter().find_map(|reading| stops(exact(reading)?)) {
            return Some(index);
        }
        if self.list.iter().any(|rule| rule.route.is_at(host, path)) {
            return None;
        }
        let near = |reading: &[u8]| self.first(method, |route| route.path.is_near(reading) && route.is_on(host));
        let mut all = std::iter::once(path.as_bytes()).chain(readings.iter().map(Vec::as_slice));
        all.find_map(|reading| stops(near(reading)?))
    }

    /// The upstream of a request, an index into the configuration's: that of its rule; for a method that no rule is about, a safe one
    /// say, that of the first rule for its host and path; else the default. Allocates nothing.
    pub fn upstream(&self, method: &Method, host: Option<&str>, path: &str) -> usize {
        let found = self.find(method, host, path).and_then(|found| self.list.get(found.index));
        found.or_else(|| self.list.iter().find(|rule| rule.route.is_at(host, path))).map_or(0, |rule| rule.upstream)
    }
}

impl<'a> IntoIterator for &'a Rules {
    type Item = &'a Rule;
    type IntoIter = std::slice::Iter<'a, Rule>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

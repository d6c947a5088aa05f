//! The services behind the gateway.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::Authority;
use toml::de::DeValue;

use super::flags::Flags;
use super::problem::Problem;
use super::read::{Fault, Node, Read, Report, Section, one_or_many, text};
use super::setting::{Origin, Setting};
use super::units::show_duration;

/// The time-out of a whole exchange where nobody names one.
pub(super) const WHOLE: Duration = Duration::from_mins(1);

/// `[upstream.NAME]`: one service.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Its name in the file; `upstream` where only a flag names it.
    pub name: Arc<str>,
    /// Where it is.
    pub url: Setting<Url>,
    /// Longest time to open a connection. 1 s.
    pub connect: Setting<Duration>,
    /// Longest time from the end of the request to the first byte of the answer. 15 s.
    pub first_byte: Setting<Duration>,
    /// Longest time for the whole exchange of a guarded request; always finite, since the work goes on when its client leaves.
    /// Other requests have no such end: a long download goes on while it moves. 60 s.
    pub whole: Setting<Duration>,
    /// Longest silence inside an answer's body. 60 s.
    pub silence: Setting<Duration>,
    /// A guarded request takes a pooled connection only if it was idle for less. 1 s.
    pub reuse_idle: Setting<Duration>,
    /// A connection idle for longer is closed: keep it under the upstream's own keep-alive time-out. 4 s.
    pub idle: Setting<Duration>,
    /// Idle connections kept, per core. 256.
    pub max_idle: Setting<u32>,
}

/// An upstream's address: `http://HOST[:PORT]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    authority: Authority,
}

impl Url {
    /// Host and port as the file has them: what goes into `Host` when the client's is not passed on.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The host without port; an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// The port, 80 where none is written.
    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(80)
    }

    /// Stands for an address that was refused, so that the rest of its table is checked.
    fn placeholder() -> Self {
        Self { authority: Authority::from_static("invalid") }
    }

    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let fix = "write it like \"http://127.0.0.1:3000\"";
        let uri: Uri = text.parse().map_err(|_| Fault::new(format!("is no URL: `{text}`")).fix(fix))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(Fault::new(format!("wants TLS: `{text}`"))
                    .why("TLS to upstreams is not in this version")
                    .fix("use http:// on a trusted network, or a local proxy that adds TLS"));
            }
            Some(other) => return Err(Fault::new(format!("has the unknown scheme `{other}`")).fix(fix)),
            None => return Err(Fault::new(format!("has no scheme: `{text}`")).fix(fix)),
        }
        let Some(authority) = uri.authority().filter(|a| !a.host().is_empty()).cloned() else {
            return Err(Fault::new(format!("names no host: `{text}`")).fix(fix));
        };
        if authority.as_str().contains('@') {
            return Err(Fault::new("carries a user name")
                .why("it would end in logs and messages")
                .fix("send credentials from the client, or add them in the service"));
        }
        let port = authority.as_str()[authority.host().len()..].strip_prefix(':');
        if port.is_some() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(Fault::new(format!("has no usable port: `{text}`")).fix(fix));
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(Fault::new(format!("has a path: `{text}`"))
                .why("the gateway passes every path on as the client wrote it")
                .fix(format!("\"http://{authority}\"")));
        }
        Ok(Self { authority })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

impl Read for Url {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        Self::parse(text(node, "a URL", "write it like \"http://127.0.0.1:3000\"")?)
    }
}

/// `urls`: a list, of which this version takes one.
struct One(Url);

impl Read for One {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        if let DeValue::Array(items) = node.get_ref()
            && items.len() > 1
        {
            return Err(Fault::new(format!("names {} addresses", items.len()))
                .why("balancing over several addresses, with health checks, is not in this version")
                .fix("name one here, and put a balancer behind it"));
        }
        match <[Url; 1]>::try_from(one_or_many::<Url>(node)?) {
            Ok([url]) => Ok(Self(url)),
            Err(_) => Err(Fault::new("is empty").fix("urls = [\"http://127.0.0.1:3000\"]")),
        }
    }
}

impl Upstream {
    fn built_in(name: &str, url: Setting<Url>) -> Self {
        Self {
            name: name.into(),
            url,
            connect: Setting::default(Duration::from_secs(1)),
            first_byte: Setting::default(Duration::from_secs(15)),
            whole: Setting::default(WHOLE),
            silence: Setting::default(Duration::from_mins(1)),
            reuse_idle: Setting::default(Duration::from_secs(1)),
            idle: Setting::default(Duration::from_secs(4)),
            max_idle: Setting::default(256),
        }
    }

    /// `None` where it has no usable address (reported); `flag` stands for the address where one was given.
    fn read(name: &str, mut section: Section<'_>, flag: Option<Setting<Url>>, report: &mut Report) -> Option<Self> {
        let before = report.problems.len();
        let written = section.read::<One>("urls", report).map(|s| Setting { value: s.value.0, origin: s.origin });
        if written.is_none() && flag.is_none() && report.problems.len() == before {
            let what = format!("`upstream.{name}` has no address");
            report.push(Problem::error(section.origin(), what).fix("urls = [\"http://127.0.0.1:3000\"]"));
        }
        let mut timeout = section.section("timeout", report);
        // A placeholder keeps the other settings checked when the address is wrong.
        let url = flag.or(written);
        let placeholder = Setting::default(Url::placeholder());
        let built_in = Self::built_in(name, url.clone().unwrap_or(placeholder));
        let upstream = Self {
            connect: timeout.read_or("connect", *built_in.connect, report),
            first_byte: timeout.read("first_byte", report).unwrap_or(built_in.first_byte),
            whole: timeout.read("whole", report).unwrap_or(built_in.whole),
            silence: timeout.read("silence", report).unwrap_or(built_in.silence),
            reuse_idle: section.read("reuse_idle", report).unwrap_or(built_in.reuse_idle),
            idle: section.read("idle", report).unwrap_or(built_in.idle),
            max_idle: section.read("max_idle", report).unwrap_or(built_in.max_idle),
            name: built_in.name,
            url: built_in.url,
        };
        timeout.finish(report);
        section.finish(report);
        upstream.check(report);
        url.map(|_| upstream)
    }

    fn check(&self, report: &mut Report) {
        let whole = *self.whole;
        for (key, part) in [("connect", self.connect), ("first_byte", self.first_byte)] {
            if *part > whole {
                let origin = if part.origin.is_explicit() { part.origin } else { self.whole.origin };
                let what = format!(
                    "`upstream.{}.timeout.{key}` ({}) is longer than `whole` ({})",
                    self.name,
                    show_duration(*part),
                    show_duration(whole)
                );
                let why = "the whole exchange would end first: this time-out could never strike";
                report.push(Problem::error(origin, what).why(why).fix("raise `whole`, or lower this one"));
            }
        }
        if self.reuse_idle.origin.is_explicit() && *self.reuse_idle > *self.idle {
            let what =
                format!("`upstream.{}.reuse_idle` is longer than `idle` ({})", self.name, show_duration(*self.idle));
            let why = "a connection idle for longer than `idle` is closed before it could be reused";
            report.push(Problem::error(self.reuse_idle.origin, what).why(why).fix("lower it, or raise `idle`"));
        }
    }
}

/// All upstreams; the first is where traffic goes that no rule sends elsewhere.
pub(super) fn read_all(
    root: &mut Section<'_>,
    default: Option<&Setting<String>>,
    flags: &Flags,
    report: &mut Report,
) -> Vec<Upstream> {
    let flag = flags.upstream.as_deref().map(Url::parse);
    let flag = match flag {
        Some(Ok(value)) => Some(Setting { value, origin: Origin::Flag("--upstream") }),
        Some(Err(fault)) => {
            report.push(fault.of_flag("--upstream"));
            // The file's tables are read all the same: what is wrong there is told as well, and nothing else is.
            Some(Setting { value: Url::placeholder(), origin: Origin::Flag("--upstream") })
        }
        None => None,
    };
    let before = report.problems.len();
    let tables = root.named("upstream", report);
    let names: Vec<String> = tables.iter().map(|(name, _)| name.clone()).collect();
    let first = match (default, names.as_slice()) {
        (Some(wanted), _) => {
            if !names.contains(&wanted.value) {
                report.push(no_such_upstream("defaults.upstream", wanted, &names));
            }
            Some(wanted.value.clone())
        }
        (None, [only]) => Some(only.clone()),
        (None, [_, second, ..]) => {
            let origin = tables.iter().find(|(name, _)| name == second).map_or(Origin::Default, |(_, s)| s.origin());
            report.push(
                Problem::error(origin, format!("{} upstreams, and none is the default", names.len()))
                    .why("a request that no rule matches must go somewhere")
                    .fix(format!("under [defaults]: upstream = \"{}\"", names[0])),
            );
            None
        }
        (None, []) => None,
    };
    let mut upstreams = Vec::new();
    for (name, section) in tables {
        let flag = flag.clone().filter(|_| first.as_deref() == Some(name.as_str()));
        upstreams.extend(Upstream::read(&name, section, flag, report));
    }
    upstreams.sort_by_key(|u| first.as_deref() != Some(&*u.name));
    match flag {
        Some(url) if upstreams.is_empty() && report.problems.len() == before => {
            upstreams.push(Upstream::built_in("upstream", url));
        }
        None if upstreams.is_empty() && report.problems.len() == before => report.push(
            Problem::error(Origin::Default, "no upstream: there is nothing to put the gateway in front of").fix(
                "semel gateway --upstream http://127.0.0.1:3000, or [upstream.NAME] with urls = [\"…\"] in the file",
            ),
        ),
        _ => {}
    }
    upstreams
}

/// A reference to an upstream that the file does not have.
pub(super) fn no_such_upstream(key: &str, wanted: &Setting<String>, names: &[String]) -> Problem {
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    match known.is_empty() {
        true => {
            Problem::error(wanted.origin, format!("`{key}` names `{}`, but the file has no upstream", wanted.value))
                .fix(format!("add [upstream.{}] with urls = [\"http://…\"]", wanted.value))
        }
        false => Fault::unknown_word(&wanted.value, &known).into_problem(key, wanted.origin),
    }
}

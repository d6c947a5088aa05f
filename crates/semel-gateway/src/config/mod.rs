//! `semel.toml`: read, checked, and turned into a plain value with every setting in force and where it came from.
//!
//! Unknown keys and settings of later versions are refused, never ignored; all problems of a file are told at once, each with its place,
//! its reason and its cure. What a setting is when nobody names it stands in one table (`preset.rs`); which combinations cannot work in
//! another (`constraint.rs`).
//!
//! ```
//! use semel_gateway::config::{Config, Flags, Source};
//!
//! let file = Source::new("semel.toml", r#"
//!     [upstream.orders]
//!     urls = ["http://127.0.0.1:3000"]
//!
//!     [principal]
//!     header = "X-Authenticated-User"
//!
//!     [[rule]]
//!     name = "submit-order"
//!     match = "POST /orders"
//!     preset = "payment"
//! "#);
//! let config = Config::from_parts(Some(file), &Flags::default()).expect("a good file");
//! let found = config.rules.find(&http::Method::POST, None, "/orders").expect("a rule");
//! assert_eq!(&*config.rules.get(found.index).expect("the rule").name, "submit-order");
//! ```

mod constraint;
mod digest;
mod explain;
mod flags;
mod lint;
mod outcome;
mod policy;
mod policy_types;
mod preset;
mod principal;
mod problem;
mod read;
mod route;
mod rule;
mod server;
mod setting;
mod show;
mod store;
mod store_tls;
mod store_url;
mod units;
mod upstream;
mod words;

use std::path::PathBuf;

use toml::de::DeTable;

pub use explain::{explain, summary};
pub use flags::Flags;
pub use lint::lint;
pub use outcome::StatusSet;
pub use policy::{Line, Policy};
pub use policy_types::{
    Attempts, Fingerprint, HeaderList, InFlight, JsonFields, Keep, KeyFormat, KeyPattern, Message, Missing,
    OnDuplicate, OnStoreError, RejectStatus, ReplayHeaders, Strictness, Suspect,
};
pub use preset::Preset;
pub use principal::Principal;
pub use problem::{Problem, Refused, Severity, Source};
pub use route::{HostPattern, Methods, PathPattern, Route, is_unsafe};
pub use rule::{Asked, Found, Mode, Rule, Rules};
pub use server::{
    Drain, Forwarded, Limits, Listen, Log, LogFormat, LogLevel, MaxRunning, Memory, Runtime, RuntimeKind, Waiters,
};
pub use setting::{Origin, Position, Setting};
pub use store::{Durability, Prefix, Replicas, Service, Store};
pub use store_tls::StoreTls;
pub use store_url::{Server, SharedUrl, StoreUrl};
pub use units::{Bytes, duration, size};
pub use upstream::{Upstream, Url};

use read::{Report, Section};
use rule::{Defaults, Shared};

/// The whole configuration, validated.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file with the key of the identity digest. Without one the store keeps a secret of its own.
    pub secret_file: Option<Setting<PathBuf>>,
    /// The addresses.
    pub listen: Listen,
    /// The services; the first takes what no rule sends elsewhere. Never empty.
    pub upstreams: Vec<Upstream>,
    /// Where the records live.
    pub store: Store,
    /// What tells callers apart.
    pub principal: Setting<Principal>,
    /// Bounds.
    pub limits: Limits,
    /// How threads share the work.
    pub runtime: Runtime,
    /// Logs.
    pub log: Log,
    /// How it stops.
    pub drain: Drain,
    /// The rules.
    pub rules: Rules,
    /// The file, for messages.
    pub source: Option<Source>,
}

impl Config {
    /// Reads a file (or nothing) and lays the flags over it. Does no input or output: files that the configuration names are opened
    /// by whoever starts the gateway.
    ///
    /// # Errors
    /// Every problem that could be found in one go, in the order of the file.
    pub fn from_parts(file: Option<Source>, flags: &Flags) -> Result<Self, Refused> {
        let mut report = Report { source: file, problems: Vec::new() };
        let text = report.source.clone();
        let table = parse(text.as_ref(), &mut report);
        // After a broken line the rest reads differently from what was meant: anything said about it would mislead.
        let config = if report.problems.is_empty() { read(table, flags, &mut report) } else { None };
        match config {
            Some(config) if report.problems.is_empty() => Ok(config),
            _ => {
                problem::sort(&mut report.problems);
                Err(Refused { problems: report.problems, source: report.source })
            }
        }
    }
}

/// What whoever looks into a store needs of the file; the rest of it is not read.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The file with the key of the identity digest. Without one the store keeps a secret of its own.
    pub secret_file: Option<Setting<PathBuf>>,
    /// Where the records live.
    pub store: Store,
}

impl StoreConfig {
    /// Reads `[store]` and `secret_file` of a file (or nothing) and lays the flags over it.
    ///
    /// # Errors
    /// Every problem of that part, in the order of the file; a file that is no TOML.
    pub fn from_parts(file: Option<Source>, flags: &Flags) -> Result<Self, Refused> {
        let mut report = Report { source: file, problems: Vec::new() };
        let text = report.source.clone();
        let table = parse(text.as_ref(), &mut report);
        let mut root = Section::new(table, "", Origin::Default);
        let secret_file = secret_file(&mut root, flags, &mut report);
        let store = Store::read(root.section("store", &mut report), flags, &mut report);
        if report.problems.is_empty() {
            return Ok(Self { secret_file, store });
        }
        problem::sort(&mut report.problems);
        Err(Refused { problems: report.problems, source: report.source })
    }
}

/// The file's table; what is no TOML is reported.
fn parse<'t>(source: Option<&'t Source>, report: &mut Report) -> DeTable<'t> {
    let (table, mistakes) = DeTable::parse_recoverable(source.map_or("", Source::text));
    for mistake in mistakes {
        let span = mistake.span().unwrap_or(0..0);
        let what = format!("this is not TOML: {}", mistake.message());
        report.push(Problem::error(report.origin(&span), what));
    }
    table.into_inner()
}

fn secret_file(root: &mut Section<'_>, flags: &Flags, report: &mut Report) -> Option<Setting<PathBuf>> {
    let file = root.read("secret_file", report);
    match flags.secret_file.as_deref() {
        Some(path) if path.trim().is_empty() => {
            report.push(Problem::error(Origin::Flag("--secret-file"), "names no file").fix("--secret-file ./secret"));
            file
        }
        Some(path) => Some(Setting { value: path.into(), origin: Origin::Flag("--secret-file") }),
        None => file,
    }
}

/// `None` only after at least one problem was reported.
fn read(table: DeTable<'_>, flags: &Flags, report: &mut Report) -> Option<Config> {
    let mut root = Section::new(table, "", Origin::Default);
    let secret_file = secret_file(&mut root, flags, report);
    root.refuse(
        "previous_secret_file",
        "a store has one secret in this version: to serve two, each request would have to claim what it is under both",
        "to change the secret, stop all gateways of the store and start them on an empty one; what ran before runs again if \
         its copy comes later, so wait until clients no longer retry",
        report,
    );
    for (key, why, fix) in [
        ("tls", "TLS comes with a later one", "let a proxy in front end TLS"),
        ("dashboard", "the dashboard comes with a later one", "/metrics on the admin address has the numbers"),
        (
            "encryption",
            "stored answers are not encrypted yet",
            "keep the store's directory readable by the gateway alone",
        ),
        ("admin", "the admin address is loopback only and takes no token", "`listen.admin` moves it to another port"),
    ] {
        root.refuse(key, why, fix, report);
    }
    let listen = Listen::read(root.section("listen", report), flags, report);
    let defaults = Defaults::read(root.section("defaults", report), report);
    let before = report.problems.len();
    let upstreams = upstream::read_all(&mut root, defaults.upstream.as_ref(), flags, report);
    let upstreams_hold = report.problems.len() == before;
    let store = Store::read(root.section("store", report), flags, report);
    let principal = Principal::read(root.section("principal", report), report);
    let limits = Limits::read(root.section("limits", report), report);
    let runtime = Runtime::read(root.section("runtime", report), flags, report);
    let log = Log::read(root.section("log", report), flags, report);
    let drain = Drain::read(root.section("drain", report), report);
    let tables = root.list("rule", report);
    root.finish(report);

    let shared = Shared { defaults: &defaults, limits: &limits, upstreams: &upstreams, upstreams_hold };
    let rules = read_rules(tables, &shared, report);
    // One message is enough where the limit is too small for every rule.
    let guarded = rules.iter().filter(|rule| rule.mode.value == Mode::Key);
    let _ = guarded.map(|rule| limits.hold(rule, report)).find(|holds| !holds);
    if principal.is_none() && rules.from_file() && rules.iter().any(|r| r.mode.value == Mode::Key) {
        report.push(Principal::missing(rules.get(0).map_or(Origin::Default, |r| r.origin)));
    }
    (!upstreams.is_empty()).then(|| Config {
        secret_file,
        listen,
        upstreams,
        store,
        principal: principal.unwrap_or_else(|| Setting::default(Principal::Shared)),
        limits,
        runtime,
        log,
        drain,
        rules,
        source: report.source.clone(),
    })
}

fn read_rules(tables: Vec<Section<'_>>, shared: &Shared<'_>, report: &mut Report) -> Rules {
    if tables.is_empty() {
        return Rules::new(Rule::zero_config(shared, report).into_iter().collect(), false);
    }
    let mut rules: Vec<Rule> = Vec::new();
    for section in tables {
        let Some(rule) = Rule::read(section, shared, report) else { continue };
        match rules.iter().find(|earlier| earlier.name == rule.name) {
            Some(earlier) => report.push(
                Problem::error(
                    rule.origin,
                    format!("a second rule `{}`; the first is at {}", rule.name, earlier.origin),
                )
                .why("metrics and logs could not tell them apart")
                .fix("another name"),
            ),
            None => rules.push(rule),
        }
    }
    Rules::new(rules, true)
}

//! What the process itself does: where it listens, how much it takes, how it talks, how it stops.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use semel_http::Cors;

use super::flags::Flags;
use super::problem::Problem;
use super::read::{Fault, Node, Read, Report, Section, one_or_many, socket_addr};
use super::rule::Rule;
use super::setting::{Origin, Setting};
use super::units::Bytes;
use super::words::words;

/// `[listen]`: the addresses.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Where requests come in. `127.0.0.1:8080`.
    pub http: Setting<SocketAddr>,
    /// Health and metrics; loopback only in this version. `127.0.0.1:9090`.
    pub admin: Setting<SocketAddr>,
    /// What to make of `X-Forwarded-*` that come with a request. `append`.
    pub forwarded: Setting<Forwarded>,
    /// The origins whose pages may read what the gateway answers by itself, and send keys where the service lets them send
    /// anything. None.
    pub cors: Option<Setting<Cors>>,
}

impl Read for Cors {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let fix = "each origin as browsers send it, like cors = [\"https://shop.example.com\"]";
        let origins: Vec<String> = one_or_many(node)?;
        if origins.is_empty() {
            return Err(Fault::new("names no origin").fix("leave it out where no page of another origin calls"));
        }
        Self::origins(&origins).map_err(|why| Fault::new(format!("names what is no origin: {why}")).fix(fix))
    }
}

words! {
    /// `X-Forwarded-For`, `-Host` and `-Proto` of a request.
    Forwarded {
        /// Are kept, and the peer is added: right behind another proxy.
        Append = "append",
        /// Are forgotten, the peer is the client: right at the edge.
        Replace = "replace",
    }
}

const HTTP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

impl Listen {
    pub(super) fn read(mut section: Section<'_>, flags: &Flags, report: &mut Report) -> Self {
        for key in ["https", "tls"] {
            section.refuse(key, "TLS comes with a later one", "let a proxy in front end TLS", report);
        }
        section.refuse("http2", "clients are served over HTTP/1.1", "leave it out", report);
        let http = section.read_or("http", HTTP, report);
        let admin = section.read_or("admin", ADMIN, report);
        let forwarded = section.read_or("forwarded", Forwarded::Append, report);
        let cors = section.read("cors", report);
        section.finish(report);
        let listen = Self {
            forwarded,
            cors,
            http: flag_over("--listen", flags.listen.as_deref(), socket_addr, http, report),
            admin: flag_over("--admin", flags.admin.as_deref(), socket_addr, admin, report),
        };
        if !listen.admin.ip().is_loopback() {
            let what = format!("the admin address {} can be reached from other machines", listen.admin.value);
            report.push(
                Problem::error(listen.admin.origin, what)
                    .why("it has no token and no mTLS in this version: whoever reaches it reads the metrics of every rule")
                    .fix("use 127.0.0.1:9090 and let an agent on this machine, or a proxy with authentication, forward it"),
            );
        }
        if listen.http.port() != 0 && listen.http.value == listen.admin.value {
            let what = format!("requests and the admin address share {}", listen.http.value);
            let origin = if listen.admin.origin.is_explicit() { listen.admin.origin } else { listen.http.origin };
            report.push(Problem::error(origin, what).fix("give one of them another port"));
        }
        listen
    }
}

/// `[limits]`: bounds that hold whatever clients do.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open client connections; more are answered 503 and closed. 16,384.
    pub connections: Setting<u32>,
    /// Size of a request's head. 64 KiB.
    pub header_bytes: Setting<Bytes>,
    /// Longest time for a request's head, from its first byte (on a new connection: from accept) to its last. 10 s.
    pub header_timeout: Setting<Duration>,
    /// How long a connection may rest between requests. 75 s, longer than the commonest balancers reuse one.
    pub keep_alive: Setting<Duration>,
    /// Longest silence inside a request's body. 30 s.
    pub body_idle: Setting<Duration>,
    /// Longest time for the whole body of a guarded request, from its first bytes; then 408. 60 s.
    pub body_timeout: Setting<Duration>,
    /// Longest time in which a client takes nothing of its answer; then the connection is cut. 30 s.
    pub write_idle: Setting<Duration>,
    /// Body of a guarded request, where the rule does not say otherwise; larger ones get 413. 8 MiB.
    pub request_body: Setting<Bytes>,
    /// Recorded body of an answer, where the rule does not say otherwise; larger ones are passed on and recorded without body. 8 MiB.
    pub response_body: Setting<Bytes>,
    /// Bodies of guarded requests and their answers, all together.
    pub memory: Memory,
    /// Requests that wait for a running one.
    pub waiters: Waiters,
    /// Guarded requests that run, their clients there or not.
    pub max_running: MaxRunning,
}

/// `limits.memory`: what bodies of more than 16 KiB take over all requests.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Of requests, until they are sent on; for more there is 503 too-many-bodies. 256 MiB.
    pub requests: Setting<Bytes>,
    /// Of answers, until they are taken; more are passed on and recorded without body, and replays of recorded ones get 503
    /// too-many-bodies. 256 MiB.
    pub responses: Setting<Bytes>,
}

/// `limits.waiters`: more are answered 429 too-many-waiters.
#[derive(Clone, Debug)]
pub struct Waiters {
    /// For one key. 1,000.
    pub key: Setting<u32>,
    /// For one principal. 1,000.
    pub scope: Setting<u32>,
    /// In the process. 10,000.
    pub process: Setting<u32>,
}

/// `limits.max_running`: bounds work that goes on after its client has left.
#[derive(Clone, Debug)]
pub struct MaxRunning {
    /// For one rule. 1,000.
    pub rule: Setting<u32>,
    /// For one principal. 1,000.
    pub scope: Setting<u32>,
    /// In the process. 10,000.
    pub process: Setting<u32>,
}

impl Limits {
    pub(super) fn read(mut section: Section<'_>, report: &mut Report) -> Self {
        let mut memory = section.section("memory", report);
        let mut waiters = section.section("waiters", report);
        let mut running = section.section("max_running", report);
        let limits = Self {
            connections: section.read_or("connections", 16_384, report),
            header_bytes: section.read_or("header_bytes", Bytes(64 << 10), report),
            header_timeout: section.read_or("header_timeout", Duration::from_secs(10), report),
            keep_alive: section.read_or("keep_alive", Duration::from_secs(75), report),
            body_idle: section.read_or("body_idle", Duration::from_secs(30), report),
            body_timeout: section.read_or("body_timeout", Duration::from_secs(60), report),
            write_idle: section.read_or("write_idle", Duration::from_secs(30), report),
            request_body: section.read_or("request_body", Bytes(8 << 20), report),
            response_body: section.read_or("response_body", Bytes(8 << 20), report),
            memory: Memory {
                requests: memory.read_or("requests", Bytes(256 << 20), report),
                responses: memory.read_or("responses", Bytes(256 << 20), report),
            },
            waiters: Waiters {
                key: waiters.read_or("key", 1_000, report),
                scope: waiters.read_or("scope", 1_000, report),
                process: waiters.read_or("process", 10_000, report),
            },
            max_running: MaxRunning {
                rule: running.read_or("rule", 1_000, report),
                scope: running.read_or("scope", 1_000, report),
                process: running.read_or("process", 10_000, report),
            },
        };
        if *limits.header_bytes < Bytes(8 << 10) {
            report.push(
                Problem::error(
                    limits.header_bytes.origin,
                    format!("`limits.header_bytes` is {}", limits.header_bytes.value),
                )
                .why("browsers send heads of several kilobytes; less than 8 KiB refuses ordinary requests")
                .fix("8 KiB or more"),
            );
        }
        memory.finish(report);
        waiters.finish(report);
        running.finish(report);
        section.finish(report);
        limits
    }

    /// A body that a rule allows has to have room when nothing else is held; false where it has not.
    pub(super) fn hold(&self, rule: &Rule, report: &mut Report) -> bool {
        let (memory, policy, before) = (&self.memory, &rule.policy, report.problems.len());
        let pairs = [
            (
                "requests",
                &memory.requests,
                "request_body",
                &policy.request_body,
                "such requests would get 503 for ever",
            ),
            ("responses", &memory.responses, "response_body", &policy.response_body, "such answers could not be kept"),
        ];
        for (all, memory, one, body, why) in pairs {
            if body.value <= memory.value {
                continue;
            }
            // Points at what a person wrote last.
            let origin = [body.origin, memory.origin].into_iter().max_by_key(|o| o.position()).unwrap_or(rule.origin);
            let what = format!(
                "rule `{}`: `{one}` ({}) is more than `limits.memory.{all}` ({})",
                rule.name, body.value, memory.value
            );
            report.push(
                Problem::error(origin, what)
                    .why(format!("that is what all bodies have together: {why}"))
                    .fix("several times as much memory, or smaller bodies"),
            );
        }
        report.problems.len() == before
    }
}

words! {
    /// How threads share the work.
    RuntimeKind {
        /// One single-threaded runtime per core, each with its own listener and its own pool of upstream connections.
        PerCore = "per_core",
        /// One runtime for all cores.
        Shared = "shared",
    }
}

/// `[runtime]`.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// `per_core`.
    pub kind: Setting<RuntimeKind>,
    /// How many threads serve; all cores of this process where nobody says.
    pub threads: Option<Setting<u32>>,
}

impl Runtime {
    pub(super) fn read(mut section: Section<'_>, flags: &Flags, report: &mut Report) -> Self {
        let kind = section.read_or("kind", RuntimeKind::PerCore, report);
        let threads = section.read::<u32>("threads", report);
        section.finish(report);
        if let Some(threads) = threads.filter(|n| n.value > 1_024) {
            report.push(
                Problem::error(threads.origin, format!("`runtime.threads` is {}", threads.value))
                    .why("each thread has connections of its own to the upstream")
                    .fix("as many as there are cores, or leave it out"),
            );
        }
        let kind = flag_over("--runtime", flags.runtime.as_deref(), RuntimeKind::from_word, kind, report);
        Self { kind, threads }
    }
}

/// A flag wins over the file.
fn flag_over<T>(
    flag: &'static str,
    given: Option<&str>,
    read: fn(&str) -> Result<T, Fault>,
    file: Setting<T>,
    report: &mut Report,
) -> Setting<T> {
    match given.map(read) {
        None => file,
        Some(Ok(value)) => Setting { value, origin: Origin::Flag(flag) },
        Some(Err(fault)) => {
            report.push(fault.of_flag(flag));
            file
        }
    }
}

words! {
    /// How much is logged.
    LogLevel {
        /// Only what went wrong.
        Error = "error",
        /// And what should be looked at.
        Warn = "warn",
        /// And starts, stops, unclear outcomes.
        Info = "info",
        /// And every guarded request, its key masked.
        Debug = "debug",
        /// And the inside of connections.
        Trace = "trace",
    }
}

words! {
    /// How a log line looks.
    LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

/// `[log]`: written to standard error.
#[derive(Clone, Debug)]
pub struct Log {
    /// `info`.
    pub level: Setting<LogLevel>,
    /// `text`.
    pub format: Setting<LogFormat>,
}

impl Log {
    pub(super) fn read(mut section: Section<'_>, flags: &Flags, report: &mut Report) -> Self {
        let level = section.read_or("level", LogLevel::Info, report);
        let format = section.read_or("format", LogFormat::Text, report);
        section.finish(report);
        Self {
            level: flag_over("--log-level", flags.log_level.as_deref(), LogLevel::from_word, level, report),
            format: flag_over("--log-format", flags.log_format.as_deref(), LogFormat::from_word, format, report),
        }
    }
}

/// `[drain]`: how the gateway stops.
#[derive(Clone, Debug)]
pub struct Drain {
    /// How long running requests get to finish after SIGTERM; what is left then ends as unknown. 30 s.
    pub deadline: Setting<Duration>,
}

impl Drain {
    pub(super) fn read(mut section: Section<'_>, report: &mut Report) -> Self {
        let drain = Self { deadline: section.read_or("deadline", Duration::from_secs(30), report) };
        section.finish(report);
        drain
    }
}

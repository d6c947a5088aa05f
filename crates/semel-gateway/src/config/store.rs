//! Where the records live.

use std::path::PathBuf;
use std::time::Duration;

use semel_core::identity::Namespace;

use super::flags::Flags;
use super::problem::Problem;
use super::read::{Fault, Node, Read, Report, Section, text, whole_number};
use super::setting::{Origin, Setting};
use super::store_tls::StoreTls;
use super::store_url::{DATA_DIR, Server, SharedUrl, StoreUrl};
use super::units::Bytes;
use super::words::words;

/// `[store]`.
#[derive(Clone, Debug)]
pub struct Store {
    /// Which one. The embedded one in `./semel-data`.
    pub url: Setting<StoreUrl>,
    /// The service whose records these are: gateways of different services may share a server. `gateway`.
    pub namespace: Setting<Service>,
    /// What the names of Redis keys begin with. `semel`.
    pub prefix: Setting<Prefix>,
    /// How many replicas of a Redis must have a claim or an outcome before it counts. None.
    pub replicas: Setting<Replicas>,
    /// How long they may take, below `timeout`. Four fifths of it.
    pub replica_timeout: Setting<Duration>,
    /// The password of the server's address, in a file.
    pub password_file: Option<Setting<PathBuf>>,
    /// The files of TLS with a Redis.
    pub tls: StoreTls,
    /// Where PostgreSQL is without a transaction pooler in front, for its notifications; without one waiters look again by themselves.
    pub listen_url: Option<Setting<SharedUrl>>,
    /// Most connections to a PostgreSQL or MySQL server. 16.
    pub connections: Setting<u32>,
    /// Longest time for one call of the store, repeated once. 250 ms.
    pub timeout: Setting<Duration>,
    /// How long an answer waits for its recording before it is given out as unrecorded. 2 s.
    pub commit_wait: Setting<Duration>,
    /// How long the recording of an answer is tried while the store is away; then its record reads as unknown. 60 s.
    pub settle_for: Setting<Duration>,
    /// How long an answer that was seen in a shared store is given again without asking it; how old an answer can be after
    /// somebody settled or deleted its record by hand. 10 s.
    pub local_ttl: Setting<Duration>,
    /// Most bytes of such answers. 16 MiB.
    pub local: Setting<Bytes>,
    /// What the embedded store waits for before it says that an answer is kept. `power`.
    pub durability: Setting<Durability>,
    /// Finished records that the embedded store keeps in memory for replays. 64 MiB.
    pub cache: Setting<Bytes>,
    /// Most records of the memory store; more are refused with 503 store-full. 1,000,000.
    pub max_records: Setting<u32>,
    /// Most bytes of the memory store; over it bodies are dropped, then new keys refused. 512 MiB.
    pub max_bytes: Setting<Bytes>,
}

/// The service whose records they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Service(pub Namespace);

impl Service {
    fn gateway() -> Self {
        Self(Namespace::http("gateway").expect("a good name"))
    }

    /// The name alone.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.as_str().strip_prefix("http:").unwrap_or_default()
    }
}

impl Read for Service {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let name = text(node, "a service's name", "write it like \"orders\"")?;
        Namespace::http(name).map(Self).map_err(|why| Fault::new(format!("is no service's name: {why}")))
    }
}

/// What the names of Redis keys begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prefix(pub String);

impl Read for Prefix {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let name = text(node, "a name", "write it like \"semel\"")?;
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        match !name.is_empty() && name.len() <= 32 && name.bytes().all(fits) {
            true => Ok(Self(name.to_owned())),
            false => Err(Fault::new("is no prefix").fix("1 to 32 of a-z, 0-9, `.`, `_`, `-`")),
        }
    }
}

/// How many replicas; none is a number of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replicas(pub u32);

impl Read for Replicas {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        whole_number(node, 0).map(Self)
    }
}

words! {
    /// What may happen to an acknowledged answer.
    Durability {
        /// Survives a power cut: every answer is synced before it is released.
        Power = "power",
        /// Survives the end of the process; a power cut may turn answered records into unknown outcomes.
        Process = "process",
    }
}

impl Store {
    pub(super) fn read(mut section: Section<'_>, flags: &Flags, report: &mut Report) -> Self {
        let file = section.read_or("url", StoreUrl::Embedded(DATA_DIR.into()), report);
        let mut limits = section.section("limits", report);
        let tls = StoreTls::read(section.section("tls", report), report);
        let timeout = section.read_or("timeout", Duration::from_millis(250), report);
        let store = Self {
            url: url(file, flags, report),
            namespace: section.read_or("namespace", Service::gateway(), report),
            prefix: section.read_or("prefix", Prefix("semel".to_owned()), report),
            replicas: section.read_or("replicas", Replicas(0), report),
            replica_timeout: section.read_or("replica_timeout", timeout.value / 5 * 4, report),
            password_file: section.read("password_file", report),
            tls,
            listen_url: section.read("listen_url", report),
            connections: section.read_or("connections", 16, report),
            timeout,
            commit_wait: section.read_or("commit_wait", Duration::from_secs(2), report),
            settle_for: section.read_or("settle_for", Duration::from_mins(1), report),
            local_ttl: section.read_or("local_ttl", Duration::from_secs(10), report),
            durability: section.read_or("durability", Durability::Power, report),
            local: limits.read_or("local", Bytes(16 << 20), report),
            cache: limits.read_or("cache", Bytes(64 << 20), report),
            max_records: limits.read_or("max_records", 1_000_000, report),
            max_bytes: limits.read_or("max_bytes", Bytes(512 << 20), report),
        };
        limits.finish(report);
        section.finish(report);
        store.check(report);
        store
    }

    /// A setting that has no meaning for the store would be read and ignored.
    fn check(&self, report: &mut Report) {
        let here = Of::store(&self.url);
        for (key, origin, of, why, fix) in [
            (
                "durability",
                self.durability.origin,
                &[Of::Embedded][..],
                "it says what the embedded store waits for; another one has settings of its own for that, or keeps nothing",
                "leave it out, or url = \"embedded:DIR\"",
            ),
            (
                "limits.cache",
                self.cache.origin,
                &[Of::Embedded],
                "it bounds what the embedded store keeps in memory beside its disk",
                "leave it out, or url = \"embedded:DIR\"",
            ),
            (
                "limits.max_records",
                self.max_records.origin,
                &[Of::Memory],
                "it bounds the memory store; another one is bounded by its disk or server",
                "leave it out, or url = \"memory\"",
            ),
            (
                "limits.max_bytes",
                self.max_bytes.origin,
                &[Of::Memory],
                "it bounds the memory store; another one is bounded by its disk or server",
                "leave it out, or url = \"memory\"",
            ),
            (
                "prefix",
                self.prefix.origin,
                &[Of::Redis],
                "it begins the names of Redis keys",
                "leave it out; `namespace` tells services apart in any store",
            ),
            (
                "replicas",
                self.replicas.origin,
                &[Of::Redis],
                "it says how many replicas of a Redis must have a claim before it counts; other stores wait as they are set up to",
                "leave it out",
            ),
            (
                "replica_timeout",
                self.replica_timeout.origin,
                &[Of::Redis],
                "it says how long the replicas of a Redis may take",
                "leave it out",
            ),
            (
                "local_ttl",
                self.local_ttl.origin,
                &[Of::Redis, Of::Postgres, Of::MySql],
                "a store of this process answers from its own memory anyway",
                "leave it out",
            ),
            (
                "limits.local",
                self.local.origin,
                &[Of::Redis, Of::Postgres, Of::MySql],
                "a store of this process answers from its own memory anyway",
                "leave it out",
            ),
            (
                "connections",
                self.connections.origin,
                &[Of::Postgres, Of::MySql],
                "it bounds the connections to a database",
                "leave it out",
            ),
            (
                "listen_url",
                self.listen_url.as_ref().map_or(Origin::Default, |url| url.origin),
                &[Of::Postgres],
                "only PostgreSQL has notifications that a pooler keeps back",
                "leave it out",
            ),
            (
                "password_file",
                self.password_file.as_ref().map_or(Origin::Default, |file| file.origin),
                &[Of::Redis, Of::Postgres, Of::MySql],
                "it is for a server's address",
                "leave it out",
            ),
        ] {
            if origin.is_explicit() && !of.contains(&here) {
                let what = format!("`store.{key}` has no meaning for the {} store", here.word());
                report.push(Problem::error(origin, what).why(why).fix(fix));
            }
        }
        self.tls.check(&self.url, report);
        self.check_replicas(here, report);
        if let Some(url) = &self.listen_url
            && url.server() != Server::Postgres
        {
            report.push(
                Problem::error(url.origin, "`store.listen_url` is no PostgreSQL")
                    .why("it is the same server as `url`, without the pooler in front")
                    .fix("listen_url = \"postgres://user@127.0.0.1/semel\""),
            );
        }
        if let (StoreUrl::Shared(url), Some(file)) = (&*self.url, &self.password_file)
            && url.has_password()
        {
            report.push(
                Problem::error(file.origin, "`store.password_file` beside a password in `store.url`")
                    .why("one of them would be ignored")
                    .fix("leave the password out of the address"),
            );
        }
    }

    fn check_replicas(&self, here: Of, report: &mut Report) {
        let within = &self.replica_timeout;
        if here != Of::Redis || !within.origin.is_explicit() {
            return;
        }
        if self.replicas.0 == 0 {
            report.push(
                Problem::error(within.origin, "`store.replica_timeout` without `store.replicas`")
                    .why("no call waits for a replica")
                    .fix("leave it out, or say for how many: replicas = 1"),
            );
        } else if within.value >= self.timeout.value {
            report.push(
                Problem::error(within.origin, "`store.replica_timeout` is not below `store.timeout`")
                    .why("the call would be given up before it is known that the replicas do not have it")
                    .fix("make it shorter, or `timeout` longer; left out it is four fifths of `timeout`"),
            );
        }
    }
}

/// Whose setting it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Memory,
    Embedded,
    Redis,
    Postgres,
    MySql,
}

impl Of {
    fn store(url: &StoreUrl) -> Self {
        match url {
            StoreUrl::Memory => Self::Memory,
            StoreUrl::Embedded(_) => Self::Embedded,
            StoreUrl::Shared(url) => match url.server() {
                Server::Redis => Self::Redis,
                Server::Postgres => Self::Postgres,
                Server::MySql => Self::MySql,
            },
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Embedded => "embedded",
            Self::Redis => "Redis",
            Self::Postgres => "PostgreSQL",
            Self::MySql => "MySQL",
        }
    }
}

fn url(file: Setting<StoreUrl>, flags: &Flags, report: &mut Report) -> Setting<StoreUrl> {
    let named = match flags.store.as_deref().map(StoreUrl::parse) {
        Some(Ok(value)) => Setting { value, origin: Origin::Flag("--store") },
        Some(Err(fault)) => {
            report.push(fault.of_flag("--store"));
            file
        }
        None => file,
    };
    let Some(dir) = flags.data_dir.as_deref() else { return named };
    let origin = Origin::Flag("--data-dir");
    match &named.value {
        StoreUrl::Memory | StoreUrl::Shared(_) => {
            report.push(
                Problem::error(origin, format!("the {} store has no directory", Of::store(&named.value).word()))
                    .fix("leave --data-dir out, or take --store embedded"),
            );
            named
        }
        StoreUrl::Embedded(_) if dir.trim().is_empty() => {
            report.push(Problem::error(origin, "names no directory").fix("--data-dir ./semel-data"));
            named
        }
        StoreUrl::Embedded(_) => Setting { value: StoreUrl::Embedded(dir.into()), origin },
    }
}

//! Where the records live.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::flags::Flags;
use super::problem::Problem;
use super::read::{Fault, Node, Read, Report, Section, text};
use super::setting::{Origin, Setting};
use super::units::Bytes;
use super::words::words;

/// `[store]`.
#[derive(Clone, Debug)]
pub struct Store {
    /// Which one. The embedded one in `./semel-data`.
    pub url: Setting<StoreUrl>,
    /// Longest time for one call of the store, repeated once. 250 ms.
    pub timeout: Setting<Duration>,
    /// How long an answer waits for its recording before it is given out as unrecorded. 2 s.
    pub commit_wait: Setting<Duration>,
    /// How long the recording of an answer is tried while the store is away; then its record reads as unknown. 60 s.
    pub settle_for: Setting<Duration>,
    /// What the embedded store waits for before it says that an answer is kept. `power`.
    pub durability: Setting<Durability>,
    /// Finished records that the embedded store keeps in memory for replays. 64 MiB.
    pub cache: Setting<Bytes>,
    /// Most records of the memory store; more are refused with 503 store-full. 1,000,000.
    pub max_records: Setting<u32>,
    /// Most bytes of the memory store; over it bodies are dropped, then new keys refused. 512 MiB.
    pub max_bytes: Setting<Bytes>,
}

/// Which store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreUrl {
    /// In the memory of this process; gone when it ends.
    Memory,
    /// On disk, in this directory, for one process.
    Embedded(PathBuf),
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Embedded(dir) => write!(f, "embedded:{}", dir.display()),
        }
    }
}

/// The directory of the embedded store where none is named.
const DATA_DIR: &str = "semel-data";

impl StoreUrl {
    fn parse(text: &str) -> Result<Self, Fault> {
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        let later = |part: &str| {
            // The rest may hold a password.
            let rest = if rest.is_empty() { "" } else { ":…" };
            Err(Fault::new(format!("wants a {part} store: `{scheme}{rest}`"))
                .why("shared stores come with the Redis and SQL parts; this version keeps records in memory or on its own disk")
                .fix("\"embedded:DIR\" or \"memory\""))
        };
        match scheme {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "embedded" if rest.is_empty() => Ok(Self::Embedded(DATA_DIR.into())),
            "embedded" => Ok(Self::Embedded(rest.strip_prefix("//").unwrap_or(rest).into())),
            "redis" | "rediss" | "redis+sentinel" | "redis+cluster" | "valkey" => later("Redis"),
            "postgres" | "postgresql" | "mysql" | "mariadb" | "sqlite" => later("SQL"),
            _ => Err(Fault::new(format!("is no store: `{text}`")).fix("\"embedded:DIR\" or \"memory\"")),
        }
    }
}

impl Read for StoreUrl {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        Self::parse(text(node, "a store", "\"embedded:DIR\" or \"memory\"")?)
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
        let store = Self {
            url: url(file, flags, report),
            timeout: section.read_or("timeout", Duration::from_millis(250), report),
            commit_wait: section.read_or("commit_wait", Duration::from_secs(2), report),
            settle_for: section.read_or("settle_for", Duration::from_mins(1), report),
            durability: section.read_or("durability", Durability::Power, report),
            cache: limits.read_or("cache", Bytes(64 << 20), report),
            max_records: limits.read_or("max_records", 1_000_000, report),
            max_bytes: limits.read_or("max_bytes", Bytes(512 << 20), report),
        };
        limits.finish(report);
        section.finish(report);
        store.check(report);
        store
    }

    /// A setting of the other store would be read and ignored.
    fn check(&self, report: &mut Report) {
        match &*self.url {
            StoreUrl::Memory => {
                for (key, origin, why) in [
                    ("durability", self.durability.origin, "memory keeps nothing beyond the process"),
                    (
                        "limits.cache",
                        self.cache.origin,
                        "it bounds what the embedded store keeps in memory beside its disk",
                    ),
                ] {
                    if origin.is_explicit() {
                        report.push(
                            Problem::error(origin, format!("`store.{key}` has no meaning for the memory store"))
                                .why(why)
                                .fix("leave it out, or url = \"embedded:DIR\""),
                        );
                    }
                }
            }
            StoreUrl::Embedded(_) => {
                for (key, origin) in [("max_records", self.max_records.origin), ("max_bytes", self.max_bytes.origin)] {
                    if origin.is_explicit() {
                        report.push(
                            Problem::error(
                                origin,
                                format!("`store.limits.{key}` has no meaning for the embedded store"),
                            )
                            .why("it bounds the memory store; the embedded one is bounded by its disk")
                            .fix("leave it out, or url = \"memory\""),
                        );
                    }
                }
            }
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
        StoreUrl::Memory => {
            report.push(
                Problem::error(origin, "the memory store has no directory")
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

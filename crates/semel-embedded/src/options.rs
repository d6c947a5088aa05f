//! What can be chosen about an embedded store.

use std::time::Duration;

use semel_core::identity::Secret;

/// What an answered completion survives. Claims survive a power cut with either.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Power {
    /// A power cut: completions wait for the sync as claims do.
    #[default]
    Power,
    /// The end of the process. A power cut turns completions of the last moments into unknown.
    Process,
}

/// What can be chosen. Start with [`Options::default`].
#[derive(Clone, Debug)]
pub struct Options {
    /// What an answered completion survives.
    pub durability: Power,
    /// The deployment's secret, if one is configured. Without one the directory keeps a random one of its own, see
    /// [`EmbeddedStore::secret`](crate::EmbeddedStore::secret).
    pub secret: Option<Secret>,
    /// Bytes of finished records kept in memory for replays. Records in flight are always in memory and not counted.
    pub cache: usize,
    /// Bytes preallocated so that running work can settle on a full disk.
    pub reserve: u64,
    /// Free bytes below which claims are refused.
    pub headroom: u64,
    /// How often free space is looked at, at most.
    pub space_check: Duration,
    /// How large a segment of the journal gets, but for one that holds a single larger record. Room is given back in such
    /// pieces, and the newest one is read whole at open. At most 2 GiB.
    pub segment: u64,
    /// The largest `rest` (key, head and body of an outcome) a record takes.
    pub max_rest: u64,
    /// How many changes may wait for the writer before claims are refused.
    pub max_waiting: usize,
}

impl Default for Options {
    /// `power`, a secret of its own, 64 MiB cache, 64 MiB reserve, 96 MiB headroom looked at every second, segments of
    /// 64 MiB, records up to 16 MiB, 16,384 waiting changes.
    fn default() -> Self {
        Self {
            durability: Power::Power,
            secret: None,
            cache: 64 << 20,
            reserve: 64 << 20,
            headroom: 96 << 20,
            space_check: Duration::from_secs(1),
            segment: 64 << 20,
            max_rest: 16 << 20,
            max_waiting: 16_384,
        }
    }
}

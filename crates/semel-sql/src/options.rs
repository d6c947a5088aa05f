//! What can be chosen about a store on a database.

use std::time::Duration;

use semel_core::identity::Secret;

/// What can be chosen. Start with [`Options::default`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The deployment's secret, if one is configured. Without one the store keeps a random one of its own in its mark,
    /// which every process without one then uses.
    pub secret: Option<Secret>,
    /// Connections at most. A call that finds all of them busy waits, within its time.
    pub connections: usize,
    /// How long making one connection may take.
    pub connect_timeout: Duration,
    /// How long one call may take, waiting for a free connection included. Engines have a shorter patience of their own;
    /// this bounds what they leave behind.
    pub call_timeout: Duration,
    /// How long a statement waits for a row that another one is changing; then the row counts as in flight.
    pub lock_timeout: Duration,
    /// A connection that lay idle for longer is looked at before it is used, since the other end may be gone.
    pub idle_check: Duration,
    /// A connection is not used for longer than this, so that processes spread over servers again after a failover.
    pub max_lifetime: Duration,
    /// The largest `rest` (key, head and body of an outcome) a record takes, in bytes.
    pub max_rest: u64,
    /// Where to listen for notifications, if the store's own URL goes through a transaction pooler: a URL that does not.
    #[cfg(feature = "postgres")]
    pub listen_url: Option<String>,
}

impl Default for Options {
    /// A secret of the store's own; 16 connections, 5 s to make one, 5 s for a call, 2 s for a row's lock; connections
    /// are looked at after 10 s and renewed after 30 min; records up to 16 MiB.
    fn default() -> Self {
        Self {
            secret: None,
            connections: 16,
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_secs(2),
            idle_check: Duration::from_secs(10),
            max_lifetime: Duration::from_secs(1800),
            max_rest: 16 << 20,
            #[cfg(feature = "postgres")]
            listen_url: None,
        }
    }
}

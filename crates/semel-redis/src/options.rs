//! What can be chosen beside the address.

use std::{fmt, time::Duration};

use semel_core::identity::Secret;

/// How a [`RedisStore`](crate::RedisStore) works.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// What every key begins with: 1 to 32 of `[a-z0-9._-]`. Deployments that share a server take one each.
    pub prefix: String,
    /// The deployment's secret; without one the store keeps its own, which the first process makes.
    pub secret: Option<Secret>,
    /// Whom to log in as (ACL); goes before what the URL names.
    pub user: Option<String>,
    /// The password; goes before what the URL names.
    pub password: Option<String>,
    /// Certificates for `rediss://`; without any, those that the system trusts.
    #[cfg(feature = "tls")]
    pub tls: crate::Tls,
    /// How long a connection may take until it can be used, and how long a server may say nothing before its
    /// connection is given up. 1 s.
    pub connect_timeout: Duration,
    /// How many replicas must have a claim or an outcome before it counts; 0, the default, asks none. Where fewer have it in time
    /// the call fails, and nobody can tell what it did: it is done on the primary, and a failover may undo it.
    pub replicas: u32,
    /// How long that may take: less than the engine's own time-out, so that the caller hears why. 200 ms; below
    /// [`response_timeout`](Self::response_timeout) in any case.
    pub replica_timeout: Duration,
    /// How long an answer may take. The engine's own time-out is shorter as a rule. 1 s.
    pub response_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: "semel".to_owned(),
            secret: None,
            user: None,
            password: None,
            #[cfg(feature = "tls")]
            tls: crate::Tls::default(),
            connect_timeout: Duration::from_secs(1),
            replicas: 0,
            replica_timeout: Duration::from_millis(200),
            response_timeout: Duration::from_secs(1),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("prefix", &self.prefix)
            .field("secret", &self.secret)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("connect_timeout", &self.connect_timeout)
            .field("replicas", &self.replicas)
            .field("replica_timeout", &self.replica_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish()
    }
}

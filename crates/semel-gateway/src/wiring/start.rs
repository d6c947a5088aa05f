//! The life of a gateway: open the store, take the addresses, serve, drain, stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use semel_admin::metrics::{BodyLoad, UpstreamCounts};
use semel_admin::{Listener, Metrics, Readiness};
use semel_core::engine::Engine;
use semel_core::env::{Env, Tick};
use semel_core::store::Grade;
use semel_http::GuardLayer;
use tokio_util::sync::CancellationToken;

use super::rules::Table;
use super::stack::Plan;
use super::{StartError, engine, orphans, own_upstream, reach, transport};
use crate::config::{Bytes, Config, StoreUrl};
use crate::probe::Host;
use crate::serve::{Running, Server, Shutdown, Via, probe};
use crate::stores::{self, Opened};

/// Time for settlements that begin when the drain's deadline is over.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(1);

/// A gateway that serves. Dropping it ends its threads without a drain: [`stop`](Self::stop) it.
#[must_use = "dropping it stops the gateway without a drain"]
pub struct Gateway {
    http: SocketAddr,
    admin: SocketAddr,
    running: Running,
    engine: Engine,
    readiness: Readiness,
    env: Env,
    deadline: Duration,
    admin_stop: CancellationToken,
    opened: Opened,
}

/// How a gateway stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stopped {
    /// Connections that were cut at the deadline.
    pub cut: usize,
    /// Claimed work that was still open; its records read as unknown.
    pub abandoned: usize,
}

/// Starts a gateway. `version` is the program's, for the metrics. Must be called inside a tokio runtime, which carries the admin address
/// and the store's sweep; requests run on threads of the gateway's own. Blocks while the store opens.
///
/// # Errors
/// [`StartError`]: what, where and what to do. Nothing is served then.
pub async fn start(config: &Config, version: &str) -> Result<Gateway, StartError> {
    let env = Env::system();
    let table = Table::new(config)?;
    let upstreams = config.upstreams.iter().map(|upstream| {
        transport::forward(upstream).map_err(|error| StartError::Upstream(upstream.name.to_string(), error))
    });
    let upstreams = upstreams.collect::<Result<Vec<_>, _>>()?;
    // A start that fails on a taken address leaves no store behind.
    probe(*config.listen.http).map_err(StartError::Listen)?;
    drop(Listener::bind(*config.listen.admin).await.map_err(StartError::Admin)?);
    // The store before the addresses: a gateway that cannot keep records is never reachable.
    let largest = config.rules.iter().map(|rule| rule.policy.response_body.value).max().unwrap_or(Bytes(0));
    let opened =
        stores::open(&config.store, config.secret_file.as_ref(), largest, &env).await.map_err(StartError::Store)?;
    let mut unfit = Vec::new();
    for finding in opened.findings_for(config) {
        match finding.grade {
            Grade::Note => tracing::info!(why = finding.why, "the store: {}", finding.what),
            Grade::Warning => tracing::warn!(why = finding.why, cure = finding.cure, "the store: {}", finding.what),
            Grade::Fatal => unfit.push(finding),
        }
    }
    if !unfit.is_empty() {
        opened.close();
        return Err(StartError::Unfit(unfit));
    }
    let mut id = [0; 8];
    env.rng.fill(&mut id);
    let via = Arc::new(Via::new(u64::from_be_bytes(id)));
    let server = Server::bind(transport::serve(config, &via)).map_err(StartError::Listen)?;
    let admin = Listener::bind(*config.listen.admin).await.map_err(StartError::Admin)?;
    own_upstream::check(config, server.address(), admin.address()).await?;

    let metrics = Metrics::new(version, opened.store.facts(), config.rules.iter().map(|rule| &*rule.name));
    let readiness = Readiness::new(Arc::clone(&opened.store));
    if matches!(*config.store.url, StoreUrl::Embedded(_)) {
        orphans::tell(Arc::clone(&opened.store), &env);
    }
    let engine = engine::engine(config, &opened, env.clone(), &metrics);
    let of = engine.clone();
    readiness.watch_store(move || of.store_state());
    let bodies = transport::bodies(config);
    let of = bodies.clone();
    metrics.watch_bodies(move || {
        let held = of.held();
        BodyLoad {
            requests: held.requests as u64,
            answers: held.answers as u64,
            refused: held.requests_refused,
            not_kept: held.answers_not_kept,
        }
    });
    let named = config.upstreams.iter().zip(&upstreams);
    let counted: Vec<_> = named.map(|(named, to)| (Arc::clone(&named.name), Arc::clone(&to.counters))).collect();
    metrics.watch_upstreams(move || {
        let counts = counted.iter().map(|(name, of)| UpstreamCounts {
            name: Arc::clone(name),
            connections: of.connected.get(),
            unreachable: of.unreachable.get(),
            broken: of.broken.get(),
            broken_reused: of.broken_reused.get(),
            timed_out: of.timed_out.get(),
            sent_anew: of.sent_anew.get(),
        });
        counts.collect()
    });
    let (http, admin_at, admin_stop) = (server.address(), admin.address(), CancellationToken::new());
    let stopped = admin_stop.clone().cancelled_owned();
    let router = semel_admin::router(metrics.clone(), readiness.clone());
    env.tasks.spawn(
        "semel admin",
        Box::pin(async move {
            if let Err(error) = admin.serve(router, stopped).await {
                tracing::error!(%error, "the admin address is gone");
            }
        }),
    );
    let mut instance = [0; 8];
    env.rng.fill(&mut instance);
    let probes = Host {
        env: env.clone(),
        engine: engine.clone(),
        store: Arc::clone(&opened.store),
        version: version.into(),
        instance: format!("{:016x}", u64::from_be_bytes(instance)).into(),
        rules: config.rules_digest().into(),
    };
    let mut guard = GuardLayer::proxied(engine.clone(), table).bodies(bodies);
    if let Some(cors) = &config.listen.cors {
        guard = guard.cors(cors.value.clone());
    }
    let plan = Plan {
        env: env.clone(),
        probes: Arc::new(probes),
        metrics,
        guard,
        routes: Arc::new(config.rules.clone()),
        upstreams,
        forwarded: transport::forwarded(config),
        via,
    };
    let running = server.start(move |core| plan.runtime(&core), Shutdown::new()).map_err(StartError::System)?;
    reach::tell(config, &env);
    readiness.serving();
    Ok(Gateway {
        http,
        admin: admin_at,
        running,
        engine,
        readiness,
        env,
        deadline: *config.drain.deadline,
        admin_stop,
        opened,
    })
}

impl Gateway {
    /// Where requests come in: the port that was found, where 0 was asked for.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Where health and metrics are.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Drains and stops: no new connections, what runs finishes, at most the drain's deadline; then what is left is cut and its records
    /// end unknown. `/readyz` says so meanwhile. Not cancel safe: dropped on the way, the rest is cut at once.
    pub async fn stop(mut self) -> Stopped {
        let until: Tick = self.env.clock.now() + self.deadline;
        self.readiness.draining();
        self.running.shutdown().trigger();
        let drained = self.running.drained().await;
        // Work whose client is gone belongs to the engine, not to a connection.
        let left = until.since(self.env.clock.now()).max(LAST_SETTLEMENTS);
        let settled = self.engine.drain(left).await;
        self.admin_stop.cancel();
        self.running.stop();
        self.opened.close();
        Stopped { cut: drained.cut, abandoned: settled.abandoned }
    }
}

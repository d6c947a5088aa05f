//! The pipeline, in one place.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use semel_admin::Metrics;
use semel_admin::metrics::Why;
use semel_core::env::Env;
use semel_http::{Guard, GuardLayer, RequestView};
use tower_layer::Layer as _;
use tower_service::Service;

use super::rules::{self, host};
use crate::config::{Mode, Rules, is_unsafe};
use crate::forward::{Forward, ForwardConfig, ResponseBody};
use crate::probe::{Host, Probing};
use crate::serve::{Core, Edge, EdgeConfig, Forwarded, Peer, RequestBody, RequestIds, Via};

/// What one connection's requests pass, from the outside in.
pub(super) type Stack = Edge<Probing<Guard<Dispatch>>>;

/// A request's body behind the guard: it says which run the request belongs to.
type Guarded = semel_http::RequestBody<RequestBody>;

/// What every runtime makes its stack from.
pub(super) struct Plan {
    pub(super) env: Env,
    pub(super) metrics: Metrics,
    pub(super) guard: GuardLayer,
    pub(super) probes: Arc<Host>,
    pub(super) routes: Arc<Rules>,
    pub(super) upstreams: Vec<ForwardConfig>,
    pub(super) forwarded: Forwarded,
    pub(super) via: Arc<Via>,
}

impl Plan {
    /// The stack of one runtime; what it returns makes the stack of a connection.
    pub(super) fn runtime(&self, core: &Core) -> impl Fn(&Peer) -> Stack + Send + use<> {
        let upstreams = self.upstreams.iter().map(|config| Forward::new(config.clone(), core.clone())).collect();
        let mut prefix = [0; 8];
        self.env.rng.fill(&mut prefix);
        let edge = EdgeConfig {
            forwarded: self.forwarded,
            request_ids: Some(Arc::new(RequestIds::new(u64::from_be_bytes(prefix)))),
            via: Some(Arc::clone(&self.via)),
        };
        // Innermost: the bytes go to the upstream of the rule, over connections of this runtime.
        let to = To { upstreams, routes: Arc::clone(&self.routes), metrics: self.metrics.clone() };
        let dispatch = Dispatch(Arc::new(to));
        // Around it the guard: whatever is sent twice is sent on once.
        let guard = self.guard.layer(dispatch);
        // Before the guard, so that no rule and no service sees one: the probes of `semel doctor --through`.
        let probing = Probing::new(guard, Arc::clone(&self.probes));
        // Outermost, after the limits of the connection: who sent it, and a name for it, so that the guard's log lines have one.
        move |peer: &Peer| Edge::new(probing.clone(), edge.clone(), peer)
    }
}

/// Sends a request to the upstream of its rule. Cloned for each guarded request, and therefore one count of references,
/// which is the runtime's own.
#[derive(Clone)]
pub(super) struct Dispatch(Arc<To>);

struct To {
    upstreams: Box<[Forward<Guarded>]>,
    routes: Arc<Rules>,
    metrics: Metrics,
}

impl To {
    /// A request with an effect that nobody guards: worth a number, with its reason.
    fn count_unguarded(&self, request: &RequestView<'_>) {
        let rule = rules::find(&self.routes, request);
        let rule = rule.and_then(|found| self.routes.get(found.index));
        let (name, why) = match rule {
            None => ("", Why::NoRule),
            Some(rule) if rule.mode.value == Mode::Off => (&*rule.name, Why::Off),
            Some(rule) => (&*rule.name, Why::NoKey),
        };
        self.metrics.rule(name).unguarded(why).add_one();
    }
}

impl Service<Request<Guarded>> for Dispatch {
    type Response = Response<ResponseBody<Guarded>>;
    type Error = Infallible;
    type Future = <Forward<Guarded> as Service<Request<Guarded>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Guarded>) -> Self::Future {
        // The guard leaves the run on what it has claimed.
        let run = request.body().run().cloned();
        if run.is_none() && is_unsafe(request.method()) {
            self.0.count_unguarded(&RequestView::of(&request));
        }
        let To { upstreams, routes, .. } = &*self.0;
        let index = match &**upstreams {
            [_] => 0,
            _ => routes.upstream(request.method(), host(&RequestView::of(&request)), request.uri().path()),
        };
        // Indexes come from the same file as the upstreams.
        upstreams[index.min(upstreams.len() - 1)].send(request, run)
    }
}

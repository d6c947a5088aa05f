//! What runs under the grant: the inner service.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::Body;
use semel_core::{
    engine::{Engine, Ran, Run},
    identity::Identity,
    store::FenceStrength,
};
use tokio::sync::oneshot;
use tower_service::Service;

use super::{
    BoxError, RequestBody,
    future::Early,
    gather::Whole,
    record::{Recorder, failed},
};
use crate::{
    names::{SEMEL_ATTEMPT, SEMEL_FENCE, SEMEL_IDENTITY},
    problem::ProblemKind,
    rule::Rule,
};

/// What is needed to run; dropped as soon as the claim is not ours.
pub(super) struct Work<S> {
    pub(super) service: S,
    pub(super) head: http::request::Parts,
    pub(super) body: Whole,
    pub(super) rule: Arc<Rule>,
    pub(super) engine: Engine,
    pub(super) early: oneshot::Sender<Early>,
}

/// What the work gives to the first caller.
pub(super) enum Done<E> {
    /// A whole answer. Boxed: it changes hands several times.
    Answer(Box<Given>),
    /// The inner service's error.
    Failed(E),
    /// The answer broke off.
    Broken,
    /// The answer went ahead; whether all of it was handed over.
    Streamed { complete: bool },
}

/// A whole answer.
pub(super) struct Given {
    pub(super) head: http::response::Parts,
    pub(super) body: Whole,
    /// It was made by whoever could not reach the service.
    pub(super) not_sent: bool,
    /// It stands for an answer that is missing, of this kind.
    pub(super) instead: Option<ProblemKind>,
}

impl<S> Work<S> {
    pub(super) async fn run<B, R>(mut self: Box<Self>, run: Run) -> Ran<Done<S::Error>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        self.sign(&run);
        let Self { mut service, mut head, body, rule, engine, early } = *self;
        head.extensions.insert(run);
        let request = Request::from_parts(head, RequestBody::whole(body));
        match service.call(request).await {
            Ok(answer) => Recorder { rule: &rule, engine: &engine }.record(answer, early).await,
            Err(error) => Ran { value: Done::Failed(error), verdict: failed(&rule, "the service failed") },
        }
    }

    /// Tells the service which grant it runs under.
    fn sign(&mut self, run: &Run) {
        let headers = &mut self.head.headers;
        if let Ok(identity) = HeaderValue::try_from(text(run.identity())) {
            headers.insert(&SEMEL_IDENTITY, identity);
        }
        let fence = run.fence().get();
        let fence = match self.engine.facts().fence {
            FenceStrength::Strong => HeaderValue::from(fence),
            FenceStrength::Advisory => {
                HeaderValue::try_from(format!("{fence};advisory")).unwrap_or_else(|_| HeaderValue::from(fence))
            }
        };
        headers.insert(&SEMEL_FENCE, fence);
        headers.insert(&SEMEL_ATTEMPT, HeaderValue::from(run.attempt()));
    }
}

/// `Identity`'s text, without the formatter: it goes out with every request.
fn text(identity: &Identity) -> Vec<u8> {
    const PAIRS: [[u8; 2]; 256] = {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let (mut pairs, mut i) = ([[0; 2]; 256], 0);
        while i < 256 {
            pairs[i] = [DIGITS[i >> 4], DIGITS[i & 15]];
            i += 1;
        }
        pairs
    };
    let namespace = identity.namespace().as_str();
    let mut out = Vec::with_capacity(namespace.len() + 67);
    out.extend_from_slice(namespace.as_bytes());
    out.extend_from_slice(&[b':', identity.kind() as u8, b':']);
    let digits: [[u8; 2]; 32] = identity.digest().map(|byte| PAIRS[usize::from(byte)]);
    out.extend_from_slice(digits.as_flattened());
    out
}

#[cfg(test)]
mod tests {
    use semel_core::identity::{Display, Key, Kind, Namespace, Scope, Secret};

    use super::*;

    #[test]
    fn the_identity_goes_out_as_it_is_read() {
        let secret = Secret::from_material(b"0123456789abcdef").unwrap();
        let key = Key::new("k", Display::Masked);
        let namespace = Namespace::http("orders").unwrap();
        let identity = Identity::new(&secret, Kind::Key, namespace, &Scope::shared(), &key);
        assert_eq!(text(&identity), identity.to_string().into_bytes());
    }
}

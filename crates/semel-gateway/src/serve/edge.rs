//! What the gateway adds to a request on its way in: who sent it, and a name for it.

use std::{
    fmt::Write,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response,
    header::{HOST, VIA},
};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{Peer, Via};
use crate::forward::hop::is_common;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const HOST_SEEN: HeaderName = HeaderName::from_static("x-forwarded-host");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What to make of `X-Forwarded-For`, `-Host` and `-Proto` that come with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Forwarded {
    /// Keep them, add the peer to `-For`, fill in the others where they are missing. The last address is the one this
    /// gateway saw. Right behind another proxy.
    #[default]
    Append,
    /// Forget them: the peer is the client. Right at the edge.
    Replace,
}

/// Names for requests that come without one: unique among all gateways, and no secret.
pub struct RequestIds {
    prefix: u64,
    next: AtomicU64,
}

impl RequestIds {
    /// Ids that begin with `prefix`, which should be random and the runtime's own.
    pub fn new(prefix: u64) -> Self {
        Self { prefix, next: AtomicU64::new(0) }
    }

    fn next(&self) -> HeaderValue {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = u128::from(self.prefix) << 64 | u128::from(number);
        let mut text = const_hex::Buffer::<16>::new();
        text.format(&id.to_be_bytes());
        // Owned in this way a second handle, which each id gets, costs no second allocation.
        let text: [u8; 32] = *text.as_byte_array();
        HeaderValue::from_maybe_shared(Bytes::from_owner(text)).unwrap_or(HeaderValue::from_static("0"))
    }
}

/// How requests are marked on their way in.
#[derive(Clone)]
pub struct EdgeConfig {
    /// The forwarding fields.
    pub forwarded: Forwarded,
    /// Names for requests without `X-Request-Id`; none where absent.
    pub request_ids: Option<Arc<RequestIds>>,
    /// The gateway's name, put into `Via` of what comes through another proxy.
    pub via: Option<Arc<Via>>,
}

/// The service that marks requests: `X-Forwarded-For`, `-Host`, `-Proto`, `X-Request-Id`. One per connection. The name of
/// the request goes back with its answer, unless the service gave another.
#[derive(Clone)]
pub struct Edge<S> {
    inner: S,
    config: EdgeConfig,
    address: HeaderValue,
}

impl<S> Edge<S> {
    /// Marks requests of `peer` for `inner`.
    pub fn new(inner: S, config: EdgeConfig, peer: &Peer) -> Self {
        let address = peer.address.ip().to_canonical().to_string();
        let address =
            HeaderValue::from_maybe_shared(Bytes::from(address)).unwrap_or(HeaderValue::from_static("unknown"));
        Self { inner, config, address }
    }

    /// Marks a request and tells its name.
    fn mark(&self, headers: &mut HeaderMap) -> Option<HeaderValue> {
        let there = There::of(headers);
        let replace = self.config.forwarded == Forwarded::Replace;
        let addresses = match there.addresses && !replace {
            true => appended(headers, &self.address),
            false => self.address.clone(),
        };
        headers.insert(FOR, addresses);
        if let Some(via) = &self.config.via
            && there.through_a_proxy()
        {
            via.mark(headers);
        }
        if replace || !there.proto {
            headers.insert(PROTO, HeaderValue::from_static("http"));
        }
        if replace || !there.host_seen {
            match there.host {
                Some(host) => headers.insert(HOST_SEEN, host),
                None => headers.remove(HOST_SEEN),
            };
        }
        there.request_id.or_else(|| {
            let id = self.config.request_ids.as_ref()?.next();
            headers.insert(REQUEST_ID, id.clone());
            Some(id)
        })
    }
}

/// What one pass over the fields finds.
#[derive(Default)]
struct There {
    host: Option<HeaderValue>,
    addresses: bool,
    host_seen: bool,
    proto: bool,
    via: bool,
    /// The first, where there are several.
    request_id: Option<HeaderValue>,
}

impl There {
    fn through_a_proxy(&self) -> bool {
        self.addresses || self.host_seen || self.proto || self.via
    }

    fn of(headers: &HeaderMap) -> Self {
        let mut there = Self::default();
        for (name, value) in headers {
            if *name == HOST {
                there.host = Some(value.clone());
                continue;
            }
            if is_common(name) {
                continue;
            }
            if *name == VIA {
                there.via = true;
                continue;
            }
            match name.as_str() {
                "x-forwarded-for" => there.addresses = true,
                "x-forwarded-host" => there.host_seen = true,
                "x-forwarded-proto" => there.proto = true,
                "x-request-id" if there.request_id.is_none() => there.request_id = Some(value.clone()),
                _ => {}
            }
        }
        there
    }
}

/// One line instead of several: some readers know only the first.
#[cold]
fn appended(headers: &HeaderMap, address: &HeaderValue) -> HeaderValue {
    let mut line = String::new();
    for value in headers.get_all(FOR).iter().chain([address]) {
        if let Ok(text) = value.to_str() {
            let _ = write!(line, "{}{text}", if line.is_empty() { "" } else { ", " });
        }
    }
    HeaderValue::from_maybe_shared(Bytes::from(line)).unwrap_or_else(|_| address.clone())
}

pin_project! {
    /// The answer to come, with the name of its request.
    #[must_use = "futures do nothing unless polled"]
    pub struct Named<F> {
        #[pin]
        answer: F,
        id: Option<HeaderValue>,
    }
}

impl<F> Named<F> {
    pub(super) fn answer(&self) -> &F {
        &self.answer
    }
}

impl<F, R, E> Future for Named<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<R>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut answer = ready!(this.answer.poll(cx))?;
        if let Some(id) = this.id.take() {
            answer.headers_mut().entry(REQUEST_ID).or_insert(id);
        }
        Poll::Ready(Ok(answer))
    }
}

impl<S, B, R> Service<Request<B>> for Edge<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Named<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let id = self.mark(request.headers_mut());
        Named { answer: self.inner.call(request), id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    use futures_util::FutureExt;

    #[derive(Clone)]
    struct Echo;

    impl Service<Request<()>> for Echo {
        type Response = Response<HeaderMap>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<HeaderMap>, Infallible>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }
        fn call(&mut self, request: Request<()>) -> Self::Future {
            std::future::ready(Ok(Response::new(request.into_parts().0.headers)))
        }
    }

    fn seen(forwarded: Forwarded, sent: &[(&'static str, &'static str)]) -> HeaderMap {
        answered(forwarded, sent).into_body()
    }

    fn answered(forwarded: Forwarded, sent: &[(&'static str, &'static str)]) -> Response<HeaderMap> {
        let peer = Peer { address: ([10, 0, 0, 9], 5000).into(), local: ([10, 0, 0, 1], 80).into() };
        let config =
            EdgeConfig { forwarded, request_ids: Some(Arc::new(RequestIds::new(7))), via: Some(Arc::new(Via::new(7))) };
        let mut request = Request::get("/").header(HOST, "shop.example");
        for (name, value) in sent {
            request = request.header(*name, *value);
        }
        Edge::new(Echo, config, &peer).call(request.body(()).unwrap()).now_or_never().unwrap().unwrap()
    }

    #[test]
    fn a_request_without_marks_gets_them() {
        let h = seen(Forwarded::Append, &[]);
        assert_eq!(
            (&h[FOR], &h[PROTO], &h[HOST_SEEN]),
            (&"10.0.0.9".parse().unwrap(), &"http".parse().unwrap(), &"shop.example".parse().unwrap())
        );
        assert_eq!(h[REQUEST_ID], "00000000000000070000000000000000");
    }

    #[test]
    fn the_client_is_told_the_name_of_its_request() {
        let made = answered(Forwarded::Append, &[]);
        assert_eq!(made.headers()[REQUEST_ID], "00000000000000070000000000000000");
        assert_eq!(answered(Forwarded::Append, &[("x-request-id", "r1")]).headers()[REQUEST_ID], "r1");
    }

    #[test]
    fn behind_a_proxy_its_marks_are_kept_and_the_peer_is_last() {
        let sent = [
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "2.2.2.2"),
            ("x-forwarded-proto", "https"),
            ("x-request-id", "r1"),
        ];
        let h = seen(Forwarded::Append, &sent);
        assert_eq!(h.get_all(FOR).iter().collect::<Vec<_>>(), ["1.1.1.1, 2.2.2.2, 10.0.0.9"]);
        assert_eq!((&h[PROTO], &h[REQUEST_ID]), (&"https".parse().unwrap(), &"r1".parse().unwrap()));
    }

    #[test]
    fn only_what_comes_through_a_proxy_is_marked_as_passed() {
        for forwarded in [Forwarded::Append, Forwarded::Replace] {
            assert_eq!(seen(forwarded, &[("x-request-id", "r1")]).get(VIA), None);
            for sent in [("x-forwarded-for", "1.1.1.1"), ("x-forwarded-host", "a"), ("x-forwarded-proto", "https")] {
                assert_eq!(seen(forwarded, &[sent])[VIA], "1.1 semel-0000000000000007", "{sent:?}");
            }
            let both = seen(forwarded, &[("via", "1.0 edge")]);
            assert_eq!(both.get_all(VIA).iter().collect::<Vec<_>>(), ["1.0 edge", "1.1 semel-0000000000000007"]);
        }
    }

    #[test]
    fn at_the_edge_a_client_s_marks_are_forgotten() {
        let h = seen(
            Forwarded::Replace,
            &[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-host", "evil"), ("x-forwarded-proto", "https")],
        );
        assert_eq!(
            (&h[FOR], &h[PROTO], &h[HOST_SEEN]),
            (&"10.0.0.9".parse().unwrap(), &"http".parse().unwrap(), &"shop.example".parse().unwrap())
        );
    }
}

//! One request, one connection, one answer.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use http::{HeaderValue, Request, Response, StatusCode, Version, header::HOST};
use hyper::body::Incoming;
use semel_core::{
    engine::Run,
    env::{BootClock, Clock as _},
    identity::IdentityPrefix,
};
use tokio::time::Instant;

use super::{
    Guarded, Host, Shared,
    body::ResponseBody,
    hop::{self, Connection},
    problem::Problem,
    target, upgrade,
};
use crate::pool::{Age, Link, Look, Outgoing, Payload, Sent, Want};

/// The size of this future is paid for with each request, in its allocation and in copies: what happens before the
/// first wait stays outside, the request is held once, and connecting has a box of its own.
pub(super) fn run<B>(
    shared: Arc<Shared<B>>,
    mut request: Request<B>,
    run: Option<Run>,
) -> impl Future<Output = Result<Response<ResponseBody<B>>, Infallible>> + Send + 'static
where
    B: Payload,
{
    let fields = hop::Fields::of_outgoing(request.headers());
    let (names, has_host) = (fields.names, fields.host.is_some());
    let about = About { request_id: fields.request_id.cloned(), run };
    let guarded = about.run.is_some() || request.extensions().get::<Guarded>().is_some();
    let whole = guarded.then(|| Instant::now() + shared.config.whole);
    let mut upgrade = None;
    if names.connection != Connection::Nothing {
        hop::strip_named(request.headers_mut(), names.connection);
        upgrade = upgrade::wanted(&mut request);
    }
    rewrite(&shared, &mut request, names, has_host, upgrade.is_some());
    let mut want = if guarded { Want::Recent } else { Want::Any };
    // As the connection takes it, once: each such change moves the whole head.
    let mut request = request.map(Outgoing::new);
    async move {
        let answer = loop {
            let (mut link, age, now) = match shared.pool.take(want).await {
                Ok(taken) => taken,
                Err(e) => break unreachable(&shared, &about, &e),
            };
            // Connecting takes its time, and a process can be stopped for longer. Another owner may run by now.
            if about.run.as_ref().is_some_and(|run| !run.still_good()) {
                shared.pool.give_back(link);
                break unreachable(&shared, &about, &"the lease was over before the first byte");
            }
            if age == Age::Fresh {
                shared.config.counters.connected.add_one();
            }
            let before = link.written();
            let mut outcome = None;
            {
                let promise = pin!(link.send(request));
                answer(&mut link, promise, &mut outcome, now, shared.config.first_byte, whole).await;
            }
            let untouched = link.written() == before;
            match outcome {
                Some(Ok(answer)) if answer.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    break match upgrade {
                        Some(client) => upgrade::join(&shared.core, client, link, answer),
                        None => broken(&shared, &about, age, &"it switched protocols unasked"),
                    };
                }
                Some(Ok(answer)) => break pass_on(&shared, &about, link, answer, age, whole),
                Some(Err(mut e)) => match e.take_message() {
                    // Nothing was written: on a connection that had been at rest this is what its end looks like.
                    Some(again) if age == Age::Reused => {
                        shared.config.counters.sent_anew.add_one();
                        request = again;
                        want = Want::Fresh;
                    }
                    Some(_) => break unreachable(&shared, &about, e.error()),
                    None if link.sent() == Sent::Failed => break client_problem(e.error()).answer(),
                    None if untouched => break unreachable(&shared, &about, e.error()),
                    None => break broken(&shared, &about, age, e.error()),
                },
                None if untouched => break unreachable(&shared, &about, &"nothing could be written in time"),
                None => break timed_out(&shared, &about),
            }
        };
        Ok(answer)
    }
}

/// What is still asked about a request when it is gone itself: the grant it runs under, and what a log line names it by.
struct About {
    request_id: Option<HeaderValue>,
    run: Option<Run>,
}

impl About {
    fn request_id(&self) -> Option<&str> {
        self.request_id.as_ref()?.to_str().ok()
    }

    /// Empty fields are left out of a line.
    fn identity(&self) -> Option<tracing::field::DisplayValue<IdentityPrefix>> {
        self.run.as_ref().map(|run| tracing::field::display(run.identity().prefix()))
    }
}

fn rewrite<B>(shared: &Shared<B>, request: &mut Request<B>, names: hop::Names, has_host: bool, upgrading: bool)
where
    B: Payload,
{
    let absolute = target::to_origin_form(request);
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    hop::strip_request(headers, names, upgrading);
    match &shared.config.host {
        Host::Set(host) => {
            headers.insert(HOST, host.clone());
        }
        Host::Keep if has_host || absolute => {}
        Host::Keep => {
            headers.insert(HOST, shared.pool.address().host_header().clone());
        }
    }
}

/// Drives the connection until the head of the answer is there; leaves `None` in `outcome` where that takes too long.
/// Handed up through each of these functions it would be copied by each.
async fn answer<B, T>(
    link: &mut Link<B>,
    mut promise: Pin<&mut impl Future<Output = T>>,
    outcome: &mut Option<T>,
    now: Instant,
    first_byte: Duration,
    whole: Option<Instant>,
) where
    B: Payload,
{
    // The first pass writes the head at once, so `now` stands for the first progress.
    let (mut progress, mut seen) = (now, None);
    poll_fn(|cx| {
        link.drive(cx, Look::After, |link, cx| {
            if let Poll::Ready(ended) = promise.as_mut().poll(cx) {
                *outcome = Some(ended);
                return Poll::Ready(());
            }
            let written = link.written();
            if seen != Some(written) {
                if seen.is_some() {
                    progress = Instant::now();
                }
                seen = Some(written);
            }
            let first_byte = (link.sent() != Sent::Waiting).then(|| progress + first_byte);
            match [first_byte, whole].into_iter().flatten().min() {
                Some(at) if link.passed(at) => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
    })
    .await;
}

/// A body that broke off is the client's doing; one that stalled says so in its error.
fn client_problem(e: &hyper::Error) -> Problem {
    let mut source = std::error::Error::source(e);
    while let Some(e) = source {
        if let Some(crate::serve::RequestBodyError::Stalled(_)) = e.downcast_ref() {
            return Problem::RequestTimeout;
        }
        source = e.source();
    }
    Problem::RequestIncomplete
}

fn pass_on<B>(
    shared: &Shared<B>,
    about: &About,
    link: Box<Link<B>>,
    answer: Response<Incoming>,
    age: Age,
    whole: Option<Instant>,
) -> Response<ResponseBody<B>>
where
    B: Payload,
{
    let (mut head, incoming) = answer.into_parts();
    head.version = Version::HTTP_11;
    let keep = if about.run.is_some() { hop::Keep::Word } else { hop::Keep::Nothing };
    if !hop::strip_response(&mut head.headers, keep) {
        return broken(shared, about, age, &"its answer has a transfer coding that cannot be passed on");
    }
    let body = ResponseBody::passing(incoming, link, &shared.pool, shared.config.idle, whole);
    Response::from_parts(head, body)
}

#[cold]
fn unreachable<B>(shared: &Shared<B>, about: &About, why: &dyn std::fmt::Display) -> Response<ResponseBody<B>>
where
    B: Payload,
{
    shared.config.counters.unreachable.add_one();
    // Nothing took place, so not each of them is worth a line: whoever asks on and on must not fill the log.
    if let Some(withheld) = shared.unreached.next(BootClock.now()) {
        let (id, identity) = (about.request_id(), about.identity());
        tracing::warn!(
            upstream = %shared.pool.address(), id, identity, withheld, "upstream not reached, nothing was sent: {why}"
        );
    }
    Problem::UpstreamUnreachable.answer()
}

#[cold]
fn timed_out<B>(shared: &Shared<B>, about: &About) -> Response<ResponseBody<B>>
where
    B: Payload,
{
    shared.config.counters.timed_out.add_one();
    let (id, identity) = (about.request_id(), about.identity());
    tracing::warn!(upstream = %shared.pool.address(), id, identity, "upstream did not answer in time");
    Problem::UpstreamTimeout.answer()
}

#[cold]
fn broken<B>(shared: &Shared<B>, about: &About, age: Age, why: &dyn std::fmt::Display) -> Response<ResponseBody<B>>
where
    B: Payload,
{
    shared.config.counters.broken.add_one();
    if age == Age::Reused {
        shared.config.counters.broken_reused.add_one();
    }
    let (id, identity, reused) = (about.request_id(), about.identity(), age == Age::Reused);
    tracing::warn!(upstream = %shared.pool.address(), id, identity, reused, "upstream broke off: {why}");
    Problem::UpstreamBroken.answer()
}

//! One probe, answered.

use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use semel_core::engine::{Answer, Call, Ran, Verdict};
use semel_core::fingerprint::Fingerprint;
use semel_core::identity::{Display as Shown, Identity, Key, Kind, Namespace, Scope};
use semel_core::policy::{OnInFlight, Policy};
use semel_core::record::{Body as Kept, Format, Outcome};
use semel_http::names::{IDEMPOTENCY_STATUS, Status};

use super::mark::{Mark, Wish};
use super::report::{Field, Report, Saw, StoreSeen, Took};
use super::{ASK, service::Host};

/// A probe's body is not longer; more is an attempt to fill the memory, and is not read.
const LONGEST: usize = 64 << 10;

/// How long the record of a probe lives.
const KEPT_FOR: Duration = Duration::from_mins(1);

/// A copy waits so long for the one that runs, which ends at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers a request to the probe's path.
pub(super) async fn answer<B>(host: Arc<Host>, request: Request<B>) -> Response<Bytes>
where
    B: Body<Data = Bytes>,
{
    let mark = request.headers().get(ASK).and_then(|mark| mark.to_str().ok());
    let mark = match Mark::read(mark, host.engine.secret(), host.env.clock.wall()) {
        Ok(mark) => mark,
        // The reason is worth nothing to whoever has not the secret.
        Err(bad) => return plain(StatusCode::NOT_FOUND, bad.words().into()),
    };
    let (head, body) = request.into_parts();
    let Some(body) = whole(body).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "semel probe: the body is no probe's\n".into());
    };
    let secret = host.engine.secret();
    let digest = |bytes: &[u8]| Saw::digest(secret, bytes);
    let saw = Saw {
        method: head.method.to_string(),
        target: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        host: head.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned(),
        fields: head
            .headers
            .iter()
            .map(|(name, value)| Field { name: name.to_string(), digest: digest(value.as_bytes()) })
            .collect(),
        body: digest(&body),
    };
    let took = run(&host, &mark).await.unwrap_or_else(Took::Refused);
    let now = host.env.clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let clock = host.store.health().await.ok().map(|health| health.now.as_micros() / 1_000);
    let status = match (mark.wish, &took) {
        (Wish::Refuse, Took::Ran) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::OK,
    };
    let told = match &took {
        Took::Ran => Status::Fresh,
        Took::Copy { .. } => Status::Replayed,
        Took::Refused(_) => Status::Rejected,
    };
    let report = Report {
        version: host.version.to_string(),
        instance: host.instance.to_string(),
        nonce: const_hex::encode(mark.nonce),
        clock_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        store: StoreSeen {
            name: host.store.facts().name.to_owned(),
            clock_ms: clock.and_then(|ms| u64::try_from(ms).ok()),
        },
        rules: host.rules.to_string(),
        took,
        saw,
    };
    let mut answer = plain(status, report.seal(secret).into());
    answer.headers_mut().insert(&IDEMPOTENCY_STATUS, HeaderValue::from_static(told.as_str()));
    answer
}

/// Claims the probe as any request is claimed; its effect is the name of the gateway where it ran.
async fn run(host: &Host, mark: &Mark) -> Result<Took, String> {
    fn words(error: impl Display) -> String {
        error.to_string()
    }
    let key = Key::new(const_hex::encode(mark.nonce).as_str(), Shown::Masked);
    let namespace = Namespace::once("semel.doctor").map_err(words)?;
    let identity = Identity::new(host.engine.secret(), Kind::Key, namespace, &Scope::shared(), &key);
    let policy = Policy::key().named("semel-probe").ttl(KEPT_FOR).unknown_ttl(KEPT_FOR);
    let policy = policy.on_in_flight(OnInFlight::Wait(PATIENCE)).build().map_err(words)?;
    let call = Call::new(identity, Fingerprint::NONE, policy).shown(key.shown());
    let instance = Bytes::copy_from_slice(host.instance.as_bytes());
    let work = async move |_run| {
        let outcome = Outcome::new(Format::JSON, Bytes::new(), instance);
        Ran { value: (), verdict: Verdict::Keep(outcome) }
    };
    match host.engine.run(call, work).await {
        Answer::Executed { .. } => Ok(Took::Ran),
        Answer::Replayed { recorded, .. } => {
            let Kept::Whole(of) = recorded.outcome.body else { return Err("its outcome was not kept".to_owned()) };
            Ok(Took::Copy { of: String::from_utf8_lossy(&of).into_owned() })
        }
        Answer::Refused(refusal) => Err(refusal.name().to_owned()),
        _ => Err("it broke off".to_owned()),
    }
}

async fn whole<B: Body<Data = Bytes>>(body: B) -> Option<Vec<u8>> {
    let (mut body, mut all) = (pin!(body), Vec::new());
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if let Ok(data) = frame.ok()?.into_data() {
            all.extend_from_slice(&data);
        }
        if all.len() > LONGEST {
            return None;
        }
    }
    Some(all)
}

fn plain(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

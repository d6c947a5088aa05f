//! The load client: many copies of one request, each on a connection of its own that is open before the first one
//! starts, so that the start is not blurred by connecting.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::place::Place;
use super::trust;

/// Longer bodies are digested whole but kept only up to here.
const BODY_KEPT: usize = 1 << 20;
/// A connection that takes longer is counted as failed.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// What every copy sends.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where to.
    pub place: Place,
    /// The method.
    pub method: Method,
    /// All fields but `Content-Length` and, unless it should differ from the target's, `Host`.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// When a copy starts and, if it does not stay for the answer, how long after its start it hangs up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    /// Counted from the common start of all copies.
    pub after: Duration,
    /// The connection is closed this long after the request was written. A request of more than the socket takes at
    /// once may be cut within its body.
    pub hangs_up: Option<Duration>,
}

/// What one copy came back with.
#[derive(Debug)]
pub struct Reply {
    /// From its own start to the end of the answer or the trouble.
    pub took: Duration,
    /// The whole answer, or why there is none.
    pub result: Result<Answer, Trouble>,
}

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its body, or the first MiB of it.
    pub body: Bytes,
    /// Digest of the whole body.
    pub digest: blake3::Hash,
}

/// Why a copy has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No connection: nothing was sent.
    Connect(String),
    /// The connection broke before the answer was whole: nobody can tell what happened.
    Broken(String),
    /// No whole answer in time: nobody can tell what happened.
    TimedOut,
    /// This copy was told to hang up, and did.
    HungUp,
}

/// Called once per finished copy.
pub type Tick = Arc<dyn Fn() + Send + Sync>;

/// Fires one copy per element of `starts` and waits for all of them; replies come in the order of `starts`. `limit`
/// bounds each copy from its start. Dropping the future closes every connection.
pub async fn volley(request: &Request, starts: &[Start], limit: Duration, tick: &Tick) -> Vec<Reply> {
    let mut opening = JoinSet::new();
    for index in 0..starts.len() {
        let place = request.place.clone();
        opening.spawn(async move { (index, open(&place, limit).await) });
    }
    let mut lines: Vec<_> = starts.iter().map(|_| None).collect();
    while let Some(opened) = opening.join_next().await {
        if let Ok((index, line)) = opened {
            lines[index] = Some(line);
        }
    }

    let go = Instant::now();
    let mut running = JoinSet::new();
    for (index, (line, start)) in lines.into_iter().zip(starts).enumerate() {
        let (request, start, tick) = (request.clone(), *start, tick.clone());
        running.spawn(async move {
            sleep_until(go + start.after).await;
            let began = Instant::now();
            let result = match line.unwrap_or_else(|| Err(Trouble::Connect("the connecting task ended".to_owned()))) {
                Ok(line) => line.exchange(&request, start.hangs_up, limit).await,
                Err(trouble) => Err(trouble),
            };
            tick();
            (index, Reply { took: began.elapsed(), result })
        });
    }
    let mut replies: Vec<_> = starts.iter().map(|_| None).collect();
    while let Some(done) = running.join_next().await {
        if let Ok((index, reply)) = done {
            replies[index] = Some(reply);
        }
    }
    let lost = || Reply { took: Duration::ZERO, result: Err(Trouble::Broken("the copy's task ended".to_owned())) };
    replies.into_iter().map(|reply| reply.unwrap_or_else(lost)).collect()
}

/// Fires one request at once.
pub async fn single(request: &Request, limit: Duration) -> Reply {
    let silent: Tick = Arc::new(|| {});
    let mut replies = volley(request, &[Start::default()], limit, &silent).await;
    replies.remove(0)
}

type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

struct Line {
    sender: SendRequest<Full<Bytes>>,
    driver: Connection<TokioIo<Stream>, Full<Bytes>>,
}

/// A connection within [`CONNECT_LIMIT`], and TLS over it within `limit`: thousands of handshakes at once keep this
/// machine busy for longer than a lost packet should be waited for.
async fn open(place: &Place, limit: Duration) -> Result<Line, Trouble> {
    let late = |what: &str| Trouble::Connect(format!("no {what} in time"));
    let connecting = TcpStream::connect(&*place.addresses);
    let stream = timeout(limit.min(CONNECT_LIMIT), connecting).await.map_err(|_| late("connection"))?;
    let stream = stream.map_err(|error| Trouble::Connect(error.to_string()))?;
    stream.set_nodelay(true).map_err(|error| Trouble::Connect(error.to_string()))?;
    let stream = match &place.secure {
        None => Either::Left(stream),
        Some(secure) => {
            let securing = secure.connector.connect(secure.name.clone(), stream);
            let secured = timeout(limit, securing).await.map_err(|_| late("TLS"))?;
            Either::Right(Box::new(secured.map_err(|error| Trouble::Connect(trust::refusal(&error)))?))
        }
    };
    let (sender, driver) =
        handshake(TokioIo::new(stream)).await.map_err(|error| Trouble::Connect(error.to_string()))?;
    Ok(Line { sender, driver })
}

impl Line {
    async fn exchange(
        mut self,
        request: &Request,
        hangs_up: Option<Duration>,
        limit: Duration,
    ) -> Result<Answer, Trouble> {
        let talk = async {
            let mut message = http::Request::new(Full::new(request.body.clone()));
            *message.method_mut() = request.method.clone();
            *message.uri_mut() = request.place.target.path().clone();
            *message.headers_mut() = request.headers.clone();
            if !request.headers.contains_key(HOST) {
                let host = HeaderValue::from_str(request.place.target.authority());
                message.headers_mut().insert(HOST, host.map_err(|error| Trouble::Connect(error.to_string()))?);
            }
            let response = self.sender.send_request(message).await.map_err(|error| broken(&error))?;
            read(response).await
        };
        let talk_and_drive = async {
            tokio::pin!(talk);
            let driver = self.driver;
            tokio::pin!(driver);
            tokio::select! {
                biased;
                answer = &mut talk => answer,
                // The connection is done; what it received is still on its way through the channel.
                _ = &mut driver => talk.await,
            }
        };
        // Polled in this order the request is written before the moment of hanging up is looked at, even if that is 0.
        tokio::select! {
            biased;
            answer = talk_and_drive => answer,
            () = sleep(hangs_up.unwrap_or_default()), if hangs_up.is_some() => Err(Trouble::HungUp),
            () = sleep(limit) => Err(Trouble::TimedOut),
        }
    }
}

async fn read(response: http::Response<Incoming>) -> Result<Answer, Trouble> {
    let (head, mut body) = response.into_parts();
    let mut kept = BytesMut::new();
    let mut hasher = blake3::Hasher::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() {
            hasher.update(&data);
            let room = BODY_KEPT.saturating_sub(kept.len());
            kept.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok(Answer { status: head.status, headers: head.headers, body: kept.freeze(), digest: hasher.finalize() })
}

fn broken(error: &hyper::Error) -> Trouble {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    Trouble::Broken(text)
}

impl Trouble {
    /// For a sentence.
    pub fn words(&self) -> String {
        match self {
            Self::Connect(why) => format!("cannot connect: {why}"),
            Self::Broken(why) => format!("the connection broke: {why}"),
            Self::TimedOut => "no answer in time".to_owned(),
            Self::HungUp => "hung up as told".to_owned(),
        }
    }
}

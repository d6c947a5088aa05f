//! The demo's parts, with the order service it really uses and a stand-in for the gateway.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use semel_cli::demo::{Args, Gateway, Service, Wanted, play};
use semel_cli::exit::{Exit, Failure};
use semel_cli::prove::load::{Request, single};
use semel_cli::prove::{Place, Target, Trust};
use semel_cli::term::Look;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, oneshot};

use crate::semel::run;

type Kept = Arc<Mutex<HashMap<String, Bytes>>>;

#[derive(Clone)]
struct Guard {
    upstream: String,
    kept: Option<Kept>,
}

/// Lets one request per key through, if it keeps anything at all.
async fn guard(State(guard): State<Guard>, headers: HeaderMap, body: Bytes) -> (StatusCode, HeaderMap, Bytes) {
    let key = headers["idempotency-key"].to_str().expect("ASCII").to_owned();
    let mut marks = HeaderMap::new();
    let Some(kept) = &guard.kept else { return (StatusCode::CREATED, marks, order(&guard.upstream, body).await) };
    let mut kept = kept.lock().await;
    if let Some(answer) = kept.get(&key) {
        marks.insert("idempotent-replayed", "true".parse().expect("a value"));
        return (StatusCode::CREATED, marks, answer.clone());
    }
    let answer = order(&guard.upstream, body).await;
    kept.insert(key, answer.clone());
    (StatusCode::CREATED, marks, answer)
}

async fn order(upstream: &str, body: Bytes) -> Bytes {
    let reply = single(&request(upstream, "/orders", "POST", body).await, Duration::from_secs(10)).await;
    reply.result.expect("the service answers").body
}

async fn request(base: &str, path: &str, method: &str, body: impl Into<Bytes>) -> Request {
    let target: Target = format!("{base}{path}").parse().expect("a URL");
    let mut headers = HeaderMap::new();
    headers.insert("content-type", "application/json".parse().expect("a value"));
    Request {
        place: Place::find(target, &Trust::default()).await.expect("an address"),
        method: method.parse().expect("a method"),
        headers,
        body: body.into(),
    }
}

async fn gateway(wanted: Wanted, keeps: bool) -> anyhow::Result<Gateway> {
    assert!(wanted.data_dir.is_dir() && wanted.listen.ip().is_loopback());
    let listener = TcpListener::bind(wanted.listen).await?;
    let http = listener.local_addr()?;
    let guarded = Guard { upstream: wanted.upstream, kept: keeps.then(Kept::default) };
    let router = Router::new().route("/orders", post(guard)).with_state(guarded);
    let (stop, stopped) = oneshot::channel::<()>();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        _ = axum::serve(listener, router).with_graceful_shutdown(async { _ = stopped.await }).await;
    });
    let stop = async move {
        _ = stop.send(());
        tasks.join_all().await;
    };
    Ok(Gateway { http, admin: wanted.admin, stop: Box::pin(stop) })
}

fn anywhere() -> Args {
    let free: Option<SocketAddr> = "127.0.0.1:0".parse().ok();
    Args { listen: free, admin: free, service: free, exit: true, dir: None }
}

async fn show(args: &Args, keeps: bool) -> (Result<Exit, Failure>, String) {
    let mut out = Vec::new();
    let never = std::future::pending();
    let exit = play(args, |wanted| gateway(wanted, keeps), never, &mut out, Look::plain(60)).await;
    (exit, String::from_utf8(out).expect("UTF-8"))
}

/// A page that tells when its last line is written.
struct Watched {
    text: Vec<u8>,
    seen: Option<oneshot::Sender<()>>,
}

impl std::io::Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.text.ends_with(b"Ctrl-C ends both.\n")
            && let Some(seen) = self.seen.take()
        {
            _ = seen.send(());
        }
        Ok(())
    }
}

/// `orders` of each row, in order.
fn orders(page: &str) -> Vec<u64> {
    let rows = page.lines().filter(|line| line.starts_with("  double click") || line.starts_with("  storm"));
    rows.map(|row| row[28..36].trim().parse().unwrap_or_else(|_| panic!("{row}"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_show_has_many_orders_without_a_guard_and_one_with_it() {
    let (exit, page) = show(&anywhere(), true).await;
    assert_eq!(exit.unwrap(), Exit::Clean, "{page}");
    assert_eq!(orders(&page), [2, 100, 1, 1], "{page}");
    assert!(page.contains("1 ran, 99 replayed"), "{page}");
    let long = page.lines().find(|line| line.chars().count() > 60 && !line.contains("database"));
    assert_eq!(long, None, "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_does_not_hold_is_said_and_exits_with_a_finding() {
    let (exit, page) = show(&anywhere(), false).await;
    assert_eq!(exit.unwrap(), Exit::Finding, "{page}");
    assert_eq!(orders(&page), [2, 100, 2, 100], "{page}");
    assert!(page.contains("More or less than one order"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_show_it_runs_on_until_it_is_stopped_and_keeps_a_given_directory() {
    let dir = tempfile::tempdir().unwrap();
    let args = Args { exit: false, dir: Some(dir.path().to_owned()), ..anywhere() };
    let (seen, invited) = oneshot::channel();
    let mut out = Watched { text: Vec::new(), seen: Some(seen) };
    let stop = async { _ = invited.await };
    let exit = play(&args, |wanted| gateway(wanted, true), stop, &mut out, Look::plain(60)).await;
    let page = String::from_utf8(out.text).unwrap();
    assert_eq!(exit.unwrap(), Exit::Clean, "{page}");
    assert!(page.lines().all(|line| line.chars().count() <= 60 || line.to_lowercase().contains("database")), "{page}");
    assert!(page.contains("curl -i http://127.0.0.1:") && page.ends_with("Stopping.\n"), "{page}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let service = Service::start(listener, &dir.path().join("orders.db")).await.unwrap();
    assert_eq!(service.orders().await.unwrap(), 104);
    service.stop(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asked_address_that_is_taken_is_an_error_with_the_way_out() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let args = Args { listen: Some(other.local_addr().unwrap()), ..anywhere() };
    let (exit, _) = show(&args, true).await;
    let failure = exit.unwrap_err();
    assert_eq!(failure.exit(), Exit::Runtime);
    assert!(failure.to_string().contains("(--listen)"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_service_is_a_real_one() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let service = Service::start(listener, &dir.path().join("orders.db")).await.unwrap();
    let base = format!("http://{}", service.address());
    let ask = async |path: &str, method: &str, body: &'static str| {
        let request = request(&base, path, method, body).await;
        let answer = single(&request, Duration::from_secs(5)).await.result.unwrap();
        (answer.status.as_u16(), answer.headers, String::from_utf8(answer.body.to_vec()).unwrap())
    };
    let (status, headers, body) = ask("/orders", "POST", r#"{"item":"book","qty":2}"#).await;
    assert_eq!((status, &headers["location"]), (201, &"/orders/1".parse().unwrap()), "{body}");
    assert!(body.starts_with(r#"{"order_id":1,"item":"book","qty":2,"placed_at":"#), "{body}");
    assert_eq!(ask("/orders/count", "GET", "").await.2, r#"{"orders":1}"#);
    assert!(ask("/orders", "GET", "").await.2.starts_with(r#"[{"order_id":1"#));
    assert_eq!(ask("/orders", "POST", r#"{"item":"book","qty":0}"#).await.0, 422);
    assert_eq!(ask("/orders", "POST", r#"{"item":"book","qty":1000000}"#).await.0, 409);
    // The binary against the service as it is: the demo's first half, by other means.
    let url = format!("{base}/orders");
    let count = format!("{base}/orders/count");
    let ended = run(&["prove", &url, "--json", "--count-url", &count, "--concurrency=20", "--ramp=0"]).await;
    assert_eq!((ended.code, ended.json()["effects"]["most"].as_u64()), (1, Some(21)), "{ended:?}");
    service.stop(Duration::from_secs(5)).await;
}

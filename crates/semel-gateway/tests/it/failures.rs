use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use semel_core::{
    engine::{Begin, Call, Engine},
    env::{BootClock, BoxFuture, Clock, Env, Tick},
    fingerprint::Fingerprint,
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    policy::Policy,
    store::{Capacity, MemoryStore},
};
use tokio::net::TcpListener;

use crate::peers::{GET, GUARDED_GET, Gateway, PATIENCE, SOON, Upstream, field, status};

fn problem(answer: &(String, String)) -> (u16, &str, &str) {
    let name = answer.1.split("urn:semel:problem:").nth(1).and_then(|n| n.split('"').next()).unwrap_or("none");
    (status(&answer.0), name, field(&answer.0, "x-mark").unwrap_or("none"))
}

#[tokio::test]
async fn a_refused_connection_is_nothing_sent() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let gateway = Gateway::before(address);
    let mut wire = gateway.connect().await;
    let answer = wire.ask(GUARDED_GET).await;
    assert_eq!(problem(&answer), (502, "upstream-unreachable", "nothing-sent"));
    assert_eq!(field(&answer.0, "content-type"), Some("application/problem+json"));
    assert!(answer.1.contains("\"retryable\":true"), "{}", answer.1);
    // The client's connection lives on.
    assert_eq!(problem(&wire.ask(GET).await).0, 502);
}

#[tokio::test]
async fn a_connection_that_is_not_made_in_time_is_nothing_sent() {
    // A listener whose queue is full lets no further handshake end.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut fill = Vec::new();
    for _ in 0..8 {
        fill.push(tokio::spawn(tokio::net::TcpStream::connect(address)));
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let gateway = Gateway::with(address, |_, f| f.pool.connect_timeout = SOON);
    let answer = gateway.connect().await.ask(GUARDED_GET).await;
    assert_eq!(problem(&answer), (502, "upstream-unreachable", "nothing-sent"));
    fill.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn an_upstream_that_dies_after_reading_is_unknown_and_not_asked_again() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.head().await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let answer = gateway.connect().await.ask(GUARDED_GET).await;
    assert_eq!(problem(&answer), (502, "upstream-broken", "lost"));
    assert!(answer.1.contains("\"retryable\":false"));
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn a_kept_connection_that_dies_with_the_request_is_unknown_and_not_asked_again() {
    let upstream = Upstream::start(|n, mut wire| async move {
        wire.head().await;
        wire.answer("200 OK", "").await;
        if n == 0 {
            wire.head().await;
            return;
        }
        while wire.head().await.is_some() {
            wire.answer("200 OK", "").await;
        }
    })
    .await;
    let mut counters = None;
    let gateway = Gateway::with(upstream.address, |_, f| counters = Some(f.counters.clone()));
    let mut wire = gateway.connect().await;
    wire.ask(GET).await;
    assert_eq!(problem(&wire.ask(GET).await), (502, "upstream-broken", "lost"));
    assert_eq!(upstream.seen(), 1);
    let counters = counters.unwrap();
    assert_eq!((counters.broken.get(), counters.broken_reused.get(), counters.connected.get()), (1, 1, 1));
    assert_eq!(status(&wire.ask(GET).await.0), 200);
}

/// The upstream closes a kept connection at the very moment a request comes. Either the end was seen in time and the
/// request went out on a fresh connection, or a byte was written and the outcome is unknown: never is it sent twice.
#[tokio::test]
async fn a_request_is_sent_again_only_where_nothing_of_it_was_written() {
    let requests = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = requests.clone();
    let upstream = Upstream::start(move |_, mut wire| {
        let count = count.clone();
        async move {
            if wire.head().await.is_some() {
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                wire.answer("200 OK", "").await;
            }
        }
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    let (mut fine, mut lost) = (0, 0);
    for _ in 0..300 {
        // No pause: the end of the last connection and the next request race.
        match problem(&wire.ask(GET).await) {
            (200, ..) => fine += 1,
            (502, "upstream-broken", "lost") => lost += 1,
            (502, "upstream-unreachable", "nothing-sent") => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(requests.load(std::sync::atomic::Ordering::SeqCst), fine);
    assert!(fine >= 100, "{fine} answered, {lost} lost");
}

#[tokio::test]
async fn no_answer_in_time_is_unknown() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::with(upstream.address, |_, f| f.first_byte = SOON);
    let began = tokio::time::Instant::now();
    let answer = gateway.connect().await.ask(GUARDED_GET).await;
    assert_eq!(problem(&answer), (504, "upstream-timeout", "lost"));
    assert!(began.elapsed() >= SOON && began.elapsed() < PATIENCE);
}

#[tokio::test]
async fn time_in_which_the_client_owes_its_body_is_not_the_upstream_s() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.head().await;
        wire.body(4).await;
        wire.answer("200 OK", "").await;
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::with(upstream.address, |_, f| f.first_byte = SOON);
    let mut wire = gateway.connect().await;
    wire.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab").await;
    tokio::time::sleep(SOON * 3).await;
    assert_eq!(status(&wire.ask("cd").await.0), 200);
}

#[tokio::test]
async fn a_truncated_answer_cuts_the_client_s_connection() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\nzz\r\n",
    ] {
        let upstream = Upstream::start(move |_, mut wire| async move {
            wire.head().await;
            wire.send(answer).await;
        })
        .await;
        let gateway = Gateway::before(upstream.address);
        let mut wire = gateway.connect().await;
        wire.send(GET).await;
        // What came in one piece with its own end may not be delivered at all; it is never completed.
        if let Some(head) = wire.head().await {
            assert_eq!(status(&head), 200);
            let rest = wire.rest().await;
            assert!(!rest.ends_with(b"0\r\n\r\n") && rest.len() < 15, "{:?}", String::from_utf8_lossy(&rest));
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_no_http_is_unknown() {
    for answer in [
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx y: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ] {
        let upstream = Upstream::start(move |_, mut wire| async move {
            wire.head().await;
            wire.send(answer).await;
            wire.rest().await;
        })
        .await;
        let gateway = Gateway::before(upstream.address);
        let answer = gateway.connect().await.ask(GUARDED_GET).await;
        assert_eq!(problem(&answer), (502, "upstream-broken", "lost"));
    }
}

#[tokio::test]
async fn a_guarded_answer_has_to_end_in_time_and_a_stream_may_go_on() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.head().await;
        wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        for _ in 0..20 {
            if !wire.try_send("1\r\n.\r\n").await {
                return;
            }
            tokio::time::sleep(SOON / 6).await;
        }
        wire.try_send("0\r\n\r\n").await;
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::with(upstream.address, |_, f| f.whole = SOON);
    let (mut guarded, mut stream) = (gateway.connect().await, gateway.connect().await);
    guarded.send(GUARDED_GET).await;
    stream.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert!(!guarded.rest().await.ends_with(b"0\r\n\r\n"));
    assert!(stream.rest().await.ends_with(b"0\r\n\r\n"));
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_cut() {
    let upstream = Upstream::start(|_, mut wire| async move {
        wire.head().await;
        wire.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345").await;
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::with(upstream.address, |_, f| f.idle = SOON);
    let mut wire = gateway.connect().await;
    wire.send(GET).await;
    assert!(wire.rest().await.ends_with(b"12345"));
}

#[tokio::test]
async fn an_early_answer_counts_and_its_connection_is_not_used_again() {
    let upstream = Upstream::start(|n, mut wire| async move {
        wire.head().await;
        match n {
            0 => wire.answer("413 Payload Too Large", "no").await,
            _ => wire.answer("200 OK", "").await,
        }
        wire.rest().await;
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    wire.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\nabc").await;
    let (head, body) = wire.response().await;
    assert_eq!((status(&head), body.as_str(), field(&head, "x-mark")), (413, "no", None));
    assert_eq!(status(&gateway.connect().await.ask(GET).await.0), 200);
    assert_eq!(upstream.seen(), 2);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_unguarded_request_along() {
    let (gone, mut seen) = tokio::sync::mpsc::channel(1);
    let upstream = Upstream::start(move |_, mut wire| {
        let gone = gone.clone();
        async move {
            wire.head().await;
            wire.rest().await;
            let _ = gone.send(()).await;
        }
    })
    .await;
    let gateway = Gateway::before(upstream.address);
    let mut wire = gateway.connect().await;
    wire.send(GET).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(wire);
    tokio::time::timeout(PATIENCE, seen.recv()).await.unwrap().unwrap();
}

/// The machine's clock, set ahead by so many seconds: what a process sees that was stopped for that long.
#[derive(Default)]
struct Stopped(AtomicU64);

impl Clock for Stopped {
    fn now(&self) -> Tick {
        BootClock.now() + Duration::from_secs(self.0.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, t: Tick) -> BoxFuture {
        BootClock.sleep_until(Tick::from_nanos(BootClock.now().as_nanos() + t.since(self.now()).as_nanos() as u64))
    }

    fn wall(&self) -> std::time::SystemTime {
        BootClock.wall()
    }
}

/// The deadline was looked at before the work began, and no more: a process stopped between that and the first byte sent
/// its request when another owner had long taken over.
#[tokio::test]
async fn nothing_is_sent_under_a_lease_that_is_over() {
    let clock = Arc::new(Stopped::default());
    let env = Env { clock: clock.clone(), ..Env::system() };
    let secret = Secret::from_material(&[7; 32]).unwrap();
    let key = Key::new("k", Display::Masked);
    let id = Identity::new(&secret, Kind::Key, Namespace::http("t").unwrap(), &Scope::shared(), &key);
    let engine = Engine::builder(Arc::new(MemoryStore::new(&env, Capacity::default())), secret).env(env).build();
    let call = Call::new(id, Fingerprint::NONE, Policy::key().build().unwrap());
    let Begin::Granted(grant) = engine.begin(call).await else { panic!("nobody else asks") };

    let upstream = Upstream::start(|_, mut wire| async move {
        while wire.head().await.is_some() {
            wire.answer("200 OK", "").await;
        }
    })
    .await;
    let gateway = Gateway::under(Some(grant.run()), upstream.address, |_, _| {});
    let mut wire = gateway.connect().await;
    assert_eq!(status(&wire.ask(GUARDED_GET).await.0), 200);
    clock.0.store(11, Ordering::Relaxed);
    assert_eq!(problem(&wire.ask(GUARDED_GET).await), (502, "upstream-unreachable", "nothing-sent"));
    clock.0.store(0, Ordering::Relaxed);
    assert_eq!(upstream.seen(), 1);
}

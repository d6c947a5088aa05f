//! Real sockets, and so real time.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};

use super::{Proxy, Rule, Speaks, Then, Way};

const SOON: Duration = Duration::from_millis(150);
/// What is on time is faster than this even on a busy machine.
const LATE: Duration = Duration::from_millis(600);
const LONG: Duration = Duration::from_secs(20);

/// Remembers what it heard, and answers each piece by a rule of the test.
struct Server {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    async fn start(answer: fn(&[u8]) -> Vec<u8>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&heard);
        #[expect(clippy::disallowed_methods, reason = "a server lives beside the test")]
        tokio::spawn(async move {
            let mut all = tokio::task::JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                all.spawn(async move {
                    let mut piece = [0; 4096];
                    while let Ok(n @ 1..) = stream.read(&mut piece).await {
                        log.lock().extend_from_slice(&piece[..n]);
                        if stream.write_all(&answer(&piece[..n])).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, heard }
    }

    async fn echo() -> Self {
        Self::start(<[u8]>::to_vec).await
    }

    fn heard(&self) -> String {
        String::from_utf8(self.heard.lock().clone()).unwrap()
    }

    async fn hears(&self, words: &str) {
        timeout(LONG, async {
            while !self.heard().contains(words) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("{words} was never heard, only {}", self.heard()));
    }
}

async fn client(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

async fn say(stream: &mut TcpStream, words: &str) {
    stream.write_all(words.as_bytes()).await.unwrap();
}

/// What comes next, up to as many bytes.
async fn hear(stream: &mut TcpStream, n: usize) -> io::Result<String> {
    let mut bytes = vec![0; n];
    timeout(LONG, stream.read_exact(&mut bytes)).await.expect("something comes")?;
    Ok(String::from_utf8(bytes).unwrap())
}

/// Nothing comes for a while, and the connection stays open.
async fn stays_silent(stream: &mut TcpStream) {
    let mut bytes = [0; 64];
    let read = timeout(SOON, stream.read(&mut bytes)).await;
    assert!(read.is_err(), "{read:?}: {}", String::from_utf8_lossy(&bytes));
}

async fn is_reset(stream: &mut TcpStream) {
    let read = timeout(LONG, stream.read(&mut [0; 64])).await.expect("it ends");
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn what_is_said_arrives_and_is_counted() {
    let server = Server::echo().await;
    let proxy = Proxy::start(server.address).await;
    for n in 1..=2 {
        let mut stream = client(&proxy).await;
        say(&mut stream, "hello").await;
        assert_eq!(hear(&mut stream, 5).await.unwrap(), "hello");
        let counts = proxy.counts();
        assert_eq!((counts.connections, counts.requests), (n, n));
        assert_eq!((counts.bytes_there, counts.bytes_back), (5 * n, 5 * n));
        // An end goes through as well.
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_delay_is_for_its_direction_and_keeps_the_order() {
    let server = Server::echo().await;
    let proxy = Proxy::start(server.address).await;
    let mut stream = client(&proxy).await;
    proxy.delay(Way::Back, LATE);
    let began = Instant::now();
    say(&mut stream, "one").await;
    server.hears("one").await;
    let there = began.elapsed();
    assert_eq!(hear(&mut stream, 3).await.unwrap(), "one");
    assert!(began.elapsed() >= LATE, "back was late");
    assert!(there < LATE, "there was not: {there:?}");
    proxy.delay(Way::Back, Duration::ZERO);
    proxy.delay(Way::There, SOON);
    say(&mut stream, "two").await;
    stays_silent(&mut stream).await;
    proxy.heal();
    say(&mut stream, "three").await;
    assert_eq!(hear(&mut stream, 8).await.unwrap(), "twothree");
}

#[tokio::test]
async fn a_cut_resets_what_is_open_and_lets_new_ones_in() {
    let server = Server::echo().await;
    let proxy = Proxy::start(server.address).await;
    let mut streams = [client(&proxy).await, client(&proxy).await];
    for stream in &mut streams {
        say(stream, "a").await;
        hear(stream, 1).await.unwrap();
    }
    proxy.cut();
    for stream in &mut streams {
        is_reset(stream).await;
    }
    let mut again = client(&proxy).await;
    say(&mut again, "b").await;
    assert_eq!(hear(&mut again, 1).await.unwrap(), "b");
}

#[tokio::test]
async fn refusing_resets_the_old_and_the_new_until_it_is_healed() {
    let server = Server::echo().await;
    let proxy = Proxy::start(server.address).await;
    let mut old = client(&proxy).await;
    say(&mut old, "a").await;
    hear(&mut old, 1).await.unwrap();
    proxy.refuse();
    is_reset(&mut old).await;
    is_reset(&mut client(&proxy).await).await;
    assert_eq!((proxy.counts().connections, proxy.counts().refused), (2, 1));
    proxy.heal();
    let mut new = client(&proxy).await;
    say(&mut new, "b").await;
    assert_eq!(hear(&mut new, 1).await.unwrap(), "b");
}

#[tokio::test]
async fn silence_holds_what_is_said_and_healing_lets_it_go_on() {
    let server = Server::echo().await;
    let proxy = Proxy::start(server.address).await;
    let mut old = client(&proxy).await;
    say(&mut old, "a").await;
    hear(&mut old, 1).await.unwrap();
    proxy.stall();
    say(&mut old, "late").await;
    let mut new = client(&proxy).await;
    say(&mut new, "new").await;
    stays_silent(&mut old).await;
    stays_silent(&mut new).await;
    assert_eq!(server.heard(), "a");
    proxy.heal();
    assert_eq!(hear(&mut old, 4).await.unwrap(), "late");
    assert_eq!(hear(&mut new, 3).await.unwrap(), "new");
}

#[tokio::test]
async fn silence_of_the_server_alone_lets_requests_through() {
    let server = Server::echo().await;
    let proxy = Proxy::start(server.address).await;
    let mut stream = client(&proxy).await;
    proxy.silence(Way::Back);
    say(&mut stream, "done").await;
    server.hears("done").await;
    stays_silent(&mut stream).await;
}

#[tokio::test]
async fn a_cut_after_some_bytes_tears_a_message() {
    let server = Server::echo().await;
    let proxy = Proxy::start(server.address).await;
    let mut stream = client(&proxy).await;
    proxy.cut_after(Way::There, 8);
    say(&mut stream, "hello").await;
    assert_eq!(hear(&mut stream, 5).await.unwrap(), "hello");
    say(&mut stream, "world").await;
    server.hears("hellowor").await;
    // The echo of its beginning may come first.
    let mut rest = Vec::new();
    assert!(timeout(LONG, stream.read_to_end(&mut rest)).await.expect("it ends").is_err());
    assert_eq!(server.heard(), "hellowor");
    let mut again = client(&proxy).await;
    say(&mut again, "only once").await;
    assert_eq!(hear(&mut again, 9).await.unwrap(), "only once");
}

#[tokio::test]
async fn a_request_whose_reply_is_lost_was_executed() {
    let server = Server::echo().await;
    let proxy = Proxy::start(server.address).await;
    for (then, words) in [(Then::Close, "claim one"), (Then::Silence, "claim two")] {
        let fired = proxy.rule(Rule::runs(words).lose_reply(then));
        let mut stream = client(&proxy).await;
        say(&mut stream, "look").await;
        assert_eq!(hear(&mut stream, 4).await.unwrap(), "look");
        say(&mut stream, &words.to_uppercase()).await;
        server.hears(&words.to_uppercase()).await;
        match then {
            Then::Close => is_reset(&mut stream).await,
            Then::Silence => {
                stays_silent(&mut stream).await;
                // And it stays so, whatever is said on it.
                say(&mut stream, "hello?").await;
                stays_silent(&mut stream).await;
                assert!(!server.heard().contains("hello?"));
            }
        }
        assert_eq!(fired.count(), 1);
    }
}

#[tokio::test]
async fn a_lost_request_never_arrives() {
    let server = Server::echo().await;
    let proxy = Proxy::start(server.address).await;
    let fired = proxy.rule(Rule::any().after(1).lose_request(Then::Close));
    let mut stream = client(&proxy).await;
    say(&mut stream, "a").await;
    hear(&mut stream, 1).await.unwrap();
    say(&mut stream, "b").await;
    is_reset(&mut stream).await;
    assert_eq!((server.heard().as_str(), fired.count()), ("a", 1));
}

#[tokio::test]
async fn a_rule_acts_as_often_as_it_says_after_those_it_lets_go_by() {
    let server = Server::echo().await;
    let proxy = Proxy::start(server.address).await;
    let fired = proxy.rule(Rule::runs("x").after(1).times(2));
    let mut seen = Vec::new();
    for _ in 0..5 {
        let mut stream = client(&proxy).await;
        say(&mut stream, "x").await;
        seen.push(hear(&mut stream, 1).await.is_ok());
    }
    assert_eq!((seen, fired.count()), (vec![true, false, false, true, true], 2));
}

#[tokio::test]
async fn one_request_or_one_reply_is_late_alone() {
    let server = Server::echo().await;
    let proxy = Proxy::start(server.address).await;
    proxy.rule(Rule::runs("slow there").delay_request(LATE));
    proxy.rule(Rule::runs("slow back").delay_reply(LATE));
    for (words, arrives_late) in [("slow there", true), ("slow back", false)] {
        let mut stream = client(&proxy).await;
        let began = Instant::now();
        say(&mut stream, words).await;
        server.hears(words).await;
        assert_eq!(began.elapsed() >= LATE, arrives_late, "{words}");
        assert_eq!(hear(&mut stream, words.len()).await.unwrap(), words);
        assert!(began.elapsed() >= LATE, "{words}");
    }
}

/// Each command is one line; its answer is its last character.
fn redis(heard: &[u8]) -> Vec<u8> {
    let lines = String::from_utf8_lossy(heard).into_owned();
    lines.lines().flat_map(|l| format!("+{}\r\n", l.chars().last().unwrap()).into_bytes()).collect()
}

#[tokio::test]
async fn of_many_requests_on_one_connection_the_chosen_one_loses_its_reply() {
    let server = Server::start(redis).await;
    let proxy = Proxy::speaking(Speaks::Redis, server.address).await;
    let fired = proxy.rule(Rule::runs("evalsha 2").lose_reply(Then::Silence));
    let mut stream = client(&proxy).await;
    say(&mut stream, "EVALSHA 1\r\nEVALSHA 2\r\nEVALSHA 3\r\n").await;
    assert_eq!(hear(&mut stream, 4).await.unwrap(), "+1\r\n");
    stays_silent(&mut stream).await;
    assert_eq!((fired.count(), proxy.counts().requests), (1, 3));
    assert!(server.heard().contains("EVALSHA 2\r\n"));
}

#[tokio::test]
async fn a_held_request_goes_on_when_it_is_let_go_and_holds_up_no_other_connection() {
    let server = Server::echo().await;
    let proxy = Proxy::start(server.address).await;
    let (mut held, mut free) = (client(&proxy).await, client(&proxy).await);
    let fired = proxy.rule(Rule::when(|request| request.contains("wait")).hold_request());
    say(&mut held, "wait").await;
    stays_silent(&mut held).await;
    assert_eq!(fired.count(), 1);
    say(&mut free, "pass").await;
    assert_eq!(hear(&mut free, 4).await.unwrap(), "pass");
    assert_eq!(server.heard(), "pass");
    proxy.let_go();
    assert_eq!(hear(&mut held, 4).await.unwrap(), "wait");
    say(&mut held, "more").await;
    assert_eq!(hear(&mut held, 4).await.unwrap(), "more", "the rule is about one");
}

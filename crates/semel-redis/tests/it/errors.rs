//! Every error that a server or the way to it can have: whether the call can have changed anything.

#![expect(clippy::disallowed_methods, reason = "the peer is the test")]

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use semel_core::{
    env::Env,
    store::{Did, Renewal, Store, StoreError, StoreErrorKind},
};
use semel_redis::{Options, RedisStore};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::{
    codes::NOT_DONE,
    questions::{LEASE, TTL, about, done, granted, id},
};

/// What the server does when a call comes.
#[derive(Clone, Copy, Debug)]
enum Act {
    Say(&'static str),
    /// An error with this code; those that send elsewhere say where.
    Refuse(&'static str),
    HangUp,
    SayNothing,
}

/// A server that answers what a connection needs, and every call as it is told.
struct Actor {
    url: String,
    act: Arc<Mutex<Act>>,
    calls: Arc<AtomicUsize>,
    /// Its clock is told to nobody.
    is_timeless: Arc<AtomicBool>,
}

impl Actor {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("redis://{}", listener.local_addr().expect("it has an address"));
        let (act, calls) = (Arc::new(Mutex::new(Act::SayNothing)), Arc::new(AtomicUsize::new(0)));
        let is_timeless = Arc::new(AtomicBool::new(false));
        let (plays, counts, silent) = (Arc::clone(&act), Arc::clone(&calls), Arc::clone(&is_timeless));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (plays, counts, silent) = (Arc::clone(&plays), Arc::clone(&counts), Arc::clone(&silent));
                tokio::spawn(async move { serve(BufReader::new(stream), &plays, &counts, &silent).await });
            }
        });
        Self { url, act, calls, is_timeless }
    }

    async fn store(&self) -> RedisStore {
        let mut options = Options::default();
        options.response_timeout = Duration::from_millis(200);
        // What is short for a call can be short for the opening, where the machine is busy.
        for _ in 0..50 {
            match RedisStore::connect(&self.url, &Env::system(), options.clone()).await {
                Ok(store) => return store,
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
        }
        panic!("it does not open");
    }

    fn acts(&self, act: Act) {
        *self.act.lock() = act;
    }
}

async fn serve(
    mut stream: BufReader<TcpStream>,
    act: &Mutex<Act>,
    calls: &AtomicUsize,
    silent: &AtomicBool,
) -> io::Result<()> {
    loop {
        let command = command(&mut stream).await?;
        let reply = match command[0].as_slice() {
            b"HELLO" => "*4\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$4\r\nrole\r\n$6\r\nmaster\r\n".to_owned().into_bytes(),
            b"TIME" if silent.load(Ordering::Acquire) => b"-NOPERM no\r\n".to_vec(),
            b"TIME" => b"*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n".to_vec(),
            b"INFO" => b"$0\r\n\r\n".to_vec(),
            b"CONFIG" => b"*0\r\n".to_vec(),
            // Whether this user may, asked at the start.
            b"PUBLISH" => b":0\r\n".to_vec(),
            // The mark: as it was offered.
            b"EVAL" if command.len() == 5 && command[3] == b"semel:mark" => {
                let mut reply = format!("*3\r\n:1\r\n:1700000000000000\r\n${}\r\n", command[4].len()).into_bytes();
                reply.extend_from_slice(&command[4]);
                reply.extend_from_slice(b"\r\n");
                reply
            }
            b"EVALSHA" if command[3] == b"semel:mark" => b"-NOSCRIPT no\r\n".to_vec(),
            _ => {
                calls.fetch_add(1, Ordering::AcqRel);
                let act = *act.lock();
                match act {
                    Act::Say(line) => format!("{line}\r\n").into_bytes(),
                    Act::Refuse(code) => format!("-{code} 3999 127.0.0.1:1\r\n").into_bytes(),
                    Act::HangUp => return Ok(()),
                    Act::SayNothing => continue,
                }
            }
        };
        stream.get_mut().write_all(&reply).await?;
    }
}

async fn command(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<Vec<u8>>> {
    let mut command = Vec::new();
    for _ in 0..length(stream).await? {
        let mut part = vec![0; length(stream).await? + 2];
        stream.read_exact(&mut part).await?;
        part.truncate(part.len() - 2);
        command.push(part);
    }
    Ok(command)
}

async fn length(stream: &mut BufReader<TcpStream>) -> io::Result<usize> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.trim_end().get(1..).and_then(|n| n.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// One call of each kind that changes something; what went wrong with each.
async fn each_call(store: &RedisStore) -> Vec<StoreError> {
    let ask = about(1);
    let claim = ask.grant(semel_core::Fence::new(5).expect("it is not zero"), 1);
    let batch = [Renewal { claim: &claim, lease: LEASE, keep: TTL }];
    let held = semel_core::store::Releasing::Fate {
        identity: &ask.identity,
        owner: ask.owner(),
        keep: TTL,
        rest: crate::questions::rest(),
    };
    vec![
        store.claim(&ask).await.expect_err("it fails"),
        store.renew(&batch).await.expect("each has an answer").remove(0).expect_err("it fails"),
        store.settle(&claim, &done()).await.expect_err("it fails"),
        store.release(&held).await.expect_err("it fails"),
        store.withdraw(&id(1)).await.expect_err("it fails"),
    ]
}

/// The whole table, by every call. What a real server says of it is in [`crate::refusals`].
#[tokio::test]
async fn what_a_server_refuses_was_not_done() {
    let actor = Actor::start().await;
    let store = actor.store().await;
    for code in NOT_DONE {
        actor.acts(Act::Refuse(code));
        let kind = if code == "OOM" { StoreErrorKind::Full } else { StoreErrorKind::Unavailable };
        for error in each_call(&store).await {
            assert_eq!((error.did, error.kind), (Did::Nothing, kind), "{code}: {error}");
        }
    }
}

#[tokio::test]
async fn what_nobody_answers_is_unknown_and_is_not_sent_again() {
    let actor = Actor::start().await;
    let store = actor.store().await;
    for act in [Act::HangUp, Act::SayNothing, Act::Say("-ERR upstream failure"), Act::Say(":2"), Act::Say("*0")] {
        actor.acts(act);
        let before = actor.calls.load(Ordering::Acquire);
        for error in each_call(&store).await {
            assert_eq!((error.did, error.kind), (Did::Unknown, StoreErrorKind::Unavailable), "{act:?}: {error}");
        }
        assert_eq!(actor.calls.load(Ordering::Acquire) - before, 5, "{act:?}");
    }
}

#[tokio::test]
async fn a_read_that_fails_has_changed_nothing() {
    let actor = Actor::start().await;
    let store = actor.store().await;
    for act in [Act::HangUp, Act::SayNothing] {
        actor.acts(act);
        assert_eq!(store.get(&id(1)).await.expect_err("it fails").did, Did::Nothing);
    }
}

#[tokio::test]
async fn a_script_that_the_server_does_not_know_in_full_either_was_not_done() {
    let actor = Actor::start().await;
    let store = actor.store().await;
    actor.acts(Act::Say("-NOSCRIPT No matching script. Please use EVAL."));
    let error = store.claim(&about(1)).await.expect_err("it fails");
    let calls = actor.calls.load(Ordering::Acquire);
    assert_eq!((error.did, calls), (Did::Nothing, 3), "without a script, by digest, then in full");
}

/// It was written, and nobody knows with which time.
#[tokio::test]
async fn a_claim_after_which_the_server_does_not_tell_its_clock_is_unknown() {
    let actor = Actor::start().await;
    let store = actor.store().await;
    actor.acts(Act::Say("$-1"));
    granted(store.claim(&about(1)).await);
    actor.is_timeless.store(true, Ordering::Release);
    // It is asked once what was heard is old.
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(store.claim(&about(1)).await.expect_err("it fails").did, Did::Unknown);
}

/// An older one, or another make of it.
#[tokio::test]
async fn a_server_that_does_not_understand_a_claim_without_a_script_is_sent_one() {
    let actor = Actor::start().await;
    let store = actor.store().await;
    actor.acts(Act::Say("-ERR syntax error"));
    store.claim(&about(1)).await.expect_err("nor does it understand that");
    assert_eq!(actor.calls.load(Ordering::Acquire), 2);
}

#[tokio::test]
async fn a_server_that_is_not_there_was_not_asked() {
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port is free").local_addr().expect("it has an address");
    let error = RedisStore::connect(&format!("redis://{gone}"), &Env::system(), Options::default()).await;
    let error = error.expect_err("nobody is there");
    assert!(error.is_temporary(), "{error}");
}

/// The callers leave before the answer is due, as an engine does: the silence counts all the same.
#[tokio::test]
async fn a_silent_server_loses_its_connection_although_nobody_stays() {
    let actor = Actor::start().await;
    let store = actor.store().await;
    actor.acts(Act::SayNothing);
    let (claim, to) = (about(1).grant(semel_core::Fence::new(5).expect("it is not zero"), 1), done());
    let impatient = || tokio::time::timeout(Duration::from_millis(50), store.settle(&claim, &to));
    assert!(impatient().await.is_err(), "nobody answers");
    // On the old connection every answer would be one that somebody before is still owed.
    actor.acts(Act::Say("-READONLY You can't write against a read only replica."));
    for _ in 0..100 {
        if let Ok(answer) = impatient().await {
            assert_eq!(answer.expect_err("it fails").did, Did::Nothing);
            return;
        }
    }
    panic!("the silent connection is still in use");
}

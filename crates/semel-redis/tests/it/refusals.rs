//! Every code of the error table as a real server says it. The server's own count of its errors is the witness; before 7.0
//! it counts what a script raises as `ERR` alone, and the error's text is.

use std::{collections::BTreeSet, time::Duration};

use semel_core::store::{Claimed, Did, Store};
use semel_redis::RedisStore;
use semel_testkit::servers::redis::{Cluster, Redis, Said, Setup, is_modern};

use crate::{
    beds::connect,
    codes::NOT_DONE,
    questions::{about, done, granted, id, stands},
};

/// What no server has a reason to say to a store whose every script has one key, on the loopback. [`crate::errors`] has a
/// peer say it.
const NEVER_HERE: [&str; 3] = ["CROSSSLOT", "DENIED", "TRYAGAIN"];

/// How often what takes a moment to begin is tried.
const TRIES: u64 = 3_000;

/// Between two of these.
const PAUSE: Duration = Duration::from_millis(5);

/// What is said at the next log-in, after the connection was cut.
const IS_CUT: [&str; 2] = ["NOAUTH", "WRONGPASS"];

/// What the test shows of codes in so many words.
#[derive(Default)]
struct Seen(BTreeSet<&'static str>);

impl Seen {
    /// Claims until the server has refused one with `code`: nothing was done by it.
    async fn refused(&mut self, code: &'static str, server: &mut Admin, store: &RedisStore) {
        let before = server.errors(code).await;
        for n in 0..TRIES {
            match store.claim(&about(n)).await {
                Ok(_) => tokio::time::sleep(PAUSE).await,
                // One that was under way when its connection was cut.
                Err(error) if error.did == Did::Unknown && IS_CUT.contains(&code) => {}
                Err(error) => {
                    assert_eq!((error.did, error.is_full()), (Did::Nothing, code == "OOM"), "{code}: {error:?}");
                    let said = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    let is_told = !is_modern() && said.contains(&format!("{code} "));
                    if is_told || server.errors(code).await > before {
                        self.0.insert(code);
                        return;
                    }
                }
            }
        }
        panic!("the server never said {code}: {}", server.all_errors().await);
    }
}

/// Claims until one is refused, because the server has no time for it.
async fn is_refused_while_busy(store: &RedisStore) {
    for _ in 0..TRIES {
        match store.claim(&about(1)).await {
            Err(error) => return assert_eq!(error.did, Did::Nothing, "{error:?}"),
            // What keeps it busy has not come yet.
            Ok(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    panic!("the server has time for everything");
}

/// A connection that stays logged in whatever becomes of passwords.
struct Admin(redis::aio::MultiplexedConnection);

impl Admin {
    async fn of(server: &Redis) -> Self {
        let client = redis::Client::open(server.url()).expect("it is a URL");
        Self(client.get_multiplexed_async_connection().await.expect("the server answers"))
    }

    async fn tell(&mut self, words: &[&str]) {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.exec_async(&mut self.0).await.unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }

    async fn all_errors(&mut self) -> String {
        // A server that loads says nothing else.
        for _ in 0..TRIES {
            if let Ok(text) = redis::cmd("INFO").arg("errorstats").query_async(&mut self.0).await {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the server does not tell its errors");
    }

    /// How often it has said this.
    async fn errors(&mut self, code: &str) -> u64 {
        let text = self.all_errors().await;
        let line = text.lines().find_map(|line| line.strip_prefix("errorstat_")?.strip_prefix(code));
        line.and_then(|rest| rest.trim().strip_prefix(":count=")?.parse().ok()).unwrap_or(0)
    }

    /// Everybody else has to log in again.
    async fn cut_the_others(&mut self) {
        self.tell(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    }
}

/// Codes that come and go with one word to one server.
const SWITCHED: [(&str, &[&str], &[&str]); 4] = [
    ("NOREPLICAS", &["CONFIG", "SET", "min-replicas-to-write", "1"], &["CONFIG", "SET", "min-replicas-to-write", "0"]),
    ("OOM", &["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]),
    ("READONLY", &["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]),
    ("NOPERM", &["ACL", "SETUSER", "app", "-evalsha", "-set"], &["ACL", "SETUSER", "app", "+evalsha", "+set"]),
];

async fn of_one_server(seen: &mut Seen) {
    let server = Redis::start(&Setup::new().set("user", "app on >one ~* &* +@all")).await;
    let mut admin = Admin::of(&server).await;
    let store = connect(&format!("redis://app:one@{}", server.address()), "semel").await;
    for (code, on, off) in SWITCHED {
        admin.tell(on).await;
        seen.refused(code, &mut admin, &store).await;
        admin.tell(off).await;
    }

    admin.tell(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    admin.tell(&["REPLICAOF", "127.0.0.1", "1"]).await;
    seen.refused("MASTERDOWN", &mut admin, &store).await;
    admin.tell(&["REPLICAOF", "NO", "ONE"]).await;

    // Where its dump is to go there is a folder.
    let said = server.tell(&["CONFIG", "GET", "dir"]).await;
    let dump = std::path::Path::new(&said.list()[1].text()).join("dump.rdb");
    std::fs::create_dir(&dump).expect("a folder can be made");
    admin.tell(&["CONFIG", "SET", "save", "100000 1"]).await;
    admin.tell(&["BGSAVE"]).await;
    seen.refused("MISCONF", &mut admin, &store).await;
    admin.tell(&["CONFIG", "SET", "save", ""]).await;
    std::fs::remove_dir(&dump).expect("it is empty");

    // The first key that is asked about.
    let first = format!("semel:{}", id(0));
    server.tell(&["DEL", &first]).await;
    server.tell(&["LPUSH", &first, "a list"]).await;
    seen.refused("WRONGTYPE", &mut admin, &store).await;

    // The store sends the script in full.
    let before = admin.errors("NOSCRIPT").await;
    admin.tell(&["SCRIPT", "FLUSH"]).await;
    let claim = granted(store.claim(&about(TRIES + 1)).await);
    stands(store.settle(&claim, &done()).await);
    assert!(admin.errors("NOSCRIPT").await > before);
    seen.0.insert("NOSCRIPT");

    admin.tell(&["ACL", "SETUSER", "app", "resetpass", ">another"]).await;
    admin.cut_the_others().await;
    seen.refused("WRONGPASS", &mut admin, &store).await;
}

async fn of_a_server_that_wants_a_password(seen: &mut Seen) {
    let server = Redis::start(&Setup::new()).await;
    let mut admin = Admin::of(&server).await;
    let store = connect(&server.url(), "semel").await;
    admin.tell(&["CONFIG", "SET", "requirepass", "s3cret"]).await;
    admin.cut_the_others().await;
    seen.refused("NOAUTH", &mut admin, &store).await;
}

async fn of_a_server_that_is_busy(seen: &mut Seen) {
    let server = Redis::start(&Setup::new().set("lua-time-limit", "10")).await;
    let mut admin = Admin::of(&server).await;
    let store = connect(&server.url(), "semel").await;
    let loops = async { server.ask(&["EVAL", "while true do end", "0"]).await };
    let refused = async {
        is_refused_while_busy(&store).await;
        server.tell(&["SCRIPT", "KILL"]).await;
    };
    let (ended, ()) = tokio::join!(loops, refused);
    assert!(matches!(ended, Said::Error(_)), "{ended:?}");
    assert!(admin.errors("BUSY").await > 0);
    seen.0.insert("BUSY");
}

async fn of_a_server_that_loads(seen: &mut Seen) {
    // Before 7.0 it serves others after each two mebibytes, and cannot be told otherwise.
    let (setup, size) = match is_modern() {
        true => (Setup::new().set("loading-process-events-interval-bytes", "1024"), 2 << 10),
        false => (Setup::new(), 32 << 10),
    };
    let server = Redis::start(&setup).await;
    let mut admin = Admin::of(&server).await;
    let store = connect(&server.url(), "semel").await;
    for n in 0..500 {
        server.tell(&["SET", &format!("filler-{n}"), &"x".repeat(size)]).await;
    }
    // A moment for each key, and as long as it takes for all of them.
    admin.tell(&["CONFIG", "SET", "rdbcompression", "no"]).await;
    admin.tell(&["CONFIG", "SET", "key-load-delay", "10000"]).await;
    let reloads = async { server.ask(&["DEBUG", "RELOAD"]).await };
    let refused = async {
        is_refused_while_busy(&store).await;
        // Before 7.0 nobody can: it takes its five seconds.
        if is_modern() {
            server.tell(&["CONFIG", "SET", "key-load-delay", "0"]).await;
        }
    };
    tokio::join!(reloads, refused);
    assert!(admin.errors("LOADING").await > 0, "{}", admin.all_errors().await);
    seen.0.insert("LOADING");
}

async fn of_a_cluster(seen: &mut Seen) {
    let cluster = Cluster::start(&Setup::new()).await;
    let store = connect(&cluster.url(), "semel").await;
    let place = async |n: u64| {
        let slot = cluster.slot_of(&format!("semel:{}", id(n))).await;
        (slot, cluster.master_of(slot, 0).await.expect("somebody has it"))
    };

    // The store goes where it is sent; a map that is made anew in between spares it one of these.
    for (code, is_whole, keys) in [("ASK", false, 1..100), ("MOVED", true, 101..200)] {
        let mut said = 0;
        for n in keys {
            let (slot, from) = place(n).await;
            let to = (from + 1) % 3;
            let mut admin = Admin::of(&cluster.nodes[from]).await;
            let before = admin.errors(code).await;
            cluster.begin_move(slot, from, to).await;
            if is_whole {
                cluster.end_move(slot, from, to).await;
            }
            assert!(matches!(store.claim(&about(n)).await, Ok(Claimed::Granted { .. })), "{code}");
            cluster.move_keys(slot, from, to).await;
            cluster.end_move(slot, from, to).await;
            said += admin.errors(code).await - before;
            if said > 0 {
                seen.0.insert(code);
                break;
            }
        }
        assert!(said > 0, "no node said {code}");
    }

    // A master without one of its slots serves none.
    let (slot, of) = place(1_000).await;
    let mut admin = Admin::of(&cluster.nodes[of]).await;
    admin.tell(&["CLUSTER", "DELSLOTS", &slot.to_string()]).await;
    for _ in 0..TRIES {
        if cluster.nodes[of].tell(&["CLUSTER", "INFO"]).await.field("cluster_state").as_deref() == Some("fail") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let before = admin.errors("CLUSTERDOWN").await;
    let error = store.claim(&about(1_000)).await.expect_err("nobody serves it");
    assert_eq!(error.did, Did::Nothing, "{error:?}");
    assert!(admin.errors("CLUSTERDOWN").await > before, "{}", admin.all_errors().await);
    seen.0.insert("CLUSTERDOWN");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_code_of_the_table_is_said_by_a_real_server_and_means_that_nothing_was_done() {
    let mut seen = Seen::default();
    of_one_server(&mut seen).await;
    of_a_server_that_wants_a_password(&mut seen).await;
    of_a_server_that_is_busy(&mut seen).await;
    of_a_server_that_loads(&mut seen).await;
    of_a_cluster(&mut seen).await;
    let said = seen.0.into_iter().chain(NEVER_HERE).collect::<BTreeSet<_>>();
    assert_eq!(said, NOT_DONE.into_iter().collect(), "the table, and what a test has seen");
}

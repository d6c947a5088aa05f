//! Claims and outcomes that count only where replicas have them.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use semel_core::{
    env::Env,
    judge::{Caller, Judgement, judge},
    store::{Ask, Claimed, Did, Grade, Releasing, Store, StoreError},
};
use semel_redis::{ConnectError, Options, RedisStore};
use semel_testkit::servers::{
    proxy::{Proxy, Way},
    redis::{Cluster, Redis, Sentinels, Setup},
};

use crate::questions::{TTL, about, done, granted, id, rest, stands};

/// A client whose claims and outcomes wait for so many replicas. The machine may be busy with other tests.
async fn waiting(url: &str, replicas: u32, within: Duration) -> Result<RedisStore, ConnectError> {
    let mut options = Options::default();
    (options.replicas, options.replica_timeout) = (replicas, within);
    options.connect_timeout = Duration::from_secs(10);
    options.response_timeout = Duration::from_secs(20);
    RedisStore::connect(url, &Env::system(), options).await
}

const LONG: Duration = Duration::from_secs(8);
/// For replicas that do not answer.
const SHORT: Duration = Duration::from_millis(100);

struct Pair {
    primary: Redis,
    replica: Redis,
}

impl Pair {
    async fn start() -> Self {
        let primary = Redis::start(&Setup::new()).await;
        let port = primary.port();
        Self { replica: follower(port).await, primary }.at_hand().await
    }

    async fn at_hand(self) -> Self {
        for _ in 0..1_000 {
            if self.primary.replicas_at_hand().await == 1 {
                return self;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the replica does not follow");
    }
}

async fn follower(port: u16) -> Redis {
    Redis::start(&Setup::new().set("replicaof", &format!("127.0.0.1 {port}"))).await
}

#[track_caller]
fn nobody_can_tell<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    match answer {
        Err(error) => {
            assert_eq!(error.did, Did::Unknown, "{error}");
            let why = std::error::Error::source(&error).map(ToString::to_string);
            assert!(why.is_some_and(|why| why.contains("not on its replicas")), "{error:?}");
        }
        Ok(answer) => panic!("no replica has it, and it was answered: {answer:?}"),
    }
}

#[track_caller]
fn is_own(ask: &Ask, answer: Result<Claimed, StoreError>) {
    let Ok(Claimed::Found { record, now }) = answer else { panic!("it is there already: {answer:?}") };
    let judgement = judge(ask, record.as_ref(), now, &Caller::default());
    assert!(matches!(judgement, Judgement::Again { .. }), "{judgement:?}");
}

#[tokio::test]
async fn what_was_granted_is_on_the_replica() {
    let pair = Pair::start().await;
    let store = waiting(&pair.primary.url(), 1, LONG).await.expect("it opens");
    for n in 0..50 {
        let claim = granted(store.claim(&about(n)).await);
        let key = format!("semel:{}", id(n));
        assert_eq!(pair.replica.tell(&["EXISTS", &key]).await.number(), Some(1), "claim {n}");
        stands(store.settle(&claim, &done()).await);
        let state = pair.replica.tell(&["GETRANGE", &key, "4", "4"]).await.text();
        assert_eq!(state, "\u{2}", "outcome {n}");
    }
}

/// A repeat writes nothing: on a connection of its own `WAIT` alone would answer that the replica has everything.
#[tokio::test]
async fn what_no_replica_has_is_granted_to_nobody_and_shown_to_nobody() {
    let pair = Pair::start().await;
    let (url, ask) = (pair.primary.url(), about(1));
    let (one, other) =
        (waiting(&url, 1, SHORT).await.expect("it opens"), waiting(&url, 1, SHORT).await.expect("it opens"));
    pair.replica.pause();
    nobody_can_tell(one.claim(&ask).await);
    nobody_can_tell(one.claim(&ask).await);
    nobody_can_tell(other.claim(&ask).await);
    nobody_can_tell(other.claim(&about(1)).await);
    assert!(other.get(&id(1)).await.is_err(), "what no replica has is shown");
    pair.replica.resume();
    let patient = waiting(&url, 1, LONG).await.expect("it opens");
    is_own(&ask, patient.claim(&ask).await);
}

#[tokio::test]
async fn a_claim_that_no_replica_has_can_be_taken_back() {
    let pair = Pair::start().await;
    let (url, ask) = (pair.primary.url(), about(1));
    let store = waiting(&url, 1, SHORT).await.expect("it opens");
    pair.replica.pause();
    nobody_can_tell(store.claim(&ask).await);
    let fate = Releasing::Fate { identity: &ask.identity, owner: ask.owner(), keep: TTL, rest: rest() };
    stands(store.release(&fate).await);
    pair.replica.resume();
    granted(waiting(&url, 1, LONG).await.expect("it opens").claim(&about(1)).await);
}

#[tokio::test]
async fn an_outcome_that_no_replica_has_is_told_again() {
    let pair = Pair::start().await;
    let url = pair.primary.url();
    let (hasty, patient) =
        (waiting(&url, 1, SHORT).await.expect("it opens"), waiting(&url, 1, LONG).await.expect("it opens"));
    let claim = granted(patient.claim(&about(1)).await);
    pair.replica.pause();
    nobody_can_tell(hasty.settle(&claim, &done()).await);
    nobody_can_tell(hasty.settle(&claim, &done()).await);
    assert!(hasty.get(&id(1)).await.is_err(), "an answer that no replica has is replayed");
    pair.replica.resume();
    stands(patient.settle(&claim, &done()).await);
    assert!(patient.get(&id(1)).await.is_ok_and(|seen| seen.record.is_some()));
}

/// The number of granted claims, of so many asked, that a replica behind by `delay` lacks once its primary is gone.
async fn lost_with_the_primary(asked: u8, replicas: u32, delay: Duration) -> usize {
    let mut primary = Redis::start(&Setup::new()).await;
    let line = Proxy::start(([127, 0, 0, 1], primary.port()).into()).await;
    let pair = Pair { replica: follower(line.port()).await, primary }.at_hand().await;
    primary = pair.primary;
    line.delay(Way::Back, delay);
    let store = waiting(&primary.url(), replicas, LONG).await.expect("it opens");
    for n in 0..asked {
        granted(store.claim(&about(n.into())).await);
    }
    primary.kill();
    pair.replica.tell(&["REPLICAOF", "NO", "ONE"]).await;
    let mut lost = 0;
    for n in 0..asked {
        let there = pair.replica.tell(&["EXISTS", &format!("semel:{}", id(n.into()))]).await.number();
        lost += usize::from(there != Some(1));
    }
    lost
}

/// Claims follow each other much faster than the replica does: were they not waited for, the last ones would be lost.
#[tokio::test]
async fn what_was_granted_survives_its_primary() {
    assert_eq!(lost_with_the_primary(8, 1, Duration::from_millis(250)).await, 0);
}

#[tokio::test]
async fn without_replicas_awaited_what_they_had_not_received_is_lost() {
    assert_eq!(lost_with_the_primary(8, 0, Duration::from_secs(3_600)).await, 8);
}

#[tokio::test]
async fn in_a_cluster_what_was_granted_survives_its_master() {
    let mut cluster = Cluster::start(&Setup::new()).await;
    let store = waiting(&cluster.url(), 1, LONG).await.expect("it opens");
    for n in 0..60 {
        granted(store.claim(&about(n)).await);
    }
    let mut keys = Vec::new();
    for n in 0..60 {
        let key = format!("semel:{}", id(n));
        keys.push((n, cluster.slot_of(&key).await, key));
    }
    cluster.nodes[1].kill();
    cluster.promoted(4).await;
    for (n, slot, key) in keys {
        // The one that was promoted knows it first.
        let master = cluster.master_of(slot, 4).await.expect("every slot has a master");
        // The others hear of it a moment later, and call the Cluster down until then.
        let mut there = cluster.nodes[master].ask(&["EXISTS", &key]).await;
        for _ in 0..1_000 {
            if there.number().is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            there = cluster.nodes[master].ask(&["EXISTS", &key]).await;
        }
        assert_eq!(there.number(), Some(1), "claim {n} is lost: {there:?}");
    }
}

/// Between the promotion of a replica and its announcement the old primary goes on, and the other replica with it: who waits
/// for all of them loses nothing.
#[tokio::test]
async fn an_ordered_failover_loses_nothing_that_all_replicas_have() {
    let set = Sentinels::start(&Setup::new()).await;
    let store = waiting(&set.url(), 2, SHORT).await.expect("it opens");
    let before = set.primary().await;
    let mut claimed = Vec::new();
    let over = AtomicBool::new(false);
    let claiming = async {
        for n in 0..100_000 {
            if over.load(Ordering::Relaxed) {
                break;
            }
            if matches!(store.claim(&about(n)).await, Ok(Claimed::Granted { .. })) {
                claimed.push(n);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let failing = async {
        set.fail_over().await;
        // Whatever the old primary took is gone with its turning into a replica.
        for _ in 0..3_000 {
            if set.servers[before].info("replication", "master_link_status").await == "up" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(claiming, failing);
    assert!(!claimed.is_empty());
    let primary = &set.servers[set.primary().await];
    for n in claimed {
        let there = primary.tell(&["EXISTS", &format!("semel:{}", id(n))]).await.number();
        assert_eq!(there, Some(1), "claim {n} is lost");
    }
}

#[tokio::test]
async fn too_few_replicas_are_told_with_the_cure() {
    let server = Redis::start(&Setup::new()).await;
    let store = waiting(&server.url(), 2, SHORT).await.expect("it opens");
    let findings = store.inspect().await.expect("the server answers");
    let told = findings.iter().find(|finding| finding.what == "calls wait for 2 replicas, and 0 are connected");
    assert!(told.is_some_and(|f| f.grade == Grade::Warning && f.cure.contains("replicas = 0")), "{findings:?}");
    nobody_can_tell(store.claim(&about(1)).await);
}

#[tokio::test]
async fn a_user_who_may_not_wait_is_refused_with_the_cure() {
    let rules = "~semel:* resetchannels &semel:wake +@all -wait";
    let server = Redis::start(&Setup::new().set("user", &format!("app on >s3cret {rules}"))).await;
    let url = format!("redis://app:s3cret@{}", server.address());
    let error = waiting(&url, 1, SHORT).await.expect_err("it may not").to_string();
    assert!(error.contains("+wait"), "{error}");
    assert!(waiting(&url, 0, SHORT).await.is_ok(), "without replicas nobody waits");
}

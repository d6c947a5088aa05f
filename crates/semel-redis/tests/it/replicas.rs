//! Claims and outcomes that count only where replicas have them.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use semel_core::{
    env::Env,
    judge::{Caller, Judgement, judge},
    store::{Ask, Claimed, Did, Grade, Releasing, Settled, Store, StoreError},
};
use semel_redis::{ConnectError, Options, RedisStore};
use semel_testkit::servers::{
    proxy::{Proxy, Rule, Speaks, Then, Way},
    redis::{Cluster, Redis, Sentinels, Setup, is_modern},
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

/// Somebody else has settled it, and the release is refused with what that one wrote: an answer to give.
#[tokio::test]
async fn a_refused_release_shows_nothing_that_no_replica_has() {
    let pair = Pair::start().await;
    let url = pair.primary.url();
    let (hasty, patient) =
        (waiting(&url, 1, SHORT).await.expect("it opens"), waiting(&url, 1, LONG).await.expect("it opens"));
    let claim = granted(patient.claim(&about(1)).await);
    pair.replica.pause();
    nobody_can_tell(hasty.settle(&claim, &done()).await);
    let held = Releasing::Held { claim: &claim, counts: true, park: false, keep: TTL, rest: rest() };
    let error = hasty.release(&held).await.expect_err("what no replica has is shown");
    assert_eq!(error.did, Did::Nothing, "it was refused: {error}");
    pair.replica.resume();
    let refused = patient.release(&held).await;
    assert!(matches!(refused, Ok(Settled::Lost(_))), "{refused:?}");
}

/// Who leaves before the answer leaves a line that is held up until the replicas answer, and nothing else.
#[tokio::test]
async fn callers_that_leave_early_hold_up_nobody_for_good() {
    let pair = Pair::start().await;
    let store = waiting(&pair.primary.url(), 1, LONG).await.expect("it opens");
    granted(store.claim(&about(100)).await);
    pair.replica.pause();
    let asks: Vec<_> = (0..32).map(about).collect();
    let leaves = async |ask| tokio::time::timeout(Duration::from_millis(50), store.claim(ask)).await.is_err();
    let left = futures_util::future::join_all(asks.iter().map(leaves)).await;
    assert!(left.into_iter().all(|left| left), "no replica has it");
    pair.replica.resume();
    for ask in &asks {
        match store.claim(ask).await {
            // The line of the one that left was longer than the one of this.
            Ok(Claimed::Granted { .. }) => {}
            answer => is_own(ask, answer),
        }
        let key = format!("semel:{}", ask.identity);
        assert_eq!(pair.replica.tell(&["EXISTS", &key]).await.number(), Some(1), "{key}");
    }
}

/// One line is dead and says nothing, the others work: it is given up although callers leave before the time-out.
#[tokio::test]
async fn a_line_that_says_nothing_is_given_up_while_others_answer() {
    let pair = Pair::start().await;
    let proxy = Proxy::speaking(Speaks::Redis, pair.primary.address().parse().expect("it is an address")).await;
    let mut options = Options::default();
    options.replicas = 1;
    options.connect_timeout = Duration::from_secs(10);
    let url = format!("redis://{}", proxy.address());
    let store = RedisStore::connect(&url, &Env::system(), options).await.expect("it opens");
    let dead = proxy.rule(Rule::runs("wait").lose_reply(Then::Silence));
    let mut served = false;
    for n in 0..200 {
        let (one, other) = (about(2 * n), about(2 * n + 1));
        let impatient = async |ask| tokio::time::timeout(Duration::from_millis(250), store.claim(ask)).await;
        let (one, other) = tokio::join!(impatient(&one), impatient(&other));
        served = matches!((one, other), (Ok(Ok(_)), Ok(Ok(_))));
        if served {
            break;
        }
    }
    assert_eq!(dead.count(), 1);
    assert!(served, "half of the callers are sent on a line that nobody answers on");
}

/// The limit of an answer comes first: it is told why, and not that nobody answered.
#[tokio::test]
async fn replicas_never_have_longer_than_half_of_what_an_answer_may_take() {
    let pair = Pair::start().await;
    let mut options = Options::default();
    (options.replicas, options.replica_timeout) = (1, Duration::from_secs(3_600));
    options.connect_timeout = Duration::from_secs(10);
    options.response_timeout = Duration::from_secs(4);
    let store = RedisStore::connect(&pair.primary.url(), &Env::system(), options).await.expect("it opens");
    pair.replica.pause();
    nobody_can_tell(store.claim(&about(1)).await);
}

/// Before 7.0 the write that changes nothing is refused as well: nobody can tell then, and the connections stay.
#[tokio::test]
async fn a_full_server_confirms_what_it_shows() {
    let pair = Pair::start().await;
    let store = waiting(&pair.primary.url(), 1, LONG).await.expect("it opens");
    let claim = granted(store.claim(&about(1)).await);
    let connections = async || pair.primary.info("stats", "total_connections_received").await.parse::<u64>();
    let before = connections().await.expect("a number");
    pair.primary.tell(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for _ in 0..20 {
        let copy = store.claim(&about(1)).await;
        if is_modern() {
            assert!(matches!(copy, Ok(Claimed::Found { .. })), "{copy:?}");
        } else {
            nobody_can_tell(copy);
        }
    }
    let made = connections().await.expect("a number") - before;
    assert!(made < 8, "{made} connections were made: whoever gives his up makes eight");
    if !is_modern() {
        pair.primary.tell(&["CONFIG", "SET", "maxmemory", "0"]).await;
    }
    stands(store.settle(&claim, &done()).await);
}

/// To the master that takes a slot over a call goes with `ASKING`, and to the one that has it by then where it is sent.
#[tokio::test]
async fn in_a_cluster_calls_follow_their_slots_and_count_where_they_arrive() {
    let cluster = Cluster::start(&Setup::new()).await;
    let store = waiting(&cluster.url(), 1, LONG).await.expect("it opens");
    for (n, is_whole) in [(0, false), (1, false), (2, true), (3, true)] {
        let key = format!("semel:{}", id(n));
        let slot = cluster.slot_of(&key).await;
        let from = cluster.master_of(slot, 0).await.expect("every slot has a master");
        let to = (from + 1) % 3;
        cluster.begin_move(slot, from, to).await;
        if is_whole {
            cluster.end_move(slot, from, to).await;
        }
        let claim = granted(store.claim(&about(n)).await);
        let there = cluster.nodes[to + 3].tell(&["KEYS", &key]).await;
        assert_eq!(there.list().len(), 1, "claim {n} is not on the replica");
        stands(store.settle(&claim, &done()).await);
        let copy = store.claim(&about(n)).await;
        assert!(matches!(copy, Ok(Claimed::Found { .. })), "outcome {n}: {copy:?}");
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

#[tokio::test]
async fn a_server_on_which_nobody_can_wait_is_refused() {
    let server = Redis::start(&Setup::new().set("rename-command", "WAIT \"\"")).await;
    let error = waiting(&server.url(), 1, SHORT).await.expect_err("nothing would ever be confirmed").to_string();
    assert!(error.contains("WAIT"), "{error}");
    assert!(waiting(&server.url(), 0, SHORT).await.is_ok(), "without replicas nobody waits");
}

//! Servers that stop, come back, change places, and move slots: answers stay truthful, and calls find their way.

use std::time::Duration;

use semel_core::{
    record::StateCode,
    store::{Claim, Claimed, Did, Releasing, Renewal, Renewed, Settled, Store, StoreError},
};
use semel_redis::RedisStore;
use semel_testkit::servers::redis::{Cluster, Redis, Sentinels, Setup};

use crate::{
    beds::connect,
    questions::{LEASE, TTL, about, done, granted, id, rest, stands},
};

/// The same call again until it is answered, as the engine does: at most a minute.
pub(crate) async fn at_last<T>(mut call: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    let mut last = None;
    for _ in 0..600 {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never answered: {last:?}");
}

async fn settles(store: &RedisStore, claim: &Claim) -> Settled {
    at_last(async || store.settle(claim, &done()).await).await
}

#[tokio::test]
async fn a_server_that_restarted_is_found_again() {
    let mut server = Redis::start(&Setup::new().keeps()).await;
    let store = connect(&server.url(), "semel").await;
    let claim = granted(store.claim(&about(1)).await);
    let birth = store.health().await.expect("it works").birth;
    server.start_again().await;
    let Settled::Ok { restored: false } = settles(&store, &claim).await else { panic!("the claim was kept") };
    assert_eq!(store.health().await.expect("it works").birth, birth);
}

#[tokio::test]
async fn while_a_server_is_away_nothing_is_claimed_to_have_happened() {
    let mut server = Redis::start(&Setup::new().keeps()).await;
    let store = connect(&server.url(), "semel").await;
    server.kill();
    let mut dids = Vec::new();
    for n in 0..3 {
        dids.push(store.claim(&about(n)).await.expect_err("nobody is there").did);
    }
    // The first one may have been on its way; after that nobody could be asked.
    assert_eq!(dids[1..], [Did::Nothing, Did::Nothing]);
    server.start_again().await;
    granted(Ok(at_last(async || store.claim(&about(7)).await).await));
}

#[tokio::test]
async fn a_server_that_became_a_replica_says_that_nothing_was_done() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    let claim = granted(store.claim(&about(1)).await);
    server.tell(&["REPLICAOF", "127.0.0.1", "1"]).await;
    for _ in 0..2 {
        let error = store.settle(&claim, &done()).await.expect_err("it takes no writes");
        assert_eq!(error.did, Did::Nothing, "{error}");
    }
    server.tell(&["REPLICAOF", "NO", "ONE"]).await;
    let Settled::Ok { restored: false } = settles(&store, &claim).await else { panic!("the claim is there") };
}

#[tokio::test]
async fn a_primary_without_enough_replicas_says_that_nothing_was_done() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    server.tell(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let error = store.claim(&about(1)).await.expect_err("it takes no writes");
    assert_eq!(error.did, Did::Nothing, "{error}");
    server.tell(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    granted(store.claim(&about(1)).await);
}

/// A primary dies; what its replicas had is there afterwards, and running work settles.
#[tokio::test]
async fn a_dead_primary_is_replaced_by_sentinel() {
    let mut set = Sentinels::start(&Setup::new()).await;
    let store = connect(&set.url(), "semel").await;
    let (one, other) = (granted(store.claim(&about(1)).await), granted(store.claim(&about(2)).await));
    let birth = store.health().await.expect("it works").birth;
    set.caught_up().await;
    set.servers[0].kill();
    let Settled::Ok { restored: false } = settles(&store, &one).await else { panic!("the claim was there") };
    let found = at_last(async || store.claim(&about(1)).await).await;
    let Claimed::Found { record: Some(record), .. } = found else { panic!("it is settled: {found:?}") };
    assert_eq!(record.state, StateCode::Done);
    let batch = [Renewal { claim: &other, lease: 2 * LEASE, keep: TTL }];
    let renewed = store.renew(&batch).await.expect("it works");
    assert!(matches!(renewed.as_slice(), [Ok(Renewed::Left(_))]), "{renewed:?}");
    assert_eq!(store.health().await.expect("it works").birth, birth);
    assert_ne!(set.promoted(0).await, 0);
}

/// Claims of keys in the slots of every master.
async fn some(store: &RedisStore, from: u64) -> Vec<(u64, Claim)> {
    let mut claims = Vec::new();
    for n in from..from + 30 {
        claims.push((n, granted(store.claim(&about(n)).await)));
    }
    claims
}

#[tokio::test]
async fn a_dead_master_is_replaced_in_its_cluster() {
    let mut cluster = Cluster::start(&Setup::new()).await;
    let store = connect(&cluster.url(), "semel").await;
    let claims = some(&store, 0).await;
    cluster.settled().await;
    cluster.nodes[0].kill();
    let mut restored = 0;
    for (_, claim) in &claims {
        match settles(&store, claim).await {
            Settled::Ok { restored: true } => restored += 1,
            Settled::Ok { restored: false } => {}
            Settled::Lost(record) => panic!("nobody else had it: {record:?}"),
        }
    }
    assert_eq!(restored, 0, "the replicas had all of it");
    cluster.promoted(3).await;
    assert!(cluster.masters(1).await.contains(&3));
    some(&store, 100).await;
}

#[tokio::test]
async fn a_slot_that_moves_takes_its_callers_along() {
    let cluster = Cluster::start(&Setup::new()).await;
    let store = connect(&cluster.url(), "semel").await;
    let claim = granted(store.claim(&about(1)).await);
    let slot = cluster.slot_of(&format!("semel:{}", id(1))).await;
    let from = cluster.master_of(slot, 0).await.expect("it has a master");
    let to = (from + 1) % 3;
    let batch = [Renewal { claim: &claim, lease: 2 * LEASE, keep: TTL }];
    let renews = async || {
        let renewed = store.renew(&batch).await.expect("it works");
        assert!(matches!(renewed.as_slice(), [Ok(Renewed::Left(_))]), "{renewed:?}");
        assert!(matches!(store.claim(&about(1)).await, Ok(Claimed::Found { .. })));
    };
    renews().await;
    cluster.begin_move(slot, from, to).await;
    renews().await;
    // The old master does not have it any more, and is still asked first.
    cluster.move_keys(slot, from, to).await;
    renews().await;
    cluster.end_move(slot, from, to).await;
    renews().await;
    stands(store.settle(&claim, &done()).await);
    assert_eq!(cluster.nodes[to].tell(&["EXISTS", &format!("semel:{}", id(1))]).await.number(), Some(1));
}

#[tokio::test]
async fn a_planned_failover_in_a_cluster_loses_nothing() {
    let cluster = Cluster::start(&Setup::new()).await;
    let store = connect(&cluster.url(), "semel").await;
    let claims = some(&store, 0).await;
    for replica in 3..6 {
        cluster.fail_over_to(replica).await;
        for (_, claim) in &claims {
            let batch = [Renewal { claim, lease: 2 * LEASE, keep: TTL }];
            let renewed = at_last(async || store.renew(&batch).await).await;
            assert!(matches!(renewed.as_slice(), [Ok(Renewed::Left(_))]), "{renewed:?}");
        }
    }
    for (_, claim) in &claims {
        let what = Releasing::Held { claim, counts: true, park: false, keep: TTL, rest: rest() };
        stands(store.release(&what).await);
    }
}

/// A primary that hung and goes on after another was promoted takes itself for the primary for many seconds still: what it
/// is given then is lost when it is told. It answered the greeting of a connection that was begun before.
#[tokio::test]
async fn a_primary_of_before_that_goes_on_is_given_nothing() {
    let set = Sentinels::start(&Setup::new()).await;
    let store = connect(&set.url(), "semel").await;
    granted(store.claim(&about(0)).await);
    set.caught_up().await;
    let before = set.primary().await;
    set.servers[before].pause();
    // Calls that hang, and connections that are begun, while nobody was promoted yet.
    let hanging = async {
        for n in 1_000..1_004 {
            let _late = tokio::time::timeout(Duration::from_millis(250), store.claim(&about(n))).await;
        }
    };
    let (after, ()) = tokio::join!(set.promoted(before), hanging);
    // It hangs for a while longer: by then the Sentinels have told, and were asked, several times.
    tokio::time::sleep(Duration::from_secs(5)).await;
    set.servers[before].resume();
    for n in 1..100 {
        granted(Ok(at_last(async || store.claim(&about(n)).await).await));
    }
    for n in 1..100 {
        let key = format!("semel:{}", id(n));
        let said = set.servers[after].tell(&["EXISTS", &key]).await;
        assert_eq!(said.number(), Some(1), "{n} was granted by the primary of before");
    }
}

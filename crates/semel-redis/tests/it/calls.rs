//! What a call costs, counted by the server; and scripts that the server lost.

use semel_core::store::{Claimed, Did, Renewal, Renewed, Store};
use semel_testkit::servers::redis::{Cluster, Redis, Said, Setup, is_modern};

use crate::{
    beds::connect,
    questions::{LEASE, TTL, about, done, granted, id, stands},
};

/// How many scripts the server ran.
async fn scripts(server: &Redis) -> u64 {
    server.calls("evalsha").await + server.calls("eval").await
}

#[tokio::test]
async fn a_claim_a_duplicate_and_a_settlement_are_one_way_each() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    // The first call of each kind may have to send its script in full.
    let claim = granted(store.claim(&about(0)).await);
    stands(store.settle(&claim, &done()).await);
    let before = (scripts(&server).await, server.calls("set").await);
    let since = async || (scripts(&server).await - before.0, server.calls("set").await - before.1);
    // A script's own commands are counted as well.
    let claims = |n: u64| if is_modern() { (0, n) } else { (n, n) };
    let claim = granted(store.claim(&about(1)).await);
    assert_eq!(since().await, claims(1), "a claim");
    assert!(matches!(store.claim(&about(1)).await, Ok(Claimed::Found { .. })));
    assert_eq!(since().await, claims(2), "a duplicate");
    stands(store.settle(&claim, &done()).await);
    let (ran, set) = claims(2);
    assert_eq!(since().await, (ran + 1, set + 1), "a settlement");
    for (command, calls) in [("set", 6), ("setrange", 0), ("expire", 0), ("publish", 1)] {
        // Two claims, two settlements, the store's mark, and the duplicate that would have taken what is not there. An empty
        // message, at the start, shows whether this user may publish.
        assert_eq!(server.calls(command).await, calls, "{command}");
    }
}

#[tokio::test]
async fn a_batch_of_renewals_is_one_command_each() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    let mut claims = Vec::new();
    for n in 0..100 {
        claims.push(granted(store.claim(&about(n)).await));
    }
    let batch: Vec<_> = claims.iter().map(|claim| Renewal { claim, lease: 2 * LEASE, keep: TTL }).collect();
    let _scripts_are_there_now = store.renew(&batch[..1]).await.expect("the store works");
    let before = scripts(&server).await;
    let answers = store.renew(&batch).await.expect("the store works");
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Renewed::Left(_)))));
    assert_eq!(scripts(&server).await - before, 100);
}

#[tokio::test]
async fn a_server_that_lost_its_scripts_gets_them_again() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    let claims = [granted(store.claim(&about(0)).await), granted(store.claim(&about(1)).await)];
    server.tell(&["SCRIPT", "FLUSH"]).await;
    granted(store.claim(&about(2)).await);
    let batch: Vec<_> = claims.iter().map(|claim| Renewal { claim, lease: 2 * LEASE, keep: TTL }).collect();
    for _ in 0..2 {
        server.tell(&["SCRIPT", "FLUSH"]).await;
        let answers = store.renew(&batch).await.expect("the store works");
        assert!(matches!(answers.as_slice(), [Ok(Renewed::Left(_)), Ok(Renewed::Left(_))]), "{answers:?}");
    }
    server.tell(&["SCRIPT", "FLUSH"]).await;
    stands(store.settle(&claims[0], &done()).await);
    assert!(store.get(&id(0)).await.expect("the store works").record.is_some());
}

/// 1 over its limit: the server is full whatever it holds.
async fn fill(server: &Redis) {
    server.tell(&["CONFIG", "SET", "maxmemory", "1"]).await;
}

/// All fresh keys were refused, and the store called itself well.
#[tokio::test]
async fn a_server_that_takes_no_claims_says_so_of_its_health() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    let switched: [(&str, &[&str], &[&str]); 3] = [
        ("maxmemory", &["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]),
        (
            "NOREPLICAS",
            &["CONFIG", "SET", "min-replicas-to-write", "1"],
            &["CONFIG", "SET", "min-replicas-to-write", "0"],
        ),
        ("read only", &["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]),
    ];
    for (word, on, off) in switched {
        server.tell(on).await;
        let trouble = match store.health().await {
            Ok(health) if !health.writable => health.trouble,
            Ok(health) => panic!("{word}: {health:?}"),
            // A server that takes no writes at all does not even show the mark.
            Err(error) => error.to_string(),
        };
        assert!(trouble.contains(word), "{word}: {trouble}");
        server.tell(off).await;
        let health = store.health().await.expect("the server answers");
        assert!(health.writable && health.trouble.is_empty(), "{word}: {health:?}");
    }
    assert!(matches!(server.tell(&["EXISTS", "semel:mark"]).await, Said::Int(1)), "it was asked without a change");
}

#[tokio::test]
async fn one_full_master_of_a_cluster_is_told() {
    let cluster = Cluster::start(&Setup::new()).await;
    let store = connect(&cluster.url(), "semel").await;
    assert!(store.health().await.expect("it answers").writable);
    fill(&cluster.nodes[2]).await;
    let health = store.health().await.expect("it answers");
    assert!(!health.writable && health.trouble.contains("maxmemory"), "{health:?}");
    assert!(!health.trouble.contains("; "), "one reason, told once: {health:?}");
}

/// Before 7.0 no script can be told from another: what settles is refused as well, and stands once there is room.
#[tokio::test]
async fn a_full_server_refuses_claims_and_lets_running_work_settle() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    let (one, other) = (granted(store.claim(&about(1)).await), granted(store.claim(&about(2)).await));
    fill(&server).await;
    let error = store.claim(&about(3)).await.expect_err("there is no room");
    assert!(error.is_full(), "{error}");
    assert!(store.get(&id(3)).await.expect("the store works").record.is_none());
    assert!(matches!(store.claim(&about(1)).await, Ok(Claimed::Found { .. })), "a duplicate is answered");
    let batch = [Renewal { claim: &one, lease: 2 * LEASE, keep: TTL }];
    let given_back = semel_core::store::Releasing::Held {
        claim: &other,
        counts: true,
        park: false,
        keep: TTL,
        rest: crate::questions::rest(),
    };
    if !is_modern() {
        let renewed = store.renew(&batch).await.expect("the store works").remove(0).map(|_| ());
        let (settled, released) = (store.settle(&one, &done()).await, store.release(&given_back).await);
        for refused in [renewed, settled.map(|_| ()), released.map(|_| ())] {
            let error = refused.expect_err("there is no room");
            assert!(error.is_full() && error.did == Did::Nothing, "{error}");
        }
        server.tell(&["CONFIG", "SET", "maxmemory", "0"]).await;
    }
    let renewed = store.renew(&batch).await.expect("the store works");
    assert!(matches!(renewed.as_slice(), [Ok(Renewed::Left(_))]), "{renewed:?}");
    stands(store.settle(&one, &done()).await);
    stands(store.release(&given_back).await);
}

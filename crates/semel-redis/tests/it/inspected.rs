//! How servers are set up: what is refused, what is said, and that the cures cure.

use semel_core::{
    env::Env,
    store::{Durability, Finding, Grade, Store},
};
use semel_redis::{ConnectError, Options, RedisStore};
use semel_testkit::servers::redis::{Redis, Sentinels, Setup, is_modern};

use crate::beds::{connect, shared};

fn whats(findings: &[Finding], grade: Grade) -> Vec<&str> {
    findings.iter().filter(|finding| finding.grade == grade).map(|finding| finding.what.as_str()).collect()
}

/// What is warned of beside the server's version, which has to be a warning before 7.0 and none from then on.
#[track_caller]
fn warnings(findings: &[Finding]) -> Vec<&str> {
    let (version, others) =
        whats(findings, Grade::Warning).into_iter().partition::<Vec<_>, _>(|what| what.starts_with("Redis 6."));
    assert_eq!(version.is_empty(), is_modern(), "{findings:?}");
    others
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_until_it_is_cured() {
    let server = Redis::start(&Setup::new().maxmemory(100 << 20).set("maxmemory-policy", "allkeys-lru")).await;
    match RedisStore::connect(&server.url(), &Env::system(), Options::default()).await {
        Err(ConnectError::Unfit(findings)) => {
            assert_eq!(whats(&findings, Grade::Fatal), ["maxmemory-policy is allkeys-lru"]);
            assert!(findings[0].cure.contains("CONFIG SET maxmemory-policy noeviction"));
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
    server.tell(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    connect(&server.url(), "semel").await;
}

#[tokio::test]
async fn what_a_plain_server_does_not_keep_is_said_with_the_cure() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    assert_eq!(store.facts().durability, Durability::None);
    let findings = store.inspect().await.expect("it works");
    assert_eq!(warnings(&findings), ["maxmemory is not set", "nothing is kept on disk"]);
    server.tell(&["CONFIG", "SET", "appendonly", "yes"]).await;
    server.tell(&["CONFIG", "SET", "maxmemory", "100mb"]).await;
    assert!(warnings(&store.inspect().await.expect("it works")).is_empty());
    assert_eq!(connect(&server.url(), "semel").await.facts().durability, Durability::Process);
    server.tell(&["CONFIG", "SET", "appendfsync", "always"]).await;
    assert_eq!(connect(&server.url(), "semel").await.facts().durability, Durability::Power);
}

#[tokio::test]
async fn a_primary_that_may_be_cut_off_is_warned_of() {
    let set = Sentinels::start(&Setup::new().keeps().maxmemory(100 << 20)).await;
    let store = connect(&set.url(), "semel").await;
    let findings = store.inspect().await.expect("it works");
    assert_eq!(warnings(&findings), ["min-replicas-to-write is 0"]);
    set.servers[0].tell(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let findings = store.inspect().await.expect("it works");
    let lag = ["min-replicas-max-lag is 10 s, and Sentinel acts after 1000 ms"];
    assert_eq!(warnings(&findings), lag);
    for sentinel in &set.sentinels {
        sentinel.tell(&["SENTINEL", "SET", "semel", "down-after-milliseconds", "15000"]).await;
    }
    assert!(warnings(&store.inspect().await.expect("it works")).is_empty());
}

#[tokio::test]
async fn every_master_of_a_cluster_is_looked_at() {
    let cluster = shared::cluster().await;
    let store = connect(&cluster.url(), &format!("inspected{}", std::process::id())).await;
    let findings = store.inspect().await.expect("it works");
    for port in cluster.masters() {
        let version = |finding: &&Finding| {
            ["Redis", "Valkey"].into_iter().any(|name| finding.what.starts_with(&format!("127.0.0.1:{port}: {name} ")))
        };
        assert_eq!(findings.iter().filter(version).count(), 1, "{findings:?}");
    }
}

//! Whose records these are, and whether they are still there.

use semel_core::{
    env::Env,
    identity::{MarkError, Secret},
    store::{Did, Store, StoreErrorKind},
};
use semel_redis::{ConnectError, Options, RedisStore};
use semel_testkit::servers::redis::{Cluster, Redis, Setup};

use crate::{
    beds::connect,
    questions::{about, done, granted},
};

fn options(secret: Option<&str>) -> Options {
    let mut options = Options::default();
    options.secret = secret.map(|text| Secret::from_material(text.as_bytes()).expect("it is long enough"));
    options
}

async fn open(server: &Redis, secret: Option<&str>) -> Result<RedisStore, ConnectError> {
    RedisStore::connect(&server.url(), &Env::system(), options(secret)).await
}

/// What a secret makes of the same bytes.
fn digest(store: &RedisStore) -> [u8; 32] {
    *store.secret().digest(semel_core::identity::Purpose::ApiKey, &[b"x"]).as_bytes()
}

#[tokio::test]
async fn of_many_that_come_first_all_get_one_secret() {
    let server = Redis::start(&Setup::new()).await;
    let stores = futures(&server).await;
    let first = digest(&stores[0]);
    assert!(stores.iter().all(|store| digest(store) == first));
    let births: Vec<_> = births(&stores).await;
    assert!(births[0].is_some() && births.iter().all(|birth| *birth == births[0]));
}

async fn futures(server: &Redis) -> Vec<RedisStore> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = server.url();
        tasks.spawn(async move { RedisStore::connect(&url, &Env::system(), options(None)).await.expect("it opens") });
    }
    tasks.join_all().await
}

async fn births(stores: &[RedisStore]) -> Vec<Option<semel_core::identity::Birth>> {
    let mut births = Vec::new();
    for store in stores {
        births.push(store.health().await.expect("the store works").birth);
    }
    births
}

#[tokio::test]
async fn another_secret_is_refused_before_anything_is_asked() {
    let server = Redis::start(&Setup::new()).await;
    open(&server, Some("sixteen bytes at least")).await.expect("it opens");
    for (secret, why) in [(Some("sixteen other bytes"), MarkError::OtherSecret), (None, MarkError::NeedsSecret)] {
        match open(&server, secret).await {
            Err(ConnectError::Mark(error)) => assert_eq!(error, why),
            other => panic!("expected a refusal, got {other:?}"),
        }
    }
    open(&server, Some("sixteen bytes at least")).await.expect("it opens again");
}

#[tokio::test]
async fn a_store_that_came_back_empty_has_another_birth_for_everybody() {
    let mut server = Redis::start(&Setup::new()).await;
    let stores = [open(&server, None).await.expect("it opens"), open(&server, None).await.expect("it opens")];
    let before = births(&stores).await;
    let claim = granted(stores[0].claim(&about(1)).await);
    server.start_empty().await;
    // The next call is on a new connection, which reads the mark before.
    let mut answer = stores[0].settle(&claim, &done()).await;
    if answer.is_err() {
        answer = stores[0].settle(&claim, &done()).await;
    }
    assert!(matches!(answer, Ok(semel_core::store::Settled::Ok { restored: true })), "{answer:?}");
    let _broken_connection = stores[1].health().await;
    let after = births(&stores).await;
    assert_ne!(after[0], before[0]);
    assert_eq!(after[0], after[1]);
}

#[tokio::test]
async fn a_flushed_store_is_noticed_by_looking_at_its_health() {
    let server = Redis::start(&Setup::new()).await;
    let store = open(&server, None).await.expect("it opens");
    let before = store.health().await.expect("the store works").birth;
    assert_eq!(store.health().await.expect("the store works").birth, before);
    server.tell(&["FLUSHALL"]).await;
    assert_ne!(store.health().await.expect("the store works").birth, before);
}

#[tokio::test]
async fn a_store_that_became_somebody_elses_is_closed_before_the_next_call() {
    let server = Redis::start(&Setup::new()).await;
    let store = open(&server, None).await.expect("it opens");
    server.tell(&["FLUSHALL"]).await;
    open(&server, Some("sixteen bytes at least")).await.expect("it is nobody's");
    server.tell(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    let mut errors = Vec::new();
    for n in 0..3 {
        errors.extend(store.claim(&about(n)).await.err());
    }
    let last = errors.last().expect("it is closed");
    assert_eq!((errors.len(), last.did, last.kind), (3, Did::Nothing, StoreErrorKind::Closed), "{errors:?}");
    assert_eq!(server.tell(&["DBSIZE"]).await.number(), Some(1), "only the mark is there");
}

#[tokio::test]
async fn deployments_with_prefixes_of_their_own_do_not_meet() {
    let server = Redis::start(&Setup::new()).await;
    let (one, other) = (connect(&server.url(), "one").await, connect(&server.url(), "other").await);
    assert_ne!(digest(&one), digest(&other));
    granted(one.claim(&about(1)).await);
    granted(other.claim(&about(1)).await);
}

/// Looks until every store answers: while slots move a look may come to nothing.
async fn births_at_last(stores: &[RedisStore]) -> Vec<Option<semel_core::identity::Birth>> {
    let mut births = Vec::new();
    for store in stores {
        let mut health = store.health().await;
        for _ in 0..600 {
            if health.is_ok() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            health = store.health().await;
        }
        births.push(health.expect("the store works").birth);
    }
    births
}

/// The mark that was read at first lies on one master: what another one lost went unnoticed.
#[tokio::test]
async fn a_master_of_a_cluster_that_came_back_empty_is_noticed_and_a_slot_that_moved_is_not() {
    // Where its replica took its place nothing would be lost.
    let mut cluster = Cluster::start(&Setup::new().set("cluster-replica-no-failover", "yes")).await;
    let stores = [connect(&cluster.url(), "semel").await, connect(&cluster.url(), "semel").await];
    let before = births_at_last(&stores).await;
    assert_eq!(before[0], before[1]);
    for master in 0..3 {
        let keys = cluster.nodes[master].tell(&["KEYS", "semel:mark*"]).await;
        assert!(!keys.list().is_empty(), "master {master} has a mark");
    }
    let key = cluster.nodes[0].tell(&["KEYS", "semel:mark*"]).await.list()[0].text();
    cluster.move_slot(cluster.slot_of(&key).await, 0, 1).await;
    assert_eq!(births_at_last(&stores).await, before, "a slot moved");
    let first = cluster.master_of(cluster.slot_of("semel:mark").await, 0).await.expect("it has a master");
    let other = (first + 1) % 3;
    cluster.nodes[other].tell(&["FLUSHALL"]).await;
    let after = births_at_last(&stores).await;
    assert_ne!(after[0], before[0]);
    assert_eq!(after[0], after[1]);
    assert_eq!(births_at_last(&stores).await, after, "it is told once");
    // The same by a restart without what it kept.
    let third = (first + 2) % 3;
    cluster.nodes[third].start_empty().await;
    for _ in 0..1_200 {
        if let Ok(health) = stores[0].health().await
            && health.birth != after[0]
        {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("nobody noticed");
}

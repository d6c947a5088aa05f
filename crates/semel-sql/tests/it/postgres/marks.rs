//! Whose records they are, and whether they are still there.

use semel_core::{
    env::Env,
    identity::{MarkError, Secret},
    store::{Store, StoreErrorKind},
};
use semel_sql::{ConnectError, Options, PostgresStore};
use semel_testkit::conformance::Bed as _;

use super::{
    asking::{ask, hold, secret},
    bed::Bed,
};

fn with(secret: Option<Secret>) -> Options {
    Options { secret, ..Options::default() }
}

async fn refused(url: &str, secret: Option<Secret>) -> MarkError {
    match PostgresStore::connect(url, &Env::system(), with(secret)).await {
        Err(ConnectError::Mark { source, .. }) => source,
        other => panic!("the records are another deployment's: {other:?}"),
    }
}

fn other_secret() -> Secret {
    Secret::from_material(b"quite another secret").unwrap()
}

#[tokio::test]
async fn the_first_secret_is_the_databases() {
    let bed = Bed::<false>::start().await;
    let first = bed.store_with(with(Some(secret()))).await;
    let again = bed.store_with(with(Some(secret()))).await;
    let birth = first.health().await.unwrap().birth;
    assert!(birth.is_some() && birth == again.health().await.unwrap().birth);
    assert_eq!(refused(&bed.url(), Some(other_secret())).await, MarkError::OtherSecret);
    assert_eq!(refused(&bed.url(), None).await, MarkError::NeedsSecret);
}

#[tokio::test]
async fn without_a_secret_all_use_the_databases_own() {
    let bed = Bed::<true>::start().await;
    let (url, env) = (bed.url(), Env::system());
    // All at once: one of them leaves the mark, the others find it.
    let open = || PostgresStore::connect(&url, &env, with(None));
    let (a, b, c) = tokio::join!(open(), open(), open());
    let digest = |store: &PostgresStore| {
        let digest = store.secret().digest(semel_core::identity::Purpose::Proof, &[]);
        *digest.as_bytes()
    };
    let digests = [a.unwrap(), b.unwrap(), c.unwrap()].map(|store| digest(&store));
    assert!(digests[0] == digests[1] && digests[1] == digests[2]);
    assert_eq!(refused(&url, Some(other_secret())).await, MarkError::OtherSecret);
}

#[tokio::test]
async fn a_database_that_lost_its_records_is_noticed_by_all() {
    let bed = Bed::<false>::start().await;
    let (one, two) = (bed.store_with(with(None)).await, bed.store_with(with(None)).await);
    hold(&one, 1).await;
    let born = one.health().await.unwrap().birth;
    bed.ask("TRUNCATE semel_record, semel_mark").await;
    let again = one.health().await.unwrap().birth;
    assert!(again.is_some() && again != born);
    // The other one finds the mark that the first one put back, under the same secret.
    assert_eq!(two.health().await.unwrap().birth, again);
    hold(&two, 1).await;
}

#[tokio::test]
async fn records_of_another_deployment_put_in_their_place_close_the_store() {
    let bed = Bed::<false>::start().await;
    let store = bed.store_with(with(Some(secret()))).await;
    hold(&store, 1).await;
    bed.ask("TRUNCATE semel_record, semel_mark").await;
    let _others = bed.store_with(with(Some(other_secret()))).await;
    assert_eq!(store.health().await.unwrap_err().kind, StoreErrorKind::Closed);
    // Every new connection looks, too.
    bed.ask(
        "SELECT count(pg_terminate_backend(pid, 5000))::text FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .await;
    let mut last = None;
    for _ in 0..3 {
        last = Some(store.claim(&ask(2)).await.unwrap_err().kind);
    }
    assert_eq!(last, Some(StoreErrorKind::Closed));
}

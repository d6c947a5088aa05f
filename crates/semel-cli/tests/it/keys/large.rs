//! A purge of a store that is larger than one call to it looks at, and what is told meanwhile.

use std::time::Duration;

use semel_core::engine::{Engine, Verdict};
use semel_core::identity::{Kind, Namespace};
use semel_testkit::servers::redis::{Redis, Setup};

use super::{Seeded, record, semel_keys, store_of};
use crate::semel::{before_a_terminal, command};

/// It ended after 20,000 keys, with what it had found until then, and exit code 0.
#[tokio::test]
async fn a_purge_goes_on_until_none_is_left() {
    let server = Redis::start(&Setup::new()).await;
    let store = store_of(&server.url()).await;
    let engine = Engine::builder(store.store.clone(), store.secret.clone()).build();
    let place = (Namespace::http("gateway").expect("a name"), Kind::Key);
    for n in 0..100 {
        let (key, unknown) = (format!("order-{n}"), Verdict::Unknown { last: None });
        record(&engine, place, &key, unknown, Duration::from_millis(500)).await;
    }
    store.close();
    let fill = "for n = 1, 45000 do redis.call('SET', 'semel:http:filler:k:' .. n, '') end return 'filled'";
    assert_eq!(server.ask(&["EVAL", fill, "0"]).await.text(), "filled");
    let url = server.url();
    let here = std::path::Path::new("/");
    let unknown = ["list", "--state", "unknown", "--store", &url];
    let mut left = String::new();
    for _ in 0..600 {
        left = semel_keys(here, &unknown).await.err;
        if left == "no records\n" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(left, "no records\n");
    let ended = semel_keys(here, &["purge", "--yes", "--store", &url]).await;
    let told = "100 removed, 100 of them with an outcome that nobody ever told\n";
    assert_eq!((ended.code, ended.err.as_str()), (0, told), "{ended:?}");
}

/// A pipe gets the result alone; who sits before a terminal sees that something goes on.
#[tokio::test]
async fn a_purge_tells_a_terminal_how_far_it_is() {
    let seeded = Seeded::new().await;
    assert_eq!(seeded.keys(&["purge", "--yes"]).await.err, "0 removed\n");
    let mut purge = command(&["keys", "purge", "--yes"]);
    purge.current_dir(seeded.dir.path());
    let (code, said) = before_a_terminal(purge);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("looking for what has ended: 0 removed"), "{said:?}");
    assert!(said.trim_end().ends_with("0 removed"), "{said:?}");
}

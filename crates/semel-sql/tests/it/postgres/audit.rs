//! Lines about what people did: the last ten thousand stay, and what is older goes bit by bit.

use semel_core::store::StoreAdmin;
use semel_testkit::conformance::Bed as _;

use super::bed::Bed;

const COUNT: &str = "SELECT count(*)::text FROM semel_audit";

#[tokio::test]
async fn old_lines_about_what_people_did_go_bit_by_bit() {
    let bed = Bed::<false>::start().await;
    let store = bed.store().await;
    bed.ask("INSERT INTO semel_audit (line) SELECT 'line ' || n FROM generate_series(1, 10700) AS n").await;
    store.audit("one more").await.unwrap();
    assert_eq!(bed.ask(COUNT).await, "10201", "no statement removes more than it can in a moment");
    for n in 0..3 {
        store.audit(&format!("another {n}")).await.unwrap();
    }
    assert_eq!(bed.ask(COUNT).await, "10000");
    assert_eq!(store.audited(2).await.unwrap(), ["another 2", "another 1"]);
    assert_eq!(bed.ask("SELECT line FROM semel_audit ORDER BY n LIMIT 1").await, "line 705");
}

/// Each removes some of what is old, and waits for nobody who does the same.
#[tokio::test]
async fn many_who_write_lines_at_once_lose_none() {
    let bed = Bed::<false>::start().await;
    bed.ask("INSERT INTO semel_audit (line) SELECT 'old' FROM generate_series(1, 12000)").await;
    let mut tasks = tokio::task::JoinSet::new();
    for store in [bed.store().await, bed.store().await] {
        tasks.spawn(async move {
            for n in 0..20 {
                store.audit(&format!("new {n}")).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(bed.ask("SELECT count(*)::text FROM semel_audit WHERE line LIKE 'new %'").await, "40");
}

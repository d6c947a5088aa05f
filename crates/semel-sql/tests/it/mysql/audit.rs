//! Lines about what people did: the last ten thousand stay, and what is older goes bit by bit.

use semel_core::store::StoreAdmin;

use super::place::Place;

const COUNT: &str = "SELECT CAST(COUNT(*) AS CHAR) FROM semel_audit";

#[tokio::test]
async fn old_lines_about_what_people_did_go_bit_by_bit() {
    let place = Place::alone(&[]).await;
    let store = place.store().await;
    store.audit("the first").await.unwrap();
    assert_eq!(place.number(COUNT).await, 1, "there is nothing old yet");
    place.run("INSERT INTO semel_audit (n, at, line) SELECT seq, 0, CONCAT('line ', seq) FROM seq_2_to_10700").await;
    store.audit("one more").await.unwrap();
    assert_eq!(place.number(COUNT).await, 10_201, "no statement removes more than it can in a moment");
    for n in 0..3 {
        store.audit(&format!("another {n}")).await.unwrap();
    }
    assert_eq!(place.number(COUNT).await, 10_000);
    assert_eq!(store.audited(2).await.unwrap(), ["another 2", "another 1"]);
    assert_eq!(place.text("SELECT line FROM semel_audit ORDER BY n LIMIT 1").await, "line 705");
}

/// Each removes some of what is old; whoever comes second finds it gone.
#[tokio::test]
async fn many_who_write_lines_at_once_lose_none() {
    let place = Place::alone(&[]).await;
    let stores = [place.store().await, place.store().await];
    place.run("INSERT INTO semel_audit (at, line) SELECT 0, 'old' FROM seq_1_to_12000").await;
    let mut tasks = tokio::task::JoinSet::new();
    for store in stores {
        tasks.spawn(async move {
            for n in 0..20 {
                store.audit(&format!("new {n}")).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(place.number("SELECT CAST(COUNT(*) AS CHAR) FROM semel_audit WHERE line LIKE 'new %'").await, 40);
}

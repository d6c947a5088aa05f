//! What the server's errors mean: nothing done, perhaps done, sent again. Where the real error cannot be had, a trigger says
//! its number in the middle of the statement.

use std::{collections::BTreeSet, time::Duration};

use semel_core::store::{AskFor, Claimed, Did, Settled, Settlement, Store, StoreError, StoreErrorKind};
use semel_sql::{MySqlStore, Options};

use super::{
    calls::{about, ask, ask_for, done, free, granted, hold, id},
    numbers::NUMBERS,
    place::{Place, options},
};

#[track_caller]
fn failed<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> (Did, StoreErrorKind) {
    let error = answer.expect_err("the server says no");
    (error.did, error.kind)
}

/// Makes every insert and update of a record fail with an error of this number.
async fn fail_with(place: &Place, number: u16, message: &str) {
    for (name, when) in [("on_insert", "INSERT"), ("on_update", "UPDATE")] {
        place
            .run(&format!(
                "CREATE OR REPLACE TRIGGER {name} BEFORE {when} ON semel_record FOR EACH ROW \
                 SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = '{message}'"
            ))
            .await;
    }
}

#[tokio::test]
async fn each_error_of_the_server_says_what_was_done() {
    use Did::{Nothing, Unknown};
    use StoreErrorKind::{Full, ReadOnly, Unavailable};
    let place = Place::shared().await;
    let store = place.store().await;
    let claim = hold(&store, 1).await;
    // Written once more, not taken from the table: a table that changes its mind has to say so here.
    let cases: &[(&[u16], Did, StoreErrorKind)] = &[
        (&[1021, 1114, 1118, 1153], Nothing, Full),
        (&[1036, 1290, 1792, 1836], Nothing, ReadOnly),
        (&[1040, 1044, 1045, 1046, 1047, 1049, 1054, 1064, 1129, 1130], Nothing, Unavailable),
        (&[1142, 1143, 1146, 1203, 1226, 1227, 1370, 1698, 4031], Nothing, Unavailable),
        (&[1205, 1206, 1264, 1366, 1406, 1461, 1637, 1665, 1690], Nothing, Unavailable),
        (&[1022, 1062, 1586], Nothing, Unavailable),
        (&[1020, 1213, 1243, 1615, 3101], Nothing, Unavailable),
        (&[1030, 1053, 1080, 1105, 1152, 1158, 1159, 1160, 1161, 1180, 1184], Unknown, Unavailable),
        (&[1317, 1927, 1969, 3024, 3169, 2006, 2013], Unknown, Unavailable),
    ];
    let cases = cases.iter().flat_map(|(numbers, did, kind)| numbers.iter().map(move |n| (*n, *did, *kind)));
    let mut seen = BTreeSet::new();
    for (number, did, kind) in cases {
        fail_with(&place, number, "made by a test").await;
        assert_eq!(failed(store.settle(&claim, &done(b"x")).await), (did, kind), "settling, {number}");
        assert_eq!(failed(store.release(&free(&claim)).await), (did, kind), "releasing, {number}");
        // Whoever finds a row locked, or a row at all, is told what is there instead.
        if ![1205, 1022, 1062, 1586].contains(&number) {
            assert_eq!(failed(store.claim(&ask(2)).await), (did, kind), "claiming, {number}");
        }
        seen.insert(number);
    }
    let unseen: Vec<_> = NUMBERS.iter().flat_map(|(numbers, ..)| *numbers).filter(|n| !seen.contains(n)).collect();
    assert!(unseen.is_empty(), "in the table, and no server has said them here: {unseen:?}");
    fail_with(&place, 1030, "Got error 28 from storage engine").await;
    assert_eq!(failed(store.claim(&ask(2)).await), (Nothing, Full));
    place.run("DROP TRIGGER on_insert; DROP TRIGGER on_update").await;
    assert!(matches!(store.settle(&claim, &done(b"x")).await, Ok(Settled::Ok { restored: false })));
    hold(&store, 2).await;
}

#[tokio::test]
async fn a_failed_look_has_done_nothing_whatever_it_failed_with() {
    let place = Place::alone(&[]).await;
    let store = place.store().await;
    hold(&store, 1).await;
    // A statement of the store is stopped in the middle of its look.
    place.run("RENAME TABLE semel_record TO gone").await;
    assert_eq!(failed(store.get(&id(1)).await), (Did::Nothing, StoreErrorKind::Unavailable));
    place.run("RENAME TABLE gone TO semel_record").await;
    assert!(store.get(&id(1)).await.unwrap().record.is_some());
}

/// Lost a few times, to a deadlock say, a statement is sent again by the store itself.
#[tokio::test]
async fn a_statement_that_lost_is_sent_again() {
    let place = Place::shared().await;
    let store = place.store().await;
    for number in [1213, 1020, 1615] {
        // The counter is kept by an engine that rolls nothing back.
        place
            .run(&format!(
                "CREATE OR REPLACE TABLE tries (n INT) ENGINE = Aria; INSERT INTO tries VALUES (0); \
                 CREATE OR REPLACE TRIGGER on_insert BEFORE INSERT ON semel_record FOR EACH ROW BEGIN \
                 UPDATE tries SET n = n + 1; \
                 IF (SELECT n FROM tries) <= 3 THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = {number}; END IF; END"
            ))
            .await;
        let asked = ask(number);
        // The trigger's own statements take the last insert id with them: the grant is found, as after a lost reply.
        let Ok(Claimed::Found { record: Some(own), .. }) = store.claim(&asked).await else { panic!("it was granted") };
        assert_eq!(own.owner, asked.owner());
        assert_eq!(place.number("SELECT CAST(n AS CHAR) FROM tries").await, 4);
    }
    place.run("DROP TRIGGER on_insert; DROP TABLE tries").await;
}

async fn user(place: &Place, rights: &str) -> MySqlStore {
    place.run(&format!("CREATE USER plain IDENTIFIED BY 'pw'; GRANT {rights} ON {}.* TO plain", place.database)).await;
    let url = place.server.url_of("plain:pw", &place.database);
    MySqlStore::connect(&url, &semel_core::env::Env::system(), options()).await.unwrap()
}

#[tokio::test]
async fn a_primary_that_was_demoted_takes_no_claims() {
    let place = Place::alone(&[]).await;
    let store = user(&place, "ALL").await;
    let claim = hold(&store, 1).await;
    place.run("SET GLOBAL read_only = 1").await;
    let health = store.health().await.unwrap();
    assert!(!health.writable && !health.trouble.is_empty());
    assert_eq!(failed(store.claim(&ask(2)).await), (Did::Nothing, StoreErrorKind::ReadOnly));
    // The connection was given up, and no new one is made to a server that refuses writes.
    assert_eq!(failed(store.settle(&claim, &done(b"x")).await), (Did::Nothing, StoreErrorKind::ReadOnly));
    place.run("SET GLOBAL read_only = 0").await;
    assert!(matches!(store.settle(&claim, &done(b"x")).await, Ok(Settled::Ok { restored: false })));
}

#[tokio::test]
async fn where_the_server_takes_no_more_connections_nothing_was_done() {
    let place = Place::alone(&["--max-connections=10"]).await;
    let store = user(&place, "ALL").await;
    let mut others = Vec::new();
    // The store has one of ten, root may have one more.
    for _ in 0..10 {
        others.push(place.connection().await);
    }
    let one = hold(&store, 1).await;
    // The one connection is held up, so that a second claim needs a second one.
    let _locked = sqlx::raw_sql("LOCK TABLES semel_record WRITE").execute(&mut others[0]).await.unwrap();
    let asks = [ask(2), ask(3)];
    let (held_up, refused) = tokio::join!(store.claim(&asks[0]), async {
        let refused = store.claim(&asks[1]).await;
        let _free = sqlx::raw_sql("UNLOCK TABLES").execute(&mut others[0]).await.unwrap();
        refused
    });
    assert_eq!(failed(refused), (Did::Nothing, StoreErrorKind::Unavailable));
    assert!(matches!(held_up, Ok(Claimed::Granted { .. })));
    drop(others);
    let _ = store.settle(&one, &done(b"x")).await.unwrap();
}

#[tokio::test]
async fn an_outcome_larger_than_a_packet_is_refused_and_nothing_was_done() {
    let place = Place::alone(&["--max-allowed-packet=1M"]).await;
    let store = place.store().await;
    let most = usize::try_from(store.facts().max_rest).unwrap();
    assert_eq!(most, (1 << 20) - (64 << 10));
    let claim = hold(&store, 1).await;
    let (did, kind) = failed(store.settle(&claim, &done(&vec![7; 2 << 20])).await);
    // The server hangs up after it said so, sometimes before that is read.
    assert!(kind == StoreErrorKind::Full && did == Did::Nothing || did == Did::Unknown, "{did:?} {kind:?}");
    // What the store said it takes, it takes, in both directions.
    let Settlement::Done { rest, .. } = done(b"") else { panic!("it is a completion") };
    let whole = done(&vec![7; most - rest.len()]);
    assert!(matches!(store.settle(&claim, &whole).await, Ok(Settled::Ok { restored: false })));
    let Ok(Claimed::Found { record: Some(record), .. }) = store.claim(&ask(1)).await else { panic!("it is there") };
    assert_eq!(record.rest.len(), most);
}

#[tokio::test]
async fn a_call_ends_in_its_time() {
    let place = Place::alone(&[]).await;
    let short = Options { call_timeout: Duration::from_millis(400), ..options() };
    let store = place.store_with(short).await;
    let claim = hold(&store, 1).await;
    place.server.pause();
    assert_eq!(failed(store.settle(&claim, &done(b"x")).await), (Did::Unknown, StoreErrorKind::Unavailable));
    assert_eq!(failed(store.get(&id(1)).await), (Did::Nothing, StoreErrorKind::Unavailable));
    place.server.resume();
    // It arrived when the server went on, or it did not: the repeat gets the same answer.
    let answer = loop {
        if let Ok(answer) = store.settle(&claim, &done(b"x")).await {
            break answer;
        }
    };
    assert!(matches!(answer, Settled::Ok { restored: false }), "{answer:?}");
    granted(store.claim(&ask_for(AskFor { takeover: true, ..about(2) })).await);
}

//! What people use: lists, deletion, purging, health.

use std::collections::{BTreeSet, HashSet};

use semel_core::store::{Claimed, Filter, Page};

use super::prelude::*;

async fn all<B: Bed>(s: &Stage<B>, filter: &Filter, page: usize) -> Vec<([u8; 32], Record)> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let Page { entries, next, now } = s.store.list(filter, after.as_ref(), page).await.expect("the store works");
        assert!(entries.len() <= page);
        near_time(now, s.now().await);
        all.extend(entries.into_iter().map(|e| (*e.identity.digest(), e.record)));
        after = next;
        if after.is_none() {
            let shown = all.len();
            let mut seen = HashSet::new();
            all.retain(|(digest, _)| seen.insert(*digest));
            assert!(B::SHOWS_TWICE || all.len() == shown, "a record was listed twice");
            return all;
        }
    }
}

async fn how_many<B: Bed>(s: &Stage<B>, filter: Filter) -> usize {
    all(s, &filter, 7).await.len()
}

pub async fn a_list_in_pages_shows_each_record_once<B: Bed>(s: &Stage<B>) {
    assert!(all(s, &Filter::default(), 10).await.is_empty());
    for n in 0..60 {
        s.hold(n).await;
    }
    for page in [1, 7, 60, 61] {
        let listed = all(s, &Filter::default(), page).await;
        assert_eq!(listed.len(), 60, "in pages of {page}");
        let expected: HashSet<_> = (0..60).map(|n| *id(n).digest()).collect();
        assert_eq!(listed.iter().map(|(d, _)| *d).collect::<HashSet<_>>(), expected);
    }
    let (digest, record) = all(s, &Filter::default(), 100).await.remove(0);
    let n = (0..60).find(|n| *id(*n).digest() == digest).expect("it is one of these");
    same(&record, &s.the_record(n).await);
}

pub async fn a_list_names_whose_records_they_are<B: Bed>(s: &Stage<B>) {
    s.hold(1).await;
    let page = s.store.list(&Filter::default(), None, 10).await.expect("the store works");
    let [entry] = page.entries.as_slice() else { panic!("there is one record: {page:?}") };
    assert_eq!(entry.identity.to_string(), id(1).to_string());
}

pub async fn a_list_can_be_narrowed<B: Bed>(s: &Stage<B>) {
    let records = [("orders", "submit"), ("orders", "cancel"), ("refunds", "submit"), ("refunds", "submit")];
    for (n, (service, rule)) in (0..).zip(records) {
        let rest = meta_of(&format!("http:{service}"), rule);
        granted(s.claim(AskFor { identity: id_in(service, n), rest, ..about(n) }).await);
    }
    let filter = |namespace: Option<&str>, rule: Option<&str>| Filter {
        namespace: namespace.map(Into::into),
        rule: rule.map(Into::into),
        state: None,
    };
    assert_eq!(how_many(s, filter(Some("http:orders"), None)).await, 2);
    assert_eq!(how_many(s, filter(None, Some("submit"))).await, 3);
    assert_eq!(how_many(s, filter(Some("http:refunds"), Some("submit"))).await, 2);
    assert_eq!(how_many(s, filter(Some("http:refunds"), Some("cancel"))).await, 0);
    assert_eq!(how_many(s, filter(Some("http:order"), None)).await, 0);
}

pub async fn a_list_by_state_goes_by_what_records_read_as<B: Bed>(s: &Stage<B>) {
    let claims = [s.hold(1).await, s.hold(2).await, s.hold(3).await, s.hold(4).await, s.hold(5).await];
    granted(s.claim(AskFor { takeover: true, ..about(6) }).await);
    stands(s.settle(&claims[1], done("x")).await);
    stands(s.settle(&claims[2], nobody_knows()).await);
    stands(s.release(free(&claims[3])).await);
    stands(s.release(park(&claims[4])).await);
    let by = |state| Filter { state: Some(state), ..Filter::default() };
    let states = [StateCode::Free, StateCode::InFlight, StateCode::Done, StateCode::Unknown, StateCode::Parked];
    for (state, expected) in states.into_iter().zip([1, 2, 1, 1, 1]) {
        assert_eq!(how_many(s, by(state)).await, expected, "{state:?}");
    }
    s.advance(LEASE + AFTER).await;
    for (state, expected) in states.into_iter().zip([1, 1, 1, 2, 1]) {
        assert_eq!(how_many(s, by(state)).await, expected, "{state:?}, after the leases");
    }
}

pub async fn what_ended_is_not_listed<B: Bed>(s: &Stage<B>) {
    let claim = s.hold(1).await;
    stands(s.settle(&claim, done("x")).await);
    s.hold(2).await;
    s.advance(TTL + AFTER).await;
    let listed = all(s, &Filter::default(), 10).await;
    assert_eq!(listed.iter().map(|(d, _)| *d).collect::<Vec<_>>(), [*id(2).digest()]);
}

pub async fn only_what_is_over_is_deleted_and_only_as_expected<B: Bed>(s: &Stage<B>) {
    let states = [StateCode::Free, StateCode::InFlight, StateCode::Done, StateCode::Unknown, StateCode::Parked];
    for (n, is) in (0..).zip(states) {
        let claim = s.hold(n).await;
        match is {
            StateCode::InFlight => {}
            StateCode::Free => stands(s.release(free(&claim)).await),
            StateCode::Parked => stands(s.release(park(&claim)).await),
            StateCode::Done => stands(s.settle(&claim, done("x")).await),
            StateCode::Unknown => stands(s.settle(&claim, nobody_knows()).await),
        }
        let was = s.the_record(n).await;
        for expected in states.into_iter().filter(|e| *e != is) {
            assert!(!s.store.delete(&id(n), expected).await.expect("the store works"), "{is:?} as {expected:?}");
        }
        same(&s.the_record(n).await, &was);
        let deletable = !matches!(is, StateCode::InFlight | StateCode::Unknown);
        assert_eq!(s.store.delete(&id(n), is).await.expect("the store works"), deletable, "{is:?}");
        assert_eq!(s.record(n).await.is_none(), deletable);
        assert!(!s.store.delete(&id(n), is).await.expect("the store works"));
    }
    // A claim whose lease is over reads as unknown and is as little to be deleted.
    s.advance(LEASE + AFTER).await;
    assert!(!s.store.delete(&id(1), StateCode::InFlight).await.expect("the store works"));
    assert!(!s.store.delete(&id(1), StateCode::Unknown).await.expect("the store works"));
}

/// Purges until the store says that there is no more: how many were removed, and whose outcome nobody told.
pub(super) async fn purge_all<B: Bed>(s: &Stage<B>, max: usize) -> (usize, Vec<[u8; 32]>) {
    let (mut gone, mut told) = (0, Vec::new());
    loop {
        let purged = s.store.purge(max).await.expect("the store works");
        assert!(purged.removed <= max);
        gone += purged.removed;
        told.extend(purged.unresolved.iter().map(|identity| *identity.digest()));
        if !purged.more {
            return (gone, told);
        }
    }
}

/// A store may remove by itself what has ended, but for those whose outcome nobody told: each of these is told by somebody.
/// So it is by them that a purge that does nothing shows on every store.
pub async fn a_purge_takes_what_ended_and_nothing_else<B: Bed>(s: &Stage<B>) {
    assert_eq!(purge_all(s, 7).await, (0, vec![]));
    for n in 0..42 {
        let claim = s.hold(n).await;
        stands(s.settle(&claim, if n < 30 { done("x") } else { nobody_knows() }).await);
    }
    let later = s.hold(100).await;
    assert_eq!(purge_all(s, 7).await, (0, vec![]));
    s.advance(TTL + AFTER).await;
    let (gone, mut told) = purge_all(s, 7).await;
    assert!((12..=42).contains(&gone), "{gone} removed");
    let mut expected: Vec<_> = (30..42).map(|n| *id(n).digest()).collect();
    told.sort_unstable();
    expected.sort_unstable();
    assert_eq!(told, expected);
    assert_eq!(purge_all(s, 7).await, (0, vec![]), "a purge said that it was done");
    if let Some(records) = s.store.health().await.expect("the store works").records {
        assert_eq!(records, 1);
    }
    stands(s.settle(&later, done("x")).await);
    assert_eq!(s.hold(3).await.attempt(), 1);
}

/// A record that came and went many times leaves traces; a purge looks past them.
pub async fn a_purge_says_that_there_is_no_more_only_when_none_is_left<B: Bed>(s: &Stage<B>) {
    for n in 0..200 {
        for _ in 0..5 {
            let claim = s.hold(n).await;
            stands(s.release(free(&claim)).await);
        }
        s.hold(n).await;
    }
    // Between them are as many that stay.
    for n in 1_000..1_200 {
        granted(s.claim(AskFor { keep: 3 * KEEP, ..about(n) }).await);
    }
    s.advance(LEASE + HOLD + KEEP + AFTER).await;
    let (gone, told) = purge_all(s, 3).await;
    assert_eq!((gone, told.len()), (200, 200), "a purge said that it was done");
    let told: BTreeSet<_> = told.into_iter().collect();
    assert_eq!(told, (0..200).map(|n| *id(n).digest()).collect(), "one was told twice, and another never");
    assert_eq!(purge_all(s, 1_000).await, (0, vec![]), "a purge said that it was done");
    if let Some(records) = s.store.health().await.expect("the store works").records {
        assert_eq!(records, 200, "a purge said that it was done");
    }
    assert_eq!(how_many(s, Filter::default()).await, 200);
}

/// Nobody ever said what came of it, and now its time is over: whoever notices tells it, once.
pub async fn the_end_of_an_unknown_is_told_once<B: Bed>(s: &Stage<B>) {
    // Never settled; settled as unknown; claimed again after its end; settled in time; completed after its end.
    let claims = [s.hold(1).await, s.hold(2).await, s.hold(3).await, s.hold(4).await, s.hold(5).await];
    stands(s.settle(&claims[1], nobody_knows()).await);
    stands(s.settle(&claims[3], done("x")).await);
    s.advance(LEASE + HOLD + KEEP + AFTER).await;
    restored(s.settle(&claims[4], done("very late")).await);
    let mut told = Vec::new();
    if unresolved(s.claim(about(3)).await) {
        told.push(*id(3).digest());
    }
    assert!(!unresolved(s.claim(about(6)).await));
    told.extend(purge_all(s, 2).await.1);
    for n in [1, 2] {
        assert!(!unresolved(s.claim(about(n)).await), "it was told already");
    }
    told.sort_unstable();
    let mut expected = [1, 2, 3].map(|n| *id(n).digest());
    expected.sort_unstable();
    assert_eq!(told, expected);
}

#[track_caller]
fn unresolved(answer: Result<Claimed, semel_core::store::StoreError>) -> bool {
    match answer {
        Ok(Claimed::Granted { unresolved, .. }) => unresolved,
        other => panic!("expected a grant, got {other:?}"),
    }
}

pub async fn what_people_did_is_kept_newest_first<B: Bed>(s: &Stage<B>) {
    assert!(s.store.audited(10).await.expect("the store works").is_empty());
    let lines = ["one", "{\"two\":\"2\"}", "drei ✓", "two"];
    for line in lines {
        s.store.audit(line).await.expect("the store works");
    }
    let other = s.bed.client().await;
    let kept = other.audited(10).await.expect("the store works");
    assert_eq!(kept, lines.into_iter().rev().collect::<Vec<_>>());
    assert_eq!(other.audited(1).await.expect("the store works"), ["two"]);
    let listed = s.store.list(&Filter::default(), None, 10).await.expect("the store works");
    assert!(listed.entries.is_empty(), "a line is no record");
}

pub async fn a_working_store_says_so<B: Bed>(s: &Stage<B>) {
    let before = s.now().await;
    let health = s.store.health().await.expect("the store works");
    assert!(health.writable);
    assert_eq!(health.trouble, "");
    s.advance(TTL).await;
    near_time(s.now().await, before + TTL);
    let seen = s.store.get(&id(1)).await.expect("the store works");
    near_time(seen.now, before + TTL);
    assert!(seen.record.is_none());
}

pub async fn a_stores_facts_are_constant<B: Bed>(s: &Stage<B>) {
    let facts = s.store.facts();
    assert!(!facts.name.is_empty() && facts.max_rest > 0);
    s.hold(1).await;
    assert_eq!(s.store.facts(), facts);
    assert_eq!(s.bed.client().await.facts(), facts);
}

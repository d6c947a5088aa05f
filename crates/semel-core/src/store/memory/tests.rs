use super::*;
use crate::{
    fingerprint::Fingerprint,
    identity::{Display, Key, Kind, Namespace, Scope, Secret},
    ids::Owner,
    record::{Format, Meta, Outcome, Payload},
    store::AskFor,
};

fn meta() -> Bytes {
    let (namespace, rule, key) = ("http:t", "r", "k");
    Meta { kind: Kind::Key, parameters: 0, max_attempts: 10, namespace, rule, key, credentials: None, request: None }
        .encode()
}

fn ask(n: u64) -> Ask {
    let secret = Secret::from_material(b"0123456789abcdef").unwrap();
    let key = Key::new(&n, Display::Full);
    let identity = Identity::new(&secret, Kind::Key, Namespace::http("t").unwrap(), &Scope::shared(), &key);
    let mut owner = [0; 16];
    owner[..8].copy_from_slice(&n.to_be_bytes());
    let minute = Duration::from_secs(60);
    Ask::new(
        Owner::from_bytes(owner),
        AskFor {
            identity,
            fingerprint: Fingerprint::NONE,
            lease: minute,
            hold: minute,
            keep: minute,
            grace: Duration::ZERO,
            needs_token: false,
            takeover: false,
            not_after: StoreTime::MAX,
            rest: Rest::write(&meta(), &Payload::Nothing),
        },
    )
}

fn ready<T>(reply: Reply<'_, T>) -> Result<T, StoreError> {
    reply.try_ready().expect("the memory store answers at once")
}

fn run(store: &MemoryStore, n: u64, body: usize, ttl: Duration) -> Result<(), StoreError> {
    let Claimed::Granted { claim, .. } = ready(store.claim(&ask(n)))? else { panic!("{n} is taken") };
    let outcome = Outcome::new(Format::HTTP, &b"head"[..], vec![7; body]);
    let rest = Rest::write(&meta(), &Payload::Outcome { outcome, settled_at: StoreTime::default() });
    let done = Settlement::Done { fingerprint: Fingerprint::NONE, rest, body_kept: true, ttl };
    let Settled::Ok { .. } = ready(store.settle(&claim, &done))? else { panic!("{n} was lost") };
    Ok(())
}

fn store(records: usize, bytes: usize) -> MemoryStore {
    MemoryStore::new(&Env::system(), Capacity { records, bytes })
}

#[test]
fn a_full_store_refuses_claims_and_lets_running_work_settle() {
    let store = store(3, 1 << 20);
    let Claimed::Granted { claim, .. } = ready(store.claim(&ask(0))).unwrap() else { panic!() };
    run(&store, 1, 10, Duration::from_secs(60)).unwrap();
    run(&store, 2, 10, Duration::from_secs(60)).unwrap();
    let refused = run(&store, 3, 10, Duration::from_secs(60)).unwrap_err();
    assert_eq!((refused.did, refused.kind), (crate::store::Did::Nothing, crate::store::StoreErrorKind::Full));
    let unknown = Settlement::Unknown { fingerprint: Fingerprint::NONE, rest: meta(), ttl: Duration::from_secs(60) };
    assert!(matches!(ready(store.settle(&claim, &unknown)), Ok(Settled::Ok { restored: false })));
}

#[test]
fn pressure_drops_bodies_and_never_records() {
    let store = store(10_000, 200_000);
    for n in 0..400 {
        run(&store, n, 2_000, Duration::from_secs(60 + n)).unwrap();
    }
    let (mut kept, mut dropped) = (0, 0);
    for n in 0..400 {
        let seen = ready(store.get(&ask(n).identity)).unwrap().record.expect("no record goes before its time");
        assert_eq!(seen.state, StateCode::Done);
        if seen.flags.has(crate::record::Flags::BODY_KEPT) { kept += 1 } else { dropped += 1 }
    }
    assert!(kept > 0 && dropped > 250, "{kept} kept, {dropped} dropped");
    assert!(store.budget.bytes() <= 200_000);
}

#[test]
fn a_body_that_takes_less_than_its_absence_stays_and_the_budget_is_right() {
    let store = store(10_000, 1 << 20);
    for n in 0..200 {
        run(&store, n, usize::try_from(n % 10).unwrap(), Duration::from_secs(600)).unwrap();
    }
    let before = store.budget.bytes();
    store.shards.iter().for_each(|s| s.lock().shed(usize::MAX));
    assert!(store.budget.bytes() < before);
    for n in 0..200 {
        let shard = store.shard(ask(n).identity.digest()).lock();
        let kept =
            shard.get(ask(n).identity.digest()).expect("no record goes").flags.has(crate::record::Flags::BODY_KEPT);
        assert_eq!(kept, n % 10 <= 5, "a body of {} bytes", n % 10);
    }
    let later = store.clock.now() + Duration::from_secs(700);
    store.shards.iter().for_each(|s| s.lock().purge(later, 1_000, &mut Purged::default()));
    assert_eq!((store.budget.records(), store.budget.bytes()), (0, 0));
    assert!(store.budget.has_room(Growth { records: 1, bytes: 1 }));
}

#[test]
fn entries_of_a_shard_are_told_apart_before_they_are_looked_at() {
    let digests = (0..20_000).map(|n| *ask(n).identity.digest());
    let tags: std::collections::BTreeSet<u64> = digests.filter(|d| d[0] == 7).map(|d| shard::tag(&d)).collect();
    assert!(tags.len() > 30, "{} of 128 tags", tags.len());
}

#[test]
fn what_has_ended_is_purged_and_its_budget_comes_back() {
    let store = store(10_000, 1 << 20);
    for n in 0..100 {
        run(&store, n, 100, Duration::ZERO).unwrap();
    }
    let later = store.clock.now() + Duration::from_secs(10);
    let Claimed::Granted { .. } = ready(store.claim(&ask(100))).unwrap() else { panic!() };
    let mut purged = Purged::default();
    let next_day = later + Duration::from_secs(86_400);
    store.shards.iter().for_each(|s| s.lock().purge(later, 1_000, &mut purged));
    assert_eq!((purged.removed, purged.unresolved.len()), (100, 0));
    store.shards.iter().for_each(|s| s.lock().purge(next_day, 1_000, &mut purged));
    assert_eq!(purged.unresolved, [ask(100).identity], "the end of an unknown is told");
    assert_eq!((store.budget.records(), store.budget.bytes()), (0, 0));
}

#[test]
fn a_listing_in_pages_shows_each_record_once() {
    let store = store(10_000, 1 << 20);
    for n in 0..300 {
        run(&store, n, 0, Duration::from_secs(60)).unwrap();
    }
    let (mut seen, mut after) = (std::collections::HashSet::new(), None);
    loop {
        let page = ready(store.list(&Filter::default(), after.as_ref(), 7)).unwrap();
        seen.extend(page.entries.iter().map(|e| *e.identity.digest()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 300);
    let none = Filter { rule: Some("other".into()), ..Filter::default() };
    assert!(ready(store.list(&none, None, 7)).unwrap().entries.is_empty());
}

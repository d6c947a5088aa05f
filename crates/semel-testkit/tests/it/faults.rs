//! The store that fails on demand, and the clocks.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use semel_core::{
    Owner, StoreTime,
    env::{Clock, Env},
    fingerprint::Fingerprint,
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    record::{Meta, Payload, Rest},
    store::{Ask, AskFor, Capacity, Claimed, Did, MemoryStore, Store, StoreError},
};
use semel_testkit::{
    clock::{ManualClock, SkewedClock},
    faults::{Fault, Faults, Op},
};

fn store() -> Faults<MemoryStore> {
    Faults::new(MemoryStore::new(&Env::system(), Capacity::default()))
}

fn ask(n: u8) -> Ask {
    let secret = Secret::from_material(b"0123456789abcdef").expect("it is long enough");
    let namespace = Namespace::http("t").expect("it is a name");
    let identity = Identity::new(&secret, Kind::Key, namespace, &Scope::shared(), &Key::new(&n, Display::Full));
    let (kind, rule, key) = (Kind::Key, "r", "k");
    let meta =
        Meta { kind, parameters: 0, max_attempts: 1, namespace: "http:t", rule, key, credentials: None, request: None };
    let minute = Duration::from_secs(60);
    let (lease, hold, keep, grace) = (minute, minute, minute, minute);
    let (needs_token, takeover, not_after) = (false, false, StoreTime::MAX);
    let rest = Rest::write(&meta.encode(), &Payload::Nothing);
    let fingerprint = Fingerprint::NONE;
    let what = AskFor { identity, fingerprint, lease, hold, keep, grace, needs_token, takeover, not_after, rest };
    Ask::new(Owner::from_bytes([n; 16]), what)
}

fn did(answer: &Result<Claimed, StoreError>) -> Option<Did> {
    answer.as_ref().err().map(|e| e.did)
}

async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[tokio::test]
async fn a_lost_reply_is_unknown_and_took_effect() {
    let store = store();
    store.fail(Op::Claim, 2, Fault::LoseReply);
    assert!(matches!(store.claim(&ask(1)).await, Ok(Claimed::Granted { .. })));
    assert_eq!(did(&store.claim(&ask(2)).await), Some(Did::Unknown));
    assert!(store.inner().get(&ask(2).identity).await.unwrap().record.is_some());
    assert_eq!((store.count(Op::Claim), store.pending()), (2, 0));
}

#[tokio::test]
async fn a_refused_call_and_a_lost_one_took_no_effect() {
    let store = store();
    store.fail(Op::Claim, 1, Fault::Refuse);
    store.fail(Op::Claim, 2, Fault::LoseCall);
    assert_eq!(did(&store.claim(&ask(1)).await), Some(Did::Nothing));
    assert_eq!(did(&store.claim(&ask(1)).await), Some(Did::Unknown));
    assert!(store.inner().get(&ask(1).identity).await.unwrap().record.is_none());
    assert!(matches!(store.claim(&ask(1)).await, Ok(Claimed::Granted { .. })));
}

#[tokio::test]
async fn a_held_call_waits_until_it_is_let_go() {
    let store = store();
    store.fail(Op::Claim, 1, Fault::HoldCall);
    store.fail(Op::Claim, 2, Fault::HoldReply);
    let asks = [ask(1), ask(2)];
    let (mut call, mut reply) = (store.claim(&asks[0]), store.claim(&asks[1]));
    assert!(is_pending(&mut call).await && is_pending(&mut reply).await);
    assert!(store.inner().get(&asks[0].identity).await.unwrap().record.is_none());
    assert!(store.inner().get(&asks[1].identity).await.unwrap().record.is_some());
    store.let_go();
    assert!(matches!(call.await, Ok(Claimed::Granted { .. })));
    assert!(matches!(reply.await, Ok(Claimed::Granted { .. })));
}

#[tokio::test]
async fn an_outage_is_for_all_calls_until_it_ends() {
    let store = store();
    store.outage(Some(Did::Unknown));
    assert_eq!(did(&store.claim(&ask(1)).await), Some(Did::Unknown));
    assert!(store.health().await.is_err());
    store.outage(None);
    assert!(store.health().await.is_ok());
}

#[tokio::test]
async fn a_sleeper_wakes_when_its_clock_gets_there() {
    let clock = ManualClock::new();
    let (soon, later) = (clock.now() + Duration::from_secs(1), clock.now() + Duration::from_secs(2));
    let (mut one, mut two) = (clock.sleep_until(soon), clock.sleep_until(later));
    assert!(is_pending(&mut one).await && is_pending(&mut two).await);
    assert_eq!(clock.next_wake(), Some(soon));
    clock.advance(Duration::from_secs(1));
    assert!(!is_pending(&mut one).await && is_pending(&mut two).await);
    drop(two);
    assert_eq!(clock.next_wake(), None);
    assert_eq!(clock.wall().duration_since(ManualClock::new().wall()).unwrap(), Duration::from_secs(1));
}

#[tokio::test]
async fn a_skewed_clock_wakes_whom_an_advance_concerns() {
    let clock = SkewedClock::new();
    let before = clock.now();
    let hour = Duration::from_secs(3_600);
    let slept = Arc::new(clock.clone()).sleep_until(before + hour);
    let ((), ()) = tokio::join!(slept, async {
        tokio::task::yield_now().await;
        clock.advance(hour);
    });
    assert!(clock.now() >= before + hour);
}

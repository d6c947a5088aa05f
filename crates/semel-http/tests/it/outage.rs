//! A store that is away, or says otherwise.

use std::{sync::Arc, time::Duration};

use semel_core::{
    Owner,
    engine::{Engine, Run, Times},
    env::Env,
    identity::Secret,
    policy::OnStoreError,
    record::{Payload, Rest},
    store::{Capacity, Did, MemoryStore, Resolution, Resolved, StoreAdmin, Target},
};
use semel_http::Caps;
use semel_testkit::faults::{Fault, Faults, Op};
use tokio::sync::Semaphore;

use crate::support::*;

type Store = Faults<MemoryStore>;

fn engine() -> (Engine, Arc<Store>) {
    let env = Env::system();
    let store = Arc::new(Faults::new(MemoryStore::new(&env, Capacity::default())));
    let secret = Secret::random(&*env.rng);
    let commit_wait = Duration::from_millis(20);
    let times = Times { commit_wait, ..Times::default() };
    (Engine::builder(store.clone(), secret).env(env).times(times).build(), store)
}

#[tokio::test]
async fn without_its_store_the_guard_runs_nothing() {
    let (engine, store) = engine();
    let effects = Effects::default();
    let counted = effects.clone();
    let service = guard(&engine, rule(), move |_| {
        counted.happen();
        async { answer(201, "order") }
    });
    store.outage(Some(Did::Nothing));
    let got = send(&service, post("k", "x")).await;
    assert_eq!((got.status.as_u16(), got.problem()), (503, "store-unavailable".to_owned()));
    assert!(!got.header("retry-after").is_empty());
    assert_eq!(effects.count(), 0);
    store.outage(None);
    assert_eq!(send(&service, post("k", "x")).await.became(), "fresh");
}

#[tokio::test]
async fn under_an_open_rule_a_request_runs_without_its_store_and_both_sides_are_told() {
    let (engine, store) = engine();
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let open = rule().policy(|p| p.on_store_error(OnStoreError::Open));
    let service = guard(&engine, open, move |request| {
        let header = |name: &str| request.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        told.lock().push(["semel-unguarded", "semel-fence", "semel-attempt"].map(header));
        async { answer(201, "order") }
    });
    store.outage(Some(Did::Nothing));
    let got = send(&service, post("k", "x")).await;
    assert_eq!((got.status.as_u16(), got.became(), &*got.body), (201, "bypassed", &b"order"[..]));
    assert_eq!(*seen.lock(), [[Some("store-down".to_owned()), None, None]]);
    let copy = send(&service, post("k", "x")).await;
    assert_eq!((copy.became(), copy.header("idempotent-replayed")), ("replayed", "true"));
    assert_eq!(send(&service, post("k", "another")).await.problem(), "key-reused");
    store.outage(None);
    until("it is recorded", || engine.load().running == 0 && store.count(Op::Settle) > 1).await;
    // A client cannot say of itself that it is unguarded.
    let forged = post("k2", "x").with("semel-unguarded", "yes");
    assert_eq!(send(&service, forged).await.became(), "fresh");
    assert_eq!(seen.lock().last().and_then(|told| told[0].clone()), None);
}

#[tokio::test]
async fn an_answer_that_cannot_be_recorded_yet_goes_out_as_unrecorded_and_is_recorded_later() {
    let (engine, store) = engine();
    let service = guard(&engine, rule(), |_| async { answer(201, "order") });
    store.fail(Op::Settle, 1, Fault::HoldCall);
    let got = send(&service, post("k", "x")).await;
    assert_eq!((got.status.as_u16(), got.became(), &*got.body), (201, "unrecorded", &b"order"[..]));
    assert_eq!(got.header("idempotency-expires"), "");
    store.let_go();
    until("the settlement ends", || store.count(Op::Settle) >= 1 && engine.load().running == 0).await;
    let again = send(&service, post("k", "x")).await;
    assert_eq!(again.body, "order");
    assert_eq!(again.header("idempotent-replayed"), "true");
}

#[tokio::test]
async fn an_answer_that_a_persons_word_has_overtaken_is_not_given_out() {
    for long in [false, true] {
        let (engine, store) = engine();
        let gate = Arc::new(Semaphore::new(0));
        let (tell, mut told) = tokio::sync::mpsc::channel(1);
        let opened = Arc::clone(&gate);
        let rule = rule().caps(Caps { request: 10, response: 10 }).policy(|p| p.lease(Duration::from_millis(100)));
        let service = guard(&engine, rule, move |request: Ask| {
            let (gate, tell) = (Arc::clone(&opened), tell.clone());
            async move {
                tell.send(request.extensions().get::<Run>().unwrap().clone()).await.unwrap();
                gate.acquire().await.unwrap().forget();
                answer(201, if long { "a secret answer" } else { "secret" })
            }
        });
        for nth in 1..1_000 {
            store.fail(Op::Renew, nth, Fault::LoseCall);
        }
        let asking = try_send(&service, post("k", "x"));
        let overtaking = async {
            let run = told.recv().await.unwrap();
            let record = engine.status(run.identity()).await.unwrap().unwrap();
            let rest = Rest::read(&record.rest).unwrap();
            let meta = &record.rest[..rest.meta_len];
            let rest = Rest::write(meta, &Payload::Nothing);
            let happened = Resolution::Completed { rest, body_kept: false, ttl: Duration::from_secs(9) };
            let resolver = Owner::from_bytes([7; 16]);
            let target = Target { identity: run.identity(), fence: run.fence(), resolver };
            let mut word = store.inner().resolve(target, &happened).await.unwrap();
            for _ in 0..500 {
                if matches!(word, Resolved::Ok(_)) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                word = store.inner().resolve(target, &happened).await.unwrap();
            }
            assert!(matches!(word, Resolved::Ok(_)), "{word:?}");
            gate.add_permits(1);
        };
        let (got, ()) = tokio::join!(asking, overtaking);
        if long {
            assert!(got.is_err(), "a stream is cut, never ended cleanly");
        } else {
            let got = got.unwrap();
            assert_eq!((got.status.as_u16(), got.problem()), (409, "outcome-unknown".to_owned()));
            assert!(!String::from_utf8_lossy(&got.body).contains("secret"));
        }
    }
}

#[tokio::test]
async fn an_answer_without_a_grant_that_is_unclear_says_unknown() {
    let (engine, store) = engine();
    let service =
        guard(&engine, rule().policy(|p| p.on_store_error(OnStoreError::Open)), |_| async { answer(500, "") });
    // The claim is not answered, and what became of it is recorded.
    store.fail(Op::Claim, 1, Fault::Refuse);
    assert_eq!(send(&service, post("k", "x")).await.became(), "unknown");
}

/// A long one goes ahead of its recording and says what is known by then; a short one that was unclear said `bypassed`.
#[tokio::test]
async fn an_answer_without_a_grant_says_bypassed_and_one_that_is_unclear_says_unknown() {
    let (engine, store) = engine();
    let open = || rule().policy(|p| p.on_store_error(OnStoreError::Open)).caps(Caps { response: 4, ..Caps::default() });
    let says = |status, body| guard(&engine, open(), move |_| async move { answer(status, body) });
    for (status, granted, away) in [(201, "fresh", "bypassed"), (500, "unknown", "unknown")] {
        for body in ["0123456789", "012"] {
            let (service, name) = (says(status, body), format!("{status}-{body}"));
            assert_eq!(send(&service, post(&format!("{name}-granted"), "x")).await.became(), granted, "{name}");
            store.outage(Some(Did::Nothing));
            assert_eq!(send(&service, post(&format!("{name}-away"), "x")).await.became(), away, "{name}");
            store.outage(None);
        }
    }
}

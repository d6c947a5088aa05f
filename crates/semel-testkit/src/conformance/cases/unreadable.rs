//! Records that this process cannot read, a newer one's say: in flight, never absent, never touched.

use super::prelude::*;

/// Bytes of a later version, of a later version that is shorter than this one's header, of no version, of a state that
/// does not exist.
async fn odd<B: Bed>(s: &Stage<B>) -> Vec<Bytes> {
    let claim = s.hold(0).await;
    stands(s.settle(&claim, done("x")).await);
    let good = s.the_record(0).await.encode();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Bytes::from(bytes)
    };
    vec![with(3, 2), Bytes::from_static(b"SML\x09short"), with(0, b'X'), with(4, 200)]
}

pub async fn an_unreadable_record_is_in_flight<B: Bed>(s: &Stage<B>) {
    for (n, bytes) in (1..).zip(odd(s).await) {
        s.bed.plant(&id(n), Some(bytes)).await;
        for ask in [about(n), AskFor { takeover: true, ..about(n) }, AskFor { needs_token: true, ..about(n) }] {
            let ask = s.ask(ask);
            let answer = judged(&ask, found(s.store.claim(&ask).await));
            let Judgement::InFlight(running) = answer else { panic!("it may be somebody's: {answer:?}") };
            assert_eq!((running.left, running.fence), (LEASE, None));
        }
        assert!(!s.the_record(n).await.is_readable());
    }
}

pub async fn an_unreadable_record_is_not_touched<B: Bed>(s: &Stage<B>) {
    for (n, bytes) in (1..).zip(odd(s).await) {
        let ask = s.ask(about(n));
        let claim = granted(s.store.claim(&ask).await);
        s.bed.plant(&id(n), Some(bytes.clone())).await;
        let was = s.the_record(n).await;
        assert!(!taken_from(s.renew(&claim, LEASE).await).is_readable());
        assert!(!lost(s.settle(&claim, done("x")).await).is_readable());
        assert!(!lost(s.settle(&claim, nobody_knows()).await).is_readable());
        assert!(!lost(s.release(free(&claim)).await).is_readable());
        assert!(!lost(s.release(park(&claim)).await).is_readable());
        assert!(!lost(s.release(abandon(&ask)).await).is_readable());
        let target = Target { identity: &id(n), fence: claim.fence(), resolver: s.owner() };
        conflict(s.store.resolve(target, &completed()).await);
        conflict(s.store.resolve(target, &failed()).await);
        assert_eq!(s.store.issue(&token(n)).await.expect("the store works"), Issued::Exists);
        no_token(s.store.extend(&id(n), TTL).await);
        assert!(!s.store.withdraw(&id(n)).await.expect("the store works"));
        for state in [StateCode::Done, StateCode::Free, StateCode::Parked, StateCode::InFlight] {
            assert!(!s.store.delete(&id(n), state).await.expect("the store works"));
        }
        let is = s.the_record(n).await;
        assert_eq!((is.version, is.rest), (was.version, was.rest));
    }
}

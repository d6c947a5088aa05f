//! `rest`: what core wrote comes back byte by byte.

use super::prelude::*;

/// Lengths around the header, around powers of two, and as large as an answer gets.
const LENGTHS: [usize; 13] = [0, 1, 2, 83, 84, 85, 255, 256, 4_095, 65_535, 65_536, (1 << 20) + 7, 4 << 20];

/// Every byte value, in an order that no two offsets share.
fn pattern(len: usize, salt: u32) -> Bytes {
    let mut x = salt.wrapping_mul(2_654_435_761).max(1);
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x.to_le_bytes()[1]
    };
    (0..len).map(next).collect()
}

pub async fn what_core_wrote_comes_back_byte_by_byte<B: Bed>(s: &Stage<B>) {
    assert!(s.store.facts().max_rest >= 4 << 20, "an answer of 4 MiB is kept");
    for (n, len) in (0..).zip(LENGTHS) {
        let rest = |step: u32| pattern(len, step * 100 + u32::try_from(len % 89).unwrap_or(0));
        let ask = s.ask(AskFor { rest: rest(1), ..about(n) });
        let claim = granted(s.store.claim(&ask).await);
        check(s, n, &rest(1)).await;
        left(&s.renew(&claim, 2 * LEASE).await, 2 * LEASE);
        check(s, n, &rest(1)).await;
        let held = Releasing::Held { claim: &claim, counts: false, park: false, keep: TTL, rest: rest(2) };
        stands(s.release(held).await);
        check(s, n, &rest(2)).await;
        let claim = granted(s.claim(AskFor { rest: rest(3), ..about(n) }).await);
        let unknown = Settlement::Unknown { fingerprint: asked(1), rest: rest(4), ttl: TTL };
        stands(s.settle(&claim, unknown).await);
        check(s, n, &rest(4)).await;
        let done = Settlement::Done { fingerprint: asked(1), rest: rest(5), body_kept: true, ttl: TTL };
        stands(s.settle(&claim, done).await);
        check(s, n, &rest(5)).await;
        let (record, _) = found(s.claim(about(n)).await);
        assert!(record.expect("it is there").rest == rest(5), "{len} bytes");
        let _ = s.store.issue(&NewToken { rest: rest(6), ..token(1_000 + n) }).await.expect("the store works");
        check(s, 1_000 + n, &rest(6)).await;
    }
}

async fn check<B: Bed>(s: &Stage<B>, n: u64, rest: &Bytes) {
    let is = s.the_record(n).await.rest;
    assert!(is == *rest, "{} bytes went in, {} came back, and not the same", rest.len(), is.len());
}

pub async fn a_refusal_shows_all_that_is_there<B: Bed>(s: &Stage<B>) {
    let claim = granted(s.claim(AskFor { takeover: true, rest: pattern(300, 1), ..about(1) }).await);
    let was = s.the_record(1).await;
    same(&found(s.claim(about(1)).await).0.expect("it is there"), &was);
    let stranger = Ask::new(s.owner(), about(1)).grant(claim.fence(), 1);
    same(&lost(s.settle(&stranger, nobody_knows()).await), &was);
    same(&lost(s.release(free(&stranger)).await), &was);
    same(&taken_from(s.renew(&stranger, LEASE).await), &was);
    same(&conflict(s.resolve(&was, 1, failed()).await).expect("it is there"), &was);
    same(&no_token(s.store.extend(&id(1), TTL).await).expect("it is there"), &was);
}

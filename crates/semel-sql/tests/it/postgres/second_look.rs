//! A row that changes between a statement's look and its write is judged again as it is then: the condition under
//! `ON CONFLICT`. A bug there alone shows only where two meet, so here they are made to.

use std::time::Duration;

use semel_core::{
    env::Env,
    store::{AskFor, Claimed, Releasing, Settled, Store},
};
use semel_sql::{Options, PostgresStore};
use semel_testkit::{
    conformance::Bed as _,
    servers::proxy::{Fired, Proxy, Speaks},
};
use sqlx::{Connection, PgConnection};

use super::{
    asking::{LEASE, about, answer, ask, ask_for, done, granted, hold},
    bed::Bed,
};

/// A statement, what stands before its second condition, and what is to stand there: it holds for everything then.
type Bug = [&'static str; 3];

const CLAIMS_ANYTHING: Bug =
    ["WHERE $1 = 1::bigint", "END WHERE CASE WHEN ((r.v = 1", "END WHERE $11 IS NOT NULL OR CASE WHEN ((r.v = 1"];
const COMPLETES_ANYTHING: Bug = [
    "WHERE $1 = 2::bigint",
    "attempt = excluded.attempt WHERE ((r.v = 1",
    "attempt = excluded.attempt WHERE $4 IS NOT NULL OR ((r.v = 1",
];
const FORGETS_ANYTHING: Bug = ["WHERE $1 = 3::bigint", COMPLETES_ANYTHING[1], COMPLETES_ANYTHING[2]];

struct Met {
    bed: Bed<false>,
    store: PostgresStore,
    _proxy: Proxy,
    said: Option<Fired>,
}

async fn met(bug: Option<Bug>) -> Met {
    let bed = Bed::<false>::start().await;
    let proxy = Proxy::speaking(Speaks::Postgres, ([127, 0, 0, 1], bed.place.server.port()).into()).await;
    let said = bug.map(|[within, from, to]| proxy.reword(within, from, to));
    let ports = [bed.place.server.port(), proxy.port()].map(|port| format!(":{port}/"));
    let url = bed.url().replace(&ports[0], &ports[1]);
    // Longer than any machine takes to see that the one waits for the other.
    let (lock_timeout, call_timeout) = (Duration::from_secs(60), Duration::from_secs(90));
    let options = Options { lock_timeout, call_timeout, ..Options::default() };
    let store = PostgresStore::connect(&url, &Env::system(), options).await.unwrap();
    Met { bed, store, _proxy: proxy, said }
}

impl Met {
    /// What `call` answers where `change` takes place after it has looked and before it writes.
    async fn while_it_waits<T>(&self, change: &str, call: impl Future<Output = T>) -> T {
        let mut other = PgConnection::connect(&self.bed.url()).await.unwrap();
        sqlx::raw_sql("BEGIN").execute(&mut other).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(change.to_owned())).execute(&mut other).await.unwrap();
        let waits = "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND \
                     wait_event_type = 'Lock'";
        let (answer, ()) = tokio::join!(call, async {
            let mut looks = 0;
            while self.bed.ask(waits).await == "0" {
                looks += 1;
                assert!(looks < 3_000, "it does not wait for the row");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
        });
        if let Some(said) = &self.said {
            assert!(said.count() > 0, "nothing was said with the bug in it");
        }
        answer
    }
}

/// Somebody else's takeover: a later fence, and a lease that runs.
const TAKEN: &str = "UPDATE semel_record SET owner = '\\x00112233445566778899aabbccddeeff', state = 1, fence = fence + 1000, \
                     lease_until = expires_at";

/// Whether a takeover that meets another one is granted.
async fn a_second_takeover_is_granted(bug: Option<Bug>) -> bool {
    let met = met(bug).await;
    let takeover = || ask_for(AskFor { takeover: true, ..about(1) });
    granted(met.store.claim(&takeover()).await);
    met.bed.advance(2 * LEASE).await;
    let asked = takeover();
    let answer = met.while_it_waits(TAKEN, met.store.claim(&asked)).await.unwrap();
    matches!(answer, Claimed::Granted { .. })
}

/// Whether a claim of a free record that meets another one is granted.
async fn a_second_claim_is_granted(bug: Option<Bug>) -> bool {
    let met = met(bug).await;
    let first = hold(&met.store, 1).await;
    let free = Releasing::Held { claim: &first, counts: true, park: false, keep: LEASE, rest: answer(b"") };
    let _ = met.store.release(&free).await.unwrap();
    let asked = ask(1);
    let answer = met.while_it_waits(TAKEN, met.store.claim(&asked)).await.unwrap();
    matches!(answer, Claimed::Granted { .. })
}

/// Whether an outcome that meets a newer claim takes its place.
async fn an_outcome_stands(bug: Option<Bug>, to: &semel_core::store::Settlement) -> bool {
    let met = met(bug).await;
    let claim = hold(&met.store, 1).await;
    let settled = met.while_it_waits(TAKEN, met.store.settle(&claim, to)).await.unwrap();
    matches!(settled, Settled::Ok { .. })
}

fn unknown() -> semel_core::store::Settlement {
    let fingerprint = super::asking::asked();
    semel_core::store::Settlement::Unknown { fingerprint, rest: answer(b""), ttl: LEASE }
}

#[tokio::test]
async fn a_claim_that_meets_another_one_is_judged_again() {
    assert!(!a_second_takeover_is_granted(None).await);
    assert!(!a_second_claim_is_granted(None).await);
}

#[tokio::test]
async fn a_claim_that_is_judged_once_is_caught() {
    assert!(a_second_takeover_is_granted(Some(CLAIMS_ANYTHING)).await);
    assert!(a_second_claim_is_granted(Some(CLAIMS_ANYTHING)).await);
}

#[tokio::test]
async fn an_outcome_that_meets_a_newer_claim_is_judged_again() {
    assert!(!an_outcome_stands(None, &done(b"late")).await);
    assert!(!an_outcome_stands(None, &unknown()).await);
}

#[tokio::test]
async fn an_outcome_that_is_judged_once_is_caught() {
    assert!(an_outcome_stands(Some(COMPLETES_ANYTHING), &done(b"late")).await);
    assert!(an_outcome_stands(Some(FORGETS_ANYTHING), &unknown()).await);
}

//! What is written in place of a row that was read is written only while the row is that one. A bug in the comparison shows
//! only where two meet, so here they are made to: the one's statement is held on its way while the other one acts.

use std::time::Duration;

use semel_core::{
    env::Env,
    store::{Ask, AskFor, Claim, Claimed, NewToken, Renewal, Renewed, Settled, Store},
};
use semel_sql::MySqlStore;
use semel_testkit::servers::proxy::{Fired, Proxy, Rule, Speaks};

use super::{
    calls::{LEASE, TTL, about, ask_for, done, granted, hold, id, plain},
    place::{Place, options},
};

/// The statements.
const SWAP: &str = "UPDATE semel_record SET v = ?, state = ?";
const REMOVE: &str = "DELETE FROM semel_record WHERE id = ? AND v = 1 AND owner";
const INSERT: &str = "INSERT INTO semel_record (v, state";

/// What a statement says, and what it is to say instead.
type Bug = (&'static str, &'static str);

const NOTHING_COMPARED: Bug = (
    "AND owner = ? AND fence = ? AND state = ? AND lease_until = ? AND expires_at = ?",
    "AND (owner = ? OR fence = ? OR state = ? OR lease_until = ? OR expires_at = ? OR 1 = 1)",
);
const LEASES_NOT_COMPARED: Bug = ("AND lease_until = ?", "AND (lease_until = ? OR 1 = 1)");
const ENDS_NOT_COMPARED: Bug = ("AND expires_at = ?", "AND (expires_at = ? OR 1 = 1)");
const REPLACES: Bug = ("INSERT INTO", "REPLACE INTO");
const IGNORES: Bug = ("INSERT INTO", "INSERT IGNORE INTO");

struct Met {
    place: Place,
    proxy: Proxy,
    /// Behind the proxy.
    slow: MySqlStore,
    quick: MySqlStore,
    statement: &'static str,
    said: Option<Fired>,
}

async fn met(statement: &'static str, bug: Option<Bug>) -> Met {
    let place = Place::shared().await;
    let proxy = Proxy::speaking(Speaks::MySql, ([127, 0, 0, 1], place.server.port()).into()).await;
    let said = bug.map(|(from, to)| proxy.reword(statement, from, to));
    let quick = place.store().await;
    let url = format!("mysql://root@{}/{}", proxy.address(), place.database);
    let slow = MySqlStore::connect(&url, &Env::system(), options()).await.unwrap();
    Met { place, proxy, slow, quick, statement, said }
}

impl Met {
    /// What `call` answers where the other one acts after it has read and before its statement arrives.
    async fn meanwhile<T>(&self, call: impl Future<Output = T>, other: impl Future<Output = ()>) -> T {
        let held = self.proxy.rule(Rule::runs(self.statement).hold_request());
        let (answer, ()) = tokio::join!(call, async {
            let mut looks = 0;
            while held.count() == 0 {
                looks += 1;
                assert!(looks < 1_500, "the statement does not come");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            other.await;
            self.proxy.let_go();
        });
        if let Some(said) = &self.said {
            assert!(said.count() > 0, "nothing was said with the bug in it");
        }
        answer
    }
}

fn takeover() -> Ask {
    ask_for(AskFor { takeover: true, ..about(1) })
}

/// A claim that allows takeover, with its lease over.
async fn left_behind(met: &Met) -> Claim {
    let claim = granted(met.quick.claim(&takeover()).await);
    met.quick.shift(2 * LEASE).await.unwrap();
    claim
}

async fn a_second_takeover_is_granted(bug: Option<Bug>) -> bool {
    let met = met(SWAP, bug).await;
    left_behind(&met).await;
    let asked = takeover();
    let other = async {
        let _claim = granted(met.quick.claim(&takeover()).await);
    };
    matches!(met.meanwhile(met.slow.claim(&asked), other).await, Ok(Claimed::Granted { .. }))
}

async fn a_takeover_of_what_was_renewed_is_granted(bug: Option<Bug>) -> bool {
    let met = met(SWAP, bug).await;
    let first = left_behind(&met).await;
    let asked = takeover();
    let other = async {
        let batch = [Renewal { claim: &first, lease: LEASE, keep: TTL }];
        let renewed = met.quick.renew(&batch).await.unwrap();
        assert!(matches!(renewed[..], [Ok(Renewed::Left(_))]), "{renewed:?}");
    };
    matches!(met.meanwhile(met.slow.claim(&asked), other).await, Ok(Claimed::Granted { .. }))
}

async fn issue(met: &Met) {
    let token = NewToken { identity: id(1), ttl: TTL, max_life: 20 * TTL, rest: plain() };
    let _ = met.quick.issue(&token).await.unwrap();
}

/// Two extensions: whether the shorter one takes back what the longer one gave.
async fn an_extension_goes_back(bug: Option<Bug>) -> bool {
    let met = met(SWAP, bug).await;
    issue(&met).await;
    let other = async {
        let _ = met.quick.extend(&id(1), 10 * TTL).await.unwrap();
    };
    let _ = met.meanwhile(met.slow.extend(&id(1), 2 * TTL), other).await.unwrap();
    let seen = met.quick.get(&id(1)).await.unwrap();
    seen.record.unwrap().expires_at.since(seen.now) < 5 * TTL
}

/// A token that is taken back while it is used: whether the claim is gone.
async fn a_withdrawal_takes_the_claim(bug: Option<Bug>) -> bool {
    let met = met(REMOVE, bug).await;
    issue(&met).await;
    let asked = ask_for(AskFor { needs_token: true, ..about(1) });
    let other = async {
        let _claim = granted(met.quick.claim(&asked).await);
    };
    let withdrawn = met.meanwhile(met.slow.withdraw(&id(1)), other).await.unwrap();
    let is_gone = met.quick.get(&id(1)).await.unwrap().record.is_none();
    assert_eq!(withdrawn, is_gone);
    is_gone
}

/// The outcome of a claim that the store lost, while somebody claims anew: whether it takes that one's place.
async fn an_outcome_replaces_a_newer_claim(bug: Option<Bug>) -> bool {
    let met = met(INSERT, bug).await;
    let lost = hold(&met.quick, 1).await;
    met.place.run("DELETE FROM semel_record").await;
    let other = async {
        let _claim = hold(&met.quick, 1).await;
    };
    let settled = met.meanwhile(met.slow.settle(&lost, &done(b"late")), other).await.unwrap();
    matches!(settled, Settled::Ok { .. })
}

#[tokio::test]
async fn what_changed_since_it_was_read_is_not_written_over() {
    assert!(!a_second_takeover_is_granted(None).await);
    assert!(!a_takeover_of_what_was_renewed_is_granted(None).await);
    assert!(!an_extension_goes_back(None).await);
    assert!(!a_withdrawal_takes_the_claim(None).await);
    assert!(!an_outcome_replaces_a_newer_claim(None).await);
}

#[tokio::test]
async fn a_swap_that_compares_nothing_is_caught() {
    assert!(a_second_takeover_is_granted(Some(NOTHING_COMPARED)).await);
    assert!(a_takeover_of_what_was_renewed_is_granted(Some(NOTHING_COMPARED)).await);
    assert!(an_extension_goes_back(Some(NOTHING_COMPARED)).await);
}

#[tokio::test]
async fn a_swap_that_does_not_compare_leases_is_caught() {
    assert!(a_takeover_of_what_was_renewed_is_granted(Some(LEASES_NOT_COMPARED)).await);
}

#[tokio::test]
async fn a_swap_that_does_not_compare_ends_is_caught() {
    assert!(an_extension_goes_back(Some(ENDS_NOT_COMPARED)).await);
}

#[tokio::test]
async fn a_removal_that_compares_nothing_is_caught() {
    assert!(a_withdrawal_takes_the_claim(Some(NOTHING_COMPARED)).await);
}

#[tokio::test]
async fn an_insertion_that_replaces_is_caught() {
    assert!(an_outcome_replaces_a_newer_claim(Some(REPLACES)).await);
}

/// `INSERT IGNORE` is banned (it cuts what is too long in silence); as a bug it would not grant anything here: what it
/// swallows is no row, and without a row the store looks what is there. Nothing that is inserted can be too long.
#[tokio::test]
async fn an_insertion_that_ignores_conflicts_takes_nobodys_place() {
    assert!(!an_outcome_replaces_a_newer_claim(Some(IGNORES)).await);
}

//! Plays one sequence: each call goes to the store and to the reference.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use semel_core::{
    Fence, StoreTime,
    record::Record,
    store::{
        Ask, AskFor, Claim, Claimed, Extended, Issued, NewToken, Releasing, Renewal, Renewed, Resolution, Resolved,
        Settled, Settlement, StoreError, Target,
    },
    transition::{self, Step},
};

use super::{
    super::{
        Bed, Stage,
        stage::{about, answer, asked, id, plain, words},
    },
    call::{Call, KEYS},
    compare,
};

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

const LEASE: Duration = seconds(1_300);
const HOLD: Duration = seconds(2_000);
const KEEP: Duration = seconds(4_000);
const GRACE: Duration = seconds(1_200);
const TTL: Duration = seconds(2_500);
const MAX_LIFE: Duration = seconds(4_500);

/// Every kind of answer; [`one_of_each`](super::call::one_of_each) leads to all of them.
pub(super) const ANSWERS: &[&str] = &[
    "granted",
    "granted again",
    "taken over",
    "found",
    "late",
    "left",
    "missing",
    "lease lost",
    "stands",
    "restored",
    "lost",
    "issued",
    "exists",
    "until",
    "no token",
    "withdrawn",
    "not withdrawn",
    "resolved",
    "conflict",
    "deleted",
    "not deleted",
    "purged",
];

/// The reference, and what was asked and granted so far.
struct Play<B> {
    stage: Stage<B>,
    now: StoreTime,
    slots: HashMap<u64, Record>,
    asks: Vec<(u64, Ask)>,
    grants: Vec<(u64, Claim)>,
    /// What each identity's record was, for backups.
    past: HashMap<u64, Vec<Record>>,
    seen: Vec<&'static str>,
}

pub(super) async fn play<B: Bed>(calls: &[Call]) -> Result<Vec<&'static str>, String> {
    let stage = Stage::<B>::set().await;
    let now = stage.now().await;
    let (slots, past) = (HashMap::new(), HashMap::new());
    let mut play = Play { stage, now, slots, asks: vec![], grants: vec![], past, seen: vec![] };
    for (n, call) in calls.iter().enumerate() {
        let at = |why: String| format!("call {n}, {call:?}: {why}");
        play.call(call).await.map_err(at)?;
        for key in 0..KEYS {
            play.look(key).await.map_err(at)?;
        }
    }
    Ok(play.seen)
}

fn works<T>(answer: Result<T, StoreError>) -> Result<T, String> {
    answer.map_err(|e| format!("the store failed: {e}"))
}

fn higher(fence: Fence, than: Option<Fence>) -> Result<(), String> {
    if Some(fence) > than { Ok(()) } else { Err(format!("the fence {fence} does not rise over {than:?}")) }
}

impl<B: Bed> Play<B> {
    fn slot(&self, key: u64) -> Option<&Record> {
        self.slots.get(&key)
    }

    /// Applies the reference's decision; `as_answered` brings in what only the store can know.
    fn take<T>(&mut self, key: u64, step: Step<T>, as_answered: impl FnOnce(Record) -> Record) -> T {
        match step {
            Step::Write(record, answer) => {
                self.slots.insert(key, as_answered(record));
                answer
            }
            Step::Remove(answer) => {
                self.slots.remove(&key);
                answer
            }
            Step::Leave(answer) => answer,
        }
    }

    /// The record of `key` here and there.
    async fn look(&mut self, key: u64) -> Result<(), String> {
        let is = works(self.stage.store.get(&id(key)).await)?.record;
        compare::slots(is.as_ref(), self.slot(key).filter(|r| r.is_here(self.now)))?;
        if let Some(is) = is {
            let past = self.past.entry(key).or_default();
            if past.last().is_none_or(|last| last.encode() != is.encode()) {
                past.push(is);
            }
        }
        Ok(())
    }

    async fn call(&mut self, call: &Call) -> Result<(), String> {
        match *call {
            Call::Claim { key, question, takeover, grace, needs_token, late } => {
                let not_after = if late { self.now - seconds(500) } else { self.now + seconds(900_500) };
                let grace = if grace { GRACE } else { Duration::ZERO };
                let (lease, hold, keep) = (LEASE, HOLD, KEEP);
                let fingerprint = asked(question);
                let what =
                    AskFor { fingerprint, lease, hold, keep, grace, takeover, needs_token, not_after, ..about(key) };
                let ask = self.stage.ask(what);
                self.asks.push((key, ask.clone()));
                self.claim(key, &ask).await
            }
            Call::ClaimAgain { ref pick } => match pick.from(&self.asks).cloned() {
                Some((key, ask)) => self.claim(key, &ask).await,
                None => Ok(()),
            },
            Call::Renew { ref picks, long } => {
                let picks: Vec<_> = picks.iter().filter_map(|p| p.from(&self.grants)).map(copy).collect();
                self.renew(&picks, if long { 2 * LEASE + seconds(700) } else { LEASE }).await
            }
            Call::Complete { ref pick, body } => {
                let rest = answer(&body.to_string());
                let (fingerprint, body_kept, ttl) = (asked(1), body % 2 == 0, TTL);
                self.settle(pick.from(&self.grants).map(copy), Settlement::Done { fingerprint, rest, body_kept, ttl })
                    .await
            }
            Call::Unknown { ref pick } => {
                let (fingerprint, rest, ttl) = (asked(1), words("who knows"), TTL);
                self.settle(pick.from(&self.grants).map(copy), Settlement::Unknown { fingerprint, rest, ttl }).await
            }
            Call::Release { ref pick, counts, park } => {
                let Some((key, claim)) = pick.from(&self.grants).map(copy) else { return Ok(()) };
                self.release(key, Releasing::Held { claim: &claim, counts, park, keep: TTL, rest: words("no") }).await
            }
            Call::Abandon { ref pick } => {
                let Some((key, ask)) = pick.from(&self.asks).cloned() else { return Ok(()) };
                let (identity, owner) = (&ask.identity, ask.owner());
                self.release(key, Releasing::Fate { identity, owner, keep: TTL, rest: plain() }).await
            }
            Call::Issue { key } => self.issue(key).await,
            Call::Extend { key, long } => self.extend(key, if long { 2 * TTL + seconds(500) } else { TTL }).await,
            Call::Withdraw { key } => {
                let is = works(self.stage.store.withdraw(&id(key)).await)?;
                let step = transition::withdraw(self.slot(key), self.now);
                let should = self.take(key, step, |r| r);
                self.seen.push(if should { "withdrawn" } else { "not withdrawn" });
                compare::equal(&is, &should)
            }
            Call::Resolve { key, happened, saw } => self.resolve(key, happened, saw).await,
            Call::Delete { key, state } => {
                let is = works(self.stage.store.delete(&id(key), state).await)?;
                let step = transition::delete(self.slot(key), state, self.now);
                let should = self.take(key, step, |r| r);
                self.seen.push(if should { "deleted" } else { "not deleted" });
                compare::equal(&is, &should)
            }
            Call::Purge { max } => {
                // What ended may have gone by the way already; what has not ended stays, which `look` sees.
                let gone = works(self.stage.store.purge(max).await)?.removed;
                let ended = self.slots.values().filter(|r| !r.is_here(self.now)).count();
                if gone > 0 {
                    self.seen.push("purged");
                }
                if gone <= max.min(ended) { Ok(()) } else { Err(format!("{gone} purged where {ended} had ended")) }
            }
            Call::Advance { thousands } => {
                self.stage.advance(seconds(thousands * 1_000)).await;
                self.now = self.now + seconds(thousands * 1_000);
                Ok(())
            }
            Call::Lose { key } => {
                self.stage.forget(key).await;
                self.slots.remove(&key);
                Ok(())
            }
            Call::Restore { key, ref which } => {
                let Some(past) = self.past.get(&key).filter(|p| !p.is_empty()) else { return Ok(()) };
                let record = which.get(past).clone();
                self.stage.bed.plant(&id(key), Some(Bytes::from(record.encode()))).await;
                self.slots.insert(key, record);
                Ok(())
            }
        }
    }

    async fn claim(&mut self, key: u64, ask: &Ask) -> Result<(), String> {
        let is = works(self.stage.store.claim(ask).await)?;
        let floor = self.slot(key).and_then(|r| r.fence);
        let took_over = self.slot(key).is_some_and(|r| r.is_here(self.now) && r.attempt > 0);
        let step = transition::claim(self.slot(key), ask, self.now);
        let fence = if let Claimed::Granted { claim, .. } = &is { Some(claim.fence()) } else { None };
        let should = self.take(key, step, |r| Record { fence, ..r });
        match (is, should) {
            (
                Claimed::Granted { claim, left, now, unresolved: tells },
                Claimed::Granted { claim: expected, left: full, unresolved, .. },
            ) => {
                // A purge may have told it before.
                compare::equal(&(tells && !unresolved), &false)?;
                self.seen.push(if took_over { "taken over" } else { "granted" });
                if self.grants.iter().any(|(_, c)| c.owner() == claim.owner()) {
                    self.seen.push("granted again");
                }
                higher(claim.fence(), floor)?;
                compare::equal(&claim.attempt(), &expected.attempt())?;
                compare::equal(&claim.owner(), &expected.owner())?;
                compare::equal(&claim.identity(), &expected.identity())?;
                compare::equal(&compare::spans(left, full), &true)?;
                compare::equal(&compare::times(now, self.now), &true)?;
                self.grants.push((key, claim));
                Ok(())
            }
            (Claimed::Found { record: is, now }, Claimed::Found { record: should, .. }) => {
                self.seen.push("found");
                let here = |r: &Record| r.is_here(self.now);
                compare::equal(&compare::times(now, self.now), &true)?;
                compare::slots(is.filter(here).as_ref(), should.filter(here).as_ref())
            }
            (Claimed::Late { .. }, Claimed::Late { .. }) => {
                self.seen.push("late");
                Ok(())
            }
            (is, should) => compare::other(&is, &should),
        }
    }

    async fn renew(&mut self, picks: &[(u64, Claim)], lease: Duration) -> Result<(), String> {
        let batch: Vec<_> = picks.iter().map(|(_, claim)| Renewal { claim, lease, keep: KEEP }).collect();
        let answers: Result<Vec<_>, _> = works(self.stage.store.renew(&batch).await)?.into_iter().collect();
        let answers = works(answers)?;
        compare::equal(&answers.len(), &batch.len())?;
        for (((key, _), renewal), is) in picks.iter().zip(&batch).zip(&answers) {
            let step = transition::renew(self.slot(*key), renewal, self.now);
            let should = self.take(*key, step, |r| r);
            self.seen.push(match &should {
                Renewed::Left(_) => "left",
                Renewed::Missing => "missing",
                Renewed::Lost(_) => "lease lost",
            });
            compare::renewed(is, &should)?;
        }
        Ok(())
    }

    async fn settle(&mut self, of: Option<(u64, Claim)>, to: Settlement) -> Result<(), String> {
        let Some((key, claim)) = of else { return Ok(()) };
        let is = works(self.stage.store.settle(&claim, &to).await)?;
        let step = transition::settle(self.slot(key), &claim, &to, self.now);
        self.settled(key, &is, step)
    }

    async fn release(&mut self, key: u64, what: Releasing<'_>) -> Result<(), String> {
        let is = works(self.stage.store.release(&what).await)?;
        let step = transition::release(self.slot(key), &what, self.now);
        self.settled(key, &is, step)
    }

    fn settled(&mut self, key: u64, is: &Settled, step: Step<Settled>) -> Result<(), String> {
        let should = self.take(key, step, |r| r);
        self.seen.push(match &should {
            Settled::Ok { restored: false } => "stands",
            Settled::Ok { restored: true } => "restored",
            Settled::Lost(_) => "lost",
        });
        compare::settled(is, &should)
    }

    async fn issue(&mut self, key: u64) -> Result<(), String> {
        let token = NewToken { identity: id(key), ttl: TTL, max_life: MAX_LIFE, rest: plain() };
        let is = works(self.stage.store.issue(&token).await)?;
        let step = transition::issue(self.slot(key), &token, self.now);
        let at_hand = self.stage.record(key).await;
        let should = self.take(key, step, |r| Record { fence: at_hand.and_then(|h| h.fence), ..r });
        match (is, should) {
            (Issued::Issued { expires_at: is }, Issued::Issued { expires_at: should }) => {
                self.seen.push("issued");
                compare::equal(&compare::times(is, should), &true)
            }
            (is, should) => {
                self.seen.push("exists");
                compare::equal(&is, &should)
            }
        }
    }

    async fn extend(&mut self, key: u64, ttl: Duration) -> Result<(), String> {
        let is = works(self.stage.store.extend(&id(key), ttl).await)?;
        let step = transition::extend(self.slot(key), ttl, self.now);
        let should = self.take(key, step, |r| r);
        self.seen.push(if matches!(should, Extended::Until(_)) { "until" } else { "no token" });
        compare::extended(&is, &should)
    }

    async fn resolve(&mut self, key: u64, happened: bool, saw: bool) -> Result<(), String> {
        let fence = self.slot(key).and_then(|r| r.fence);
        let Some(fence) = fence.and_then(|f| if saw { Some(f) } else { Fence::new(f.get() + 1) }) else {
            return Ok(());
        };
        let to = if happened {
            Resolution::Completed { rest: answer("a person"), body_kept: true, ttl: TTL }
        } else {
            Resolution::Failed { keep: TTL, rest: plain() }
        };
        let resolver = self.stage.owner();
        let is = works(self.stage.store.resolve(Target { identity: &id(key), fence, resolver }, &to).await)?;
        let raised = if let Resolved::Ok(raised) = &is { Some(*raised) } else { None };
        let step = transition::resolve(self.slot(key), (fence, resolver), &to, self.now);
        let should = self.take(key, step, |r| Record { fence: raised, ..r });
        if let Some(raised) = raised {
            higher(raised, Some(fence))?;
        }
        self.seen.push(if matches!(should, Resolved::Ok(_)) { "resolved" } else { "conflict" });
        compare::resolved(&is, &should)
    }
}

/// The same grant once more; only a question makes one, so the question is made again.
fn copy((key, claim): &(u64, Claim)) -> (u64, Claim) {
    (*key, Ask::new(claim.owner(), about(*key)).grant(claim.fence(), claim.attempt()))
}

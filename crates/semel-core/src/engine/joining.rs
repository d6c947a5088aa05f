//! Copies join what this process has under way or remembers, before any claim is sent.

use std::{future::Future, pin::Pin, sync::Arc};

use super::{
    Call, Inner,
    claiming::{Turned, turned},
    lease::Lease,
    tier::{Asking, Asks, Look, Said},
};
use crate::{
    ids::StoreTime,
    judge::{Judgement, judge},
    policy::OnStoreError,
    record::{Flags, Record, StateCode, VERSION},
};

/// How often one looks again after being told to. Then the store is asked, and nobody is told of that: a copy that never
/// finds anything must come to an end too.
const LOOKS: u32 = 3;

/// What is left of a lease whose end nobody can tell.
const SOON: std::time::Duration = std::time::Duration::from_millis(100);

/// The right to ask the store, or what this process knows.
pub(super) type Joined = Result<Option<Box<Asks>>, Turned>;

impl Inner {
    /// The answer that this process has for a call; or the right to ask the store, which others may wait for.
    ///
    /// Boxed, and no part of the future of claims that need none of this.
    #[cold]
    pub(super) fn join<'a>(self: &'a Arc<Self>, call: &'a Call) -> Pin<Box<dyn Future<Output = Joined> + Send + 'a>> {
        Box::pin(self.join_here(call))
    }

    async fn join_here(self: &Arc<Self>, call: &Call) -> Joined {
        if self.tier.joins() {
            self.look_after_store();
        }
        let came = self.tier.comes();
        for _ in 0..LOOKS {
            let found = match self.tier.look(&call.identity, self.now()) {
                Look::Nothing(asks) => return Ok(Some(asks)),
                Look::Done(done) => {
                    let Some(turned) = self.judged(call, Some(&done.record), done.store_time(self.now())) else {
                        break;
                    };
                    self.tier.count_remembered();
                    return Err(turned);
                }
                // Another may hold the record by now, or its outcome be there: only the store can tell.
                Look::Running(lease) if !lease.is_known() => break,
                Look::Running(lease) => {
                    let turned = self.judged(call, Some(&self.record_of(&lease)), self.store_time(self.now()));
                    // Others may know the outcome already; who waits is told it.
                    turned.filter(|t| t.waits() || !lease.is_settling())
                }
                Look::Ended(record) => self.judged(call, Some(&record), self.store_time(self.now())),
                Look::Unknown => break,
                Look::Asking(asking) => match self.heard_in_time(&asking).await {
                    None => break,
                    Some(Said::Found(record, now)) => {
                        let turned = self.judged(call, record.as_deref(), now.max(self.store_time(self.now())));
                        let lasts = record.is_some_and(|r| r.state == StateCode::Done);
                        let waits = turned.as_ref().is_some_and(Turned::waits);
                        // What was read before this call came says what was so then. An outcome stays; and who waits for an
                        // attempt is told by the store when it is over already.
                        if !lasts && !waits && !asking.is_after(came) {
                            continue;
                        }
                        turned
                    }
                    // One who runs without a grant in that case has to find out by itself.
                    Some(Said::Refused(refusal)) if call.policy.on_store_error() == OnStoreError::Closed => {
                        Some(Turned::away(refusal, call.clone()))
                    }
                    Some(Said::Refused(_)) => break,
                    Some(Said::LookAgain) => continue,
                },
            };
            let Some(turned) = found else { break };
            self.tier.count_joined();
            return Err(turned);
        }
        Ok(None)
    }

    /// What the store said to another caller; `None` where that takes longer than the question may take. A caller that
    /// holds its future and does not poll it holds up nobody else.
    async fn heard_in_time(&self, asking: &Asking) -> Option<Said> {
        let until = self.now() + 2 * self.patience();
        tokio::select! {
            biased;
            said = asking.answer() => Some(said),
            () = self.env.clock.sleep_until(until) => None,
        }
    }

    /// What a record means to a call; `None` where only the store can say.
    pub(super) fn judged(&self, call: &Call, record: Option<&Record>, now: StoreTime) -> Option<Turned> {
        let ask = self.ask(call, self.owner());
        match judge(&ask, record, now, &call.caller) {
            Judgement::Raced | Judgement::Again { .. } | Judgement::Late => None,
            judgement => Some(turned(call.clone(), ask, judgement)),
        }
    }

    /// The record that the store has of an attempt that runs here.
    pub(super) fn record_of(&self, lease: &Lease) -> Record {
        let now = self.store_time(self.now());
        Record {
            version: VERSION,
            state: StateCode::InFlight,
            flags: Flags::when(lease.policy.takeover().is_some(), Flags::TAKEOVER),
            fingerprint: lease.fingerprint(),
            owner: lease.owner(),
            fence: Some(lease.fence),
            attempt: lease.attempt,
            lease_until: now + lease.deadline().since(self.now()).clamp(SOON, lease.policy.lease()),
            expires_at: StoreTime::MAX,
            rest: lease.rest().clone(),
        }
    }
}

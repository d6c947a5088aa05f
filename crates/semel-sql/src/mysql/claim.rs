//! Claims.

use semel_core::{
    Fence, StoreTime,
    store::{Ask, Claimed, StoreError},
    transition,
};

use super::{
    calls::{Calls, Wrote},
    decide::Decided,
    sql::{self, Args, micros, time},
};
use crate::record::rule;

impl Calls {
    /// Inserts first: a fresh key is granted in one statement. Where that cannot be (there is a row, it is too late, a token
    /// has to be there) it looks, and takes what can be taken.
    pub(super) async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        let until = self.until();
        if !ask.needs_token {
            match self.write(until, sql::CLAIM, &fresh(ask)).await? {
                Wrote::Rows { matched: 1.., id } => {
                    // A proxy that drops the last insert id leaves the grant to be found, as after a lost reply.
                    if let (Some(fence), Ok(now)) = (Fence::new(id), i64::try_from(id)) {
                        let (claim, now) = (ask.grant(fence, 1), StoreTime::from_micros(now));
                        return Ok(Claimed::Granted { claim, left: ask.lease, now, unresolved: false });
                    }
                }
                Wrote::Rows { .. } | Wrote::Duplicate => {}
                // Somebody inserts it now and has not said how it ends; or a person's transaction holds it.
                Wrote::Busy => {
                    let (record, now) = self.look(until, &ask.identity).await?;
                    return Ok(Claimed::Found { record, now });
                }
            }
        }
        let decision = |slot: Option<&_>, now| transition::claim(slot, ask, now);
        Ok(match self.decide(until, &ask.identity, ask.not_after, decision).await? {
            Decided::Answer(answer) => answer,
            // The judge says that it raced.
            Decided::Raced { record, now } => Claimed::Found { record, now },
        })
    }
}

fn fresh(ask: &Ask) -> Args {
    Args::default()
        .and(&ask.identity.digest()[..])
        .and(if ask.takeover { 2_i16 } else { 0 })
        .fingerprint(&ask.fingerprint)
        .and(&ask.owner().as_bytes()[..])
        .and(micros(ask.lease))
        .and(micros(ask.lease + ask.hold + ask.keep))
        .and(&ask.rest[..])
        .and(ask.identity.namespace().as_str())
        .and(ask.identity.kind().letter().to_string())
        .and(rule(&ask.rest))
        .and(time(ask.not_after))
}

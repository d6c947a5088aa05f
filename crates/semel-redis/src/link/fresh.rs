//! A record that is written without a script.

use std::sync::Arc;

use redis::Value;
use semel_core::{
    StoreTime,
    store::{Did, StoreError, StoreErrorKind},
};

use super::{Link, Trouble, answer};
use crate::{reply, script::Fresh, verdict};

/// What such a write led to.
#[derive(Debug)]
pub(crate) struct Before {
    /// What was there; where nothing was, the record is.
    pub(crate) found: Option<Vec<u8>>,
    /// The time that it was written with.
    pub(crate) reckoned: StoreTime,
    /// The server's clock, afterwards.
    pub(crate) now: StoreTime,
}

impl Link {
    /// Writes a record where there is none, with the time that the server's clock shows, as is reckoned from what it last said.
    /// `None` where nothing was written, and a script has to be asked: the server cannot do that, or refused it, or its clock
    /// is not known yet.
    pub(crate) async fn set_fresh(self: &Arc<Self>, fresh: &Fresh<'_>) -> Result<Option<Before>, Trouble> {
        let mut wire = self.wire().await.map_err(Trouble::Unsent)?;
        let sent = self.now();
        let Some(reckoned) = wire.clock.at(sent).filter(|now| wire.is_modern && *now <= fresh.not_after) else {
            return Ok(None);
        };
        wire.silence.begins(sent);
        let result = wire.connection.send_packed_commands(&fresh.commands(reckoned), 0, 2).await;
        let [set, time]: [Value; 2] = match self.heard(&wire.silence, wire.serial, result)?.try_into() {
            Ok(both) => both,
            Err(_) => return Err(unclear("the server answered less than it was asked")),
        };
        let found = match answer(set) {
            Ok(Value::Nil) => None,
            Ok(Value::BulkString(bytes)) => Some(bytes),
            Err(Trouble::Sent(error)) if verdict::is_not_understood(&error) || verdict::code(&error).is_some() => {
                return Ok(None);
            }
            Err(trouble) => return Err(trouble),
            Ok(_) => return Err(unclear("no answer that SET gives")),
        };
        let Some(now) = answer(time).ok().and_then(|time| reply::time(&time)) else {
            return Err(unclear("no answer that TIME gives"));
        };
        wire.clock.heard((sent, self.now()), now);
        Ok(Some(Before { found, reckoned, now }))
    }
}

fn unclear(words: &str) -> Trouble {
    Trouble::Unconfirmed(StoreError::new(Did::Unknown, StoreErrorKind::Unavailable, words.to_owned()))
}

//! A record that is written without a script.

use std::sync::Arc;

use redis::{Pipeline, Value};
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
    /// What the server's clock shows afterwards, at least and at most: the same where it was asked.
    pub(crate) least: StoreTime,
    pub(crate) now: StoreTime,
}

impl Link {
    /// Writes a record where there is none, with the time that the server's clock shows, as is reckoned from what it last said; and
    /// asks what it shows then, where that was not a moment ago. `None` where nothing was written, and a script has to be asked: the
    /// server cannot do that, or refused it, or its clock is not known yet.
    pub(crate) async fn set_fresh(self: &Arc<Self>, fresh: &Fresh<'_>) -> Result<Option<Before>, Trouble> {
        let mut wire = self.wire().await.map_err(Trouble::Unsent)?;
        let sent = self.now();
        let Some(reckoned) = wire.clock.at(sent).filter(|now| wire.is_modern && *now <= fresh.not_after) else {
            return Ok(None);
        };
        wire.silence.begins(sent);
        let set = fresh.command(reckoned);
        let (set, time) = if wire.clock.is_recent(sent) {
            let result = wire.connection.send_packed_command(&set).await;
            (self.heard(&wire.silence, wire.serial, result)?, None)
        } else {
            let mut both = Pipeline::with_capacity(2);
            both.add_command(set).add_command(redis::cmd("TIME"));
            let result = wire.connection.send_packed_commands(&both, 0, 2).await;
            match <[Value; 2]>::try_from(self.heard(&wire.silence, wire.serial, result)?) {
                Ok([set, time]) => (set, Some(time)),
                Err(_) => return Err(unclear("the server answered less than it was asked")),
            }
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
        let tick = self.now();
        let shown = match time {
            None => wire.clock.at(tick).zip(wire.clock.at_most(tick)),
            Some(time) => answer(time).ok().and_then(|time| reply::time(&time)).map(|now| {
                wire.clock.heard((sent, tick), now);
                (now, now)
            }),
        };
        let (least, now) = shown.ok_or_else(|| unclear("no answer that TIME gives"))?;
        Ok(Some(Before { found, reckoned, least, now }))
    }
}

fn unclear(words: &str) -> Trouble {
    Trouble::Unconfirmed(StoreError::new(Did::Unknown, StoreErrorKind::Unavailable, words.to_owned()))
}

//! What people use.

use semel_core::{
    Fence,
    identity::Identity,
    record::{Flags, StateCode},
    store::{Cursor, Filter, Page, Purged, Reply, Resolution, Resolved, StoreAdmin, StoreError, StoreFuture, Target},
};

use super::{
    RedisStore,
    calls::{number, unexpected, unsupported},
    flag, micros,
};
use crate::{
    reply::{NO, UNREADABLE, YES},
    script::{Arg, SCRIPTS},
};

impl RedisStore {
    async fn resolve_it(&self, target: Target<'_>, to: &Resolution) -> Result<Resolved, StoreError> {
        let (completed, flags, ttl, rest) = match to {
            Resolution::Completed { rest, body_kept, ttl } => {
                (true, Flags::when(*body_kept, Flags::BODY_KEPT), *ttl, rest)
            }
            Resolution::Failed { keep, rest } => (false, Flags::NONE, *keep, rest),
            other => return Err(unsupported(other)),
        };
        let args = vec![
            flag(completed),
            number(target.fence),
            Arg::Bytes(target.resolver.as_bytes()),
            Arg::Number(i64::from(flags.byte())),
            micros(ttl),
            Arg::Bytes(rest),
        ];
        let mut told = self.run_kept(&SCRIPTS.resolve, target.identity, args).await?;
        match told.code {
            YES => {
                // This process hears at once; from the channel it comes a moment later.
                self.wakes.changed(target.identity.digest());
                let fence: Fence = told.fence()?;
                Ok(Resolved::Ok(fence))
            }
            NO | UNREADABLE => Ok(Resolved::Conflict(told.record()?)),
            code => Err(unexpected(code)),
        }
    }
}

impl StoreAdmin for RedisStore {
    fn list<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, max: usize) -> Reply<'a, Page> {
        StoreFuture::new(self.list_page(filter, after, max))
    }

    fn resolve<'a>(&'a self, target: Target<'a>, to: &'a Resolution) -> Reply<'a, Resolved> {
        StoreFuture::new(self.resolve_it(target, to))
    }

    fn delete<'a>(&'a self, id: &'a Identity, expected: StateCode) -> Reply<'a, bool> {
        if !matches!(expected, StateCode::Done | StateCode::Free | StateCode::Parked) {
            return StoreFuture::ready(Ok(false));
        }
        StoreFuture::new(async move {
            let told = self.run(&SCRIPTS.delete, id, vec![Arg::Number(expected as i64)]).await?;
            if told.code == YES {
                self.wakes.changed(id.digest());
            }
            Ok(told.code == YES)
        })
    }

    /// Records end by themselves here; what stays for a week beyond its end is what nobody ever told the outcome of, so
    /// that its end can be told. A call looks at no more than 20,000 keys, says that there may be more, and goes on from
    /// there the next time; a walk over all of them takes as many calls as there are times 20,000 keys.
    fn purge(&self, max: usize) -> Reply<'_, Purged> {
        StoreFuture::new(self.purge_some(max))
    }

    /// In one list beside the records, the last ten thousand. A line whose reply was lost may be there twice.
    fn audit<'a>(&'a self, line: &'a str) -> Reply<'a, ()> {
        StoreFuture::new(async move {
            let told = self.run_on(&SCRIPTS.audit, &self.names.audit(), vec![Arg::Bytes(line.as_bytes())]).await?;
            if told.code == YES { Ok(()) } else { Err(unexpected(told.code)) }
        })
    }

    fn audited(&self, max: usize) -> Reply<'_, Vec<String>> {
        if max == 0 {
            return StoreFuture::ready(Ok(Vec::new()));
        }
        StoreFuture::new(async move {
            let max = Arg::Number(i64::try_from(max).unwrap_or(i64::MAX));
            let told = self.run_on(&SCRIPTS.audited, &self.names.audit(), vec![max]).await;
            told.map_err(StoreError::of_nothing)?.lines()
        })
    }
}

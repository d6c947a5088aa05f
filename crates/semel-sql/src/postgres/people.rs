//! What people use.

use bytes::Bytes;
use semel_core::{
    Fence,
    identity::Identity,
    record::{Flags, StateCode},
    store::{
        Cursor, Did, Entry, Filter, Page, Purged, Reply, Resolution, Resolved, StoreAdmin, StoreError, StoreFuture,
        Target,
    },
    transition,
};
use sqlx::{Row, postgres::PgRow};

use super::{
    PostgresStore,
    calls::{micros, number},
    error,
    rows::{Answer, Got, columns, time},
    sql,
    statement::Arg,
};
use crate::record::identity;

/// How many rows one page of a list looks at: a filter that lets nothing pass costs no more than that.
const LOOKS_AT: usize = 5_000;
/// The same where there is no filter, and only what has ended is passed over.
const LOOKS_AT_UNFILTERED: usize = 100;

fn unread(error: sqlx::Error) -> StoreError {
    error::verdict(&error).error(error)
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl PostgresStore {
    async fn listed(&self, filter: &Filter, after: Option<&Cursor>, max: usize) -> Result<Page, StoreError> {
        let unfiltered = *filter == Filter::default();
        let looks_at = if unfiltered { LOOKS_AT_UNFILTERED.max(max.saturating_mul(2)) } else { LOOKS_AT.max(max) };
        let args = [
            Arg::Bytes(after.map_or(&[], |cursor| &cursor.0)),
            Arg::Text(filter.namespace.as_deref().unwrap_or_default()),
            Arg::Text(filter.rule.as_deref().unwrap_or_default()),
            Arg::Int(filter.state.map_or(-1, |state| i64::from(state as u8))),
            Arg::Int(count(max)),
            Arg::Int(count(looks_at)),
        ];
        let rows = self.client.run(&sql::LIST, &args).await.map_err(StoreError::from);
        page(&rows.map_err(StoreError::of_nothing)?, max, looks_at).map_err(|e| unread(e).of_nothing())
    }

    async fn resolved(&self, target: Target<'_>, to: &Resolution) -> Result<Resolved, StoreError> {
        let (state, flags, ttl, rest) = match to {
            Resolution::Completed { rest, body_kept, ttl } => {
                (2, Flags::when(*body_kept, Flags::BODY_KEPT), *ttl, rest)
            }
            Resolution::Failed { keep, rest } => (0, Flags::NONE, *keep, rest),
            _ => return Err(error::unavailable(Did::Nothing, "a word that this store does not know")),
        };
        let args = [
            Arg::Bytes(target.identity.digest()),
            Arg::Int(number(target.fence)),
            Arg::Bytes(target.resolver.as_bytes()),
            Arg::Int(state),
            Arg::Int(flags.byte().into()),
            Arg::Int(micros(ttl)),
            Arg::Bytes(rest),
        ];
        let raised = |got: &Got| u64::try_from(got.fence).ok().and_then(Fence::new).unwrap_or(target.fence);
        let done = |got: &Got, _: &Answer| Resolved::Ok(raised(got));
        let key = (target.fence, target.resolver);
        let table = |slot: Option<&_>, now| transition::resolve(slot, key, to, now);
        self.decide((target.identity, &sql::RESOLVE), &args, done, table).await
    }

    async fn purged(&self, max: usize) -> Result<Purged, StoreError> {
        let rows = self.client.run(&sql::PURGE, &[Arg::Int(count(max))]).await?;
        gone(&rows, max).map_err(unread)
    }

    async fn audited_lines(&self, max: usize) -> Result<Vec<String>, StoreError> {
        let rows = self.client.run(&sql::AUDITED, &[Arg::Int(count(max))]).await.map_err(StoreError::from);
        let line = |row: &PgRow| row.try_get::<Option<String>, _>(0).transpose();
        let lines: sqlx::Result<_> = rows.map_err(StoreError::of_nothing)?.iter().filter_map(line).collect();
        lines.map_err(|e| unread(e).of_nothing())
    }
}

/// One row for each record; a single one without an id where there is none.
fn page(rows: &[PgRow], max: usize, looks_at: usize) -> sqlx::Result<Page> {
    let first = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let (now, looked, last): (_, i64, Option<Vec<u8>>) = (time(first, 0)?, first.try_get(1)?, first.try_get(2)?);
    let mut entries = Vec::with_capacity(rows.len());
    let mut last_hit = None;
    for row in rows {
        let Some(id) = row.try_get::<Option<Vec<u8>>, _>(3)? else { continue };
        let (namespace, kind): (String, String) = (row.try_get(4)?, row.try_get(5)?);
        if let (Some(identity), Some(columns)) = (identity(&id, &namespace, &kind), columns(row, 6)?) {
            entries.push(Entry { identity, record: columns.record() });
        }
        last_hit = Some(id);
    }
    let full = rows.len() >= max && last_hit.is_some();
    let next = if full {
        last_hit
    } else if looked >= count(looks_at) {
        last
    } else {
        None
    };
    Ok(Page { entries, next: next.map(|id| Cursor(Bytes::from(id))), now })
}

fn gone(rows: &[PgRow], max: usize) -> sqlx::Result<Purged> {
    let removed: i64 = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?;
    let mut unresolved = Vec::new();
    for row in rows {
        let Some(id) = row.try_get::<Option<Vec<u8>>, _>(1)? else { continue };
        let (namespace, kind): (String, String) = (row.try_get(2)?, row.try_get(3)?);
        unresolved.extend(identity(&id, &namespace, &kind));
    }
    let removed = usize::try_from(removed).unwrap_or(0);
    Ok(Purged { removed, unresolved, more: removed >= max })
}

impl StoreAdmin for PostgresStore {
    fn list<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, max: usize) -> Reply<'a, Page> {
        StoreFuture::new(self.listed(filter, after, max))
    }

    fn resolve<'a>(&'a self, target: Target<'a>, to: &'a Resolution) -> Reply<'a, Resolved> {
        StoreFuture::new(self.resolved(target, to))
    }

    fn delete<'a>(&'a self, id: &'a Identity, expected: StateCode) -> Reply<'a, bool> {
        StoreFuture::new(async move {
            let args = [Arg::Bytes(id.digest()), Arg::Int((expected as u8).into())];
            let table = |slot: Option<&_>, now| transition::delete(slot, expected, now);
            self.decide((id, &sql::DELETE), &args, |_, _| true, table).await
        })
    }

    fn purge(&self, max: usize) -> Reply<'_, Purged> {
        StoreFuture::new(self.purged(max))
    }

    fn audit<'a>(&'a self, line: &'a str) -> Reply<'a, ()> {
        StoreFuture::new(async move {
            // PostgreSQL takes no zero byte in a text.
            let line = line.replace('\0', "\u{fffd}");
            self.client.run(&sql::AUDIT, &[Arg::Text(&line)]).await?;
            Ok(())
        })
    }

    fn audited(&self, max: usize) -> Reply<'_, Vec<String>> {
        StoreFuture::new(self.audited_lines(max))
    }
}

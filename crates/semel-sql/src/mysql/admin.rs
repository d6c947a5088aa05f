//! What people and the sweeper use: lists, purges, lines about what people did.

use bytes::Bytes;
use semel_core::{
    env::Tick,
    identity::Identity,
    record::StateCode,
    store::{Cursor, Entry, Filter, Page, Purged, StoreError},
};
use sqlx::{AssertSqlSafe, mysql::MySqlRow};

use super::{
    calls::{Calls, LOCKED, Wrote, nothing},
    row::{AFTER_RECORD, Row},
    sql::{self, Args},
};
use crate::record::identity;

/// How many rows one page of a list looks at, at most, for those that a filter lets pass.
const WINDOW: usize = 20_000;
/// How many rows one statement removes at most, so that none of them holds its locks for long.
const AT_ONCE: usize = 200;

/// How many lines about what people did are kept, if the server counts them one by one: a cluster's nodes count in steps, and
/// keep so many times fewer.
const LINES: u64 = 10_000;
/// How many of those before that go with each line that comes: a table that grew for long shrinks bit by bit.
const LINES_AT_ONCE: u64 = 500;

/// A row that ended.
struct Ended {
    id: Vec<u8>,
    state: i16,
    owner: Vec<u8>,
    fence: i64,
    expires_at: i64,
    identity: Option<Identity>,
}

impl Ended {
    fn of(row: &MySqlRow) -> Result<Self, StoreError> {
        let row = Row(row);
        let (id, namespace, kind): (Vec<u8>, String, String) = (row.at(0)?, row.at(5)?, row.at(6)?);
        let identity = identity(&id, &namespace, &kind);
        Ok(Self { id, state: row.at(1)?, owner: row.at(2)?, fence: row.at(3)?, expires_at: row.at(4)?, identity })
    }

    fn is_unresolved(&self) -> bool {
        self.state == StateCode::InFlight as i16 || self.state == StateCode::Unknown as i16
    }
}

impl Calls {
    pub(super) async fn page(&self, filter: &Filter, after: Option<&Cursor>, max: usize) -> Result<Page, StoreError> {
        let until = self.until();
        let after: &[u8] = after.map_or(&[], |cursor| &cursor.0);
        let window = if *filter == Filter::default() { max } else { WINDOW.max(max) };
        let window = Args::default().and(after).and(u64::try_from(window).unwrap_or(u64::MAX));
        let row = self.read_one(until, sql::WINDOW, &window).await?;
        let (now, end) = (Row(&row).now()?, Row(&row).at::<Option<Vec<u8>>>(1)?);

        let (mut text, mut args) = (String::from(sql::PAGE), Args::default().and(after));
        if let Some(end) = &end {
            text.push_str(" AND r.id <= ?");
            args = args.and(&end[..]);
        }
        if let Some(namespace) = &filter.namespace {
            text.push_str(" AND r.namespace = ?");
            args = args.and(namespace.as_str());
        }
        if let Some(rule) = &filter.rule {
            text.push_str(" AND r.rule = ?");
            args = args.and(rule.as_str());
        }
        match filter.state {
            None => {}
            Some(StateCode::InFlight) => text.push_str(sql::READS_IN_FLIGHT),
            Some(StateCode::Unknown) => text.push_str(sql::READS_UNKNOWN),
            Some(state) => {
                text.push_str(" AND r.v = 1 AND r.state = ?");
                args = args.and(state as i16);
            }
        }
        text.push_str(sql::PAGE_END);
        let rows = self.read(until, AssertSqlSafe(text), &args.and(u64::try_from(max).unwrap_or(u64::MAX))).await?;

        let (mut entries, mut last) = (Vec::with_capacity(rows.len()), None);
        for row in &rows {
            let row = Row(row);
            let id: Vec<u8> = row.at(AFTER_RECORD)?;
            let (namespace, kind): (String, String) = (row.at(AFTER_RECORD + 1)?, row.at(AFTER_RECORD + 2)?);
            // Comparisons of the database pad with spaces; the filter's own do not.
            if let (Some(identity), Some(record)) = (identity(&id, &namespace, &kind), row.record()?)
                && filter.passes(&record, row.now()?)
            {
                entries.push(Entry { identity, record });
            }
            last = Some(id);
        }
        // A full page goes on behind its last row, one that was not behind the window.
        let next = if rows.len() == max { last } else { end };
        Ok(Page { entries, next: next.map(|id| Cursor(Bytes::from(id))), now })
    }

    pub(super) async fn audit(&self, line: &str) -> Result<(), StoreError> {
        let until = self.until();
        let n = match self.write(until, sql::AUDIT, &Args::default().and(line)).await? {
            Wrote::Rows { id, .. } => id,
            Wrote::Duplicate | Wrote::Busy => return Err(nothing(LOCKED)),
        };
        if let Some(last) = n.checked_sub(LINES).filter(|&last| last > 0) {
            let args = Args::default().and(last).and(LINES_AT_ONCE);
            // The line stands, whatever becomes of older ones; the next one tries again.
            if let Err(error) = self.write(until, sql::FORGET_AUDIT, &args).await {
                tracing::debug!(%error, "old lines about what people did are still there");
            }
        }
        Ok(())
    }

    pub(super) async fn audited(&self, max: usize) -> Result<Vec<String>, StoreError> {
        let args = Args::default().and(u64::try_from(max).unwrap_or(u64::MAX));
        self.read(self.until(), sql::AUDITED, &args).await?.iter().map(|row| Row(row).at(0)).collect()
    }

    /// Two steps: a look at what ended first, then its removal, if it still has ended. What nobody ever told is removed one by
    /// one, each under the condition that it is as it was seen: only one process removes it, and that one tells.
    pub(super) async fn purge(&self, max: usize) -> Result<Purged, StoreError> {
        let until = self.until();
        let mut purged = Purged::default();
        while purged.removed < max {
            let wanted = AT_ONCE.min(max - purged.removed);
            let args = Args::default().and(u64::try_from(wanted).unwrap_or(u64::MAX));
            let rows = self.read(until, sql::ENDED, &args).await?;
            let ended = rows.iter().map(Ended::of).collect::<Result<Vec<_>, _>>()?;
            let (untold, mut told): (Vec<_>, Vec<_>) = ended.into_iter().partition(Ended::is_unresolved);
            told.sort_unstable_by(|a, b| a.id.cmp(&b.id));
            purged.removed += self.remove_all(until, &told).await?;
            for one in untold {
                if self.remove_untold(until, &one).await? {
                    purged.removed += 1;
                    purged.unresolved.extend(one.identity);
                }
            }
            // Others may have removed what this one saw: only a look that found fewer says that none is left.
            if rows.len() < wanted {
                return Ok(purged);
            }
        }
        purged.more = true;
        Ok(purged)
    }

    async fn remove_all(&self, until: Tick, ended: &[Ended]) -> Result<usize, StoreError> {
        let Some(last) = ended.last() else { return Ok(0) };
        let places = ended.len().next_power_of_two();
        let ids = ended.iter().chain(std::iter::repeat_n(last, places - ended.len()));
        let args = ids.fold(Args::default(), |args, one| args.and(&one.id[..]));
        let text = sql::repeat(sql::PURGE, "?", ", ", places, ")");
        match self.write(until, AssertSqlSafe(text), &args).await? {
            Wrote::Rows { matched, .. } => Ok(usize::try_from(matched).unwrap_or(usize::MAX)),
            // Somebody works on one of them; another purge comes.
            Wrote::Duplicate | Wrote::Busy => Ok(0),
        }
    }

    async fn remove_untold(&self, until: Tick, one: &Ended) -> Result<bool, StoreError> {
        let args =
            Args::default().and(&one.id[..]).and(&one.owner[..]).and(one.fence).and(one.state).and(one.expires_at);
        Ok(matches!(self.write(until, sql::PURGE_UNRESOLVED, &args).await?, Wrote::Rows { matched: 1.., .. }))
    }
}

//! What a statement answers with.

use semel_core::{StoreTime, record::Record};
use sqlx::{Row, postgres::PgRow};

use crate::record::Columns;

/// The answer of a statement about one record.
#[derive(Debug)]
pub(super) struct Answer {
    /// The server's clock, as the whole statement saw it.
    pub(super) now: StoreTime,
    /// What was written.
    pub(super) got: Option<Got>,
    /// The row before; without its rest where something was written.
    pub(super) found: Option<Columns>,
}

/// A row as it was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Got {
    pub(super) fence: i64,
    pub(super) attempt: i32,
    pub(super) expires_at: i64,
    /// Over a row that was there.
    pub(super) updated: bool,
}

impl Answer {
    pub(super) fn read(row: &PgRow) -> sqlx::Result<Self> {
        let got = match row.try_get::<Option<i64>, _>(1)? {
            None => None,
            Some(fence) => {
                Some(Got { fence, attempt: row.try_get(2)?, expires_at: row.try_get(3)?, updated: row.try_get(4)? })
            }
        };
        Ok(Self { now: time(row, 0)?, got, found: columns(row, 5)? })
    }

    /// The record before.
    pub(super) fn record(&self) -> Option<Record> {
        self.found.as_ref().map(Columns::record)
    }
}

pub(super) fn time(row: &PgRow, at: usize) -> sqlx::Result<StoreTime> {
    row.try_get(at).map(StoreTime::from_micros)
}

/// The eleven columns of a record from `at` on; `None` where there is no row.
pub(super) fn columns(row: &PgRow, at: usize) -> sqlx::Result<Option<Columns>> {
    let Some(v) = row.try_get::<Option<i16>, _>(at)? else { return Ok(None) };
    Ok(Some(Columns {
        v,
        state: row.try_get(at + 1)?,
        flags: row.try_get(at + 2)?,
        fp_v: row.try_get(at + 3)?,
        fp: row.try_get(at + 4)?,
        owner: row.try_get(at + 5)?,
        fence: row.try_get(at + 6)?,
        attempt: row.try_get(at + 7)?,
        lease_until: row.try_get(at + 8)?,
        expires_at: row.try_get(at + 9)?,
        rest: row.try_get::<Option<Vec<u8>>, _>(at + 10)?.unwrap_or_default(),
    }))
}

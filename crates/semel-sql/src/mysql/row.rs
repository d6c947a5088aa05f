//! Rows and records.

use semel_core::{
    StoreTime,
    record::Record,
    store::{Did, StoreError, StoreErrorKind},
};
use sqlx::{Decode, MySql, Row as _, Type, mysql::MySqlRow};

use super::sql::{Args, fence, time};
use crate::record::{Columns, rule};

/// A row as the statements of [`sql`](super::sql) ask for it: the clock, the columns of a record, more.
pub(super) struct Row<'a>(pub(super) &'a MySqlRow);

/// Where what comes after clock and record begins.
pub(super) const AFTER_RECORD: usize = 12;

impl Row<'_> {
    pub(super) fn at<'r, T: Decode<'r, MySql> + Type<MySql>>(&'r self, i: usize) -> Result<T, StoreError> {
        self.0.try_get(i).map_err(unreadable)
    }

    pub(super) fn now(&self) -> Result<StoreTime, StoreError> {
        self.at(0).map(StoreTime::from_micros)
    }

    /// `None` where the columns are those of no row.
    pub(super) fn record(&self) -> Result<Option<Record>, StoreError> {
        let Some(v) = self.at::<Option<i16>>(1)? else { return Ok(None) };
        let columns = Columns {
            v,
            state: self.at(2)?,
            flags: self.at(3)?,
            fp_v: self.at(4)?,
            fp: self.at(5)?,
            owner: self.at(6)?,
            fence: self.at(7)?,
            attempt: self.at(8)?,
            lease_until: self.at(9)?,
            expires_at: self.at(10)?,
            rest: self.at(11)?,
        };
        Ok(Some(columns.record()))
    }
}

/// What came back has another shape than what was asked for: the statement read, and changed nothing.
fn unreadable(error: sqlx::Error) -> StoreError {
    StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, error)
}

impl Args {
    /// A record's columns, in the order in which the statements write them.
    pub(super) fn record(self, r: &Record) -> Self {
        self.and(i16::from(r.version))
            .and(r.state as i16)
            .and(i16::from(r.flags.byte()))
            .fingerprint(&r.fingerprint)
            .and(&r.owner.as_bytes()[..])
            .and(fence(r.fence))
            .and(i32::try_from(r.attempt).unwrap_or(i32::MAX))
            .and(time(r.lease_until))
            .and(time(r.expires_at))
            .and(&r.rest[..])
            .and(rule(&r.rest))
    }

    /// What the condition that a row is still this one compares.
    pub(super) fn if_seen(self, id: &[u8; 32], r: &Record) -> Self {
        self.and(&id[..])
            .and(&r.owner.as_bytes()[..])
            .and(fence(r.fence))
            .and(r.state as i16)
            .and(time(r.lease_until))
            .and(time(r.expires_at))
    }
}

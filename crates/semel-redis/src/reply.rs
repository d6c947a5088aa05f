//! Reading what scripts return: a number that says what happened, the server's clock, and what belongs to it.

use bytes::Bytes;
use redis::Value;
use semel_core::{
    Fence, StoreTime,
    record::Record,
    store::{Did, StoreError, StoreErrorKind},
};

use crate::stored::Stored;

/// The record could not be read by the script: it is somebody's, and nothing was changed.
pub(crate) const UNREADABLE: i64 = -1;
/// A claim that arrived after its time.
pub(crate) const LATE: i64 = -2;
/// Refused; nothing was changed.
pub(crate) const NO: i64 = 0;
/// Done.
pub(crate) const YES: i64 = 1;
/// There is no such record.
pub(crate) const MISSING: i64 = 2;

/// A script's reply.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) code: i64,
    /// `None` where the script did not look.
    now: Option<StoreTime>,
    rest: std::vec::IntoIter<Value>,
}

impl Told {
    pub(crate) fn read(value: Value) -> Result<Self, StoreError> {
        let values = match value {
            Value::Array(values) => values,
            // The usual case, in short: done.
            Value::Int(YES) => return Ok(Self { code: YES, now: None, rest: Vec::new().into_iter() }),
            _ => return Err(odd(&value)),
        };
        let mut rest = values.into_iter();
        let (code, now) = match (rest.next(), rest.next()) {
            (Some(Value::Int(code)), Some(Value::Int(now))) => (code, now),
            // The same, and when.
            (Some(Value::Int(now)), None) => (YES, now),
            (first, _) => return Err(odd(&first.unwrap_or_default())),
        };
        Ok(Self { code, now: Some(StoreTime::from_micros(now)), rest })
    }

    /// The server's clock.
    pub(crate) fn now(&self) -> Result<StoreTime, StoreError> {
        self.now.ok_or_else(|| odd(&Value::Int(self.code)))
    }

    /// Whether nothing more was said. Of a claim and of a completion that is the usual case.
    pub(crate) fn is_brief(&self) -> bool {
        self.rest.len() == 0
    }

    pub(crate) fn number(&mut self) -> Result<i64, StoreError> {
        match self.rest.next() {
            Some(Value::Int(number)) => Ok(number),
            other => Err(odd(&other.unwrap_or_default())),
        }
    }

    /// The fence of a grant; one that found nothing has the time of it.
    pub(crate) fn fence(&mut self) -> Result<Fence, StoreError> {
        let number = if self.is_brief() { self.now()?.as_micros() } else { self.number()? };
        u64::try_from(number).ok().and_then(Fence::new).ok_or_else(|| odd(&Value::Int(number)))
    }

    pub(crate) fn bytes(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self.rest.next() {
            Some(Value::BulkString(bytes)) => Ok(Some(Bytes::from(bytes))),
            Some(Value::Nil) => Ok(None),
            other => Err(odd(&other.unwrap_or_default())),
        }
    }

    pub(crate) fn lines(&mut self) -> Result<Vec<String>, StoreError> {
        let value = self.rest.next().unwrap_or_default();
        redis::from_redis_value_ref(&value).map_err(|_| odd(&value))
    }

    pub(crate) fn stored(&mut self) -> Result<Option<Stored>, StoreError> {
        match self.rest.next() {
            Some(Value::BulkString(bytes)) => Ok(Some(Stored::read(bytes))),
            Some(Value::Nil) => Ok(None),
            other => Err(odd(&other.unwrap_or_default())),
        }
    }

    pub(crate) fn record(&mut self) -> Result<Option<Record>, StoreError> {
        Ok(self.stored()?.and_then(Stored::into_record))
    }

    /// The record that a refusal shows.
    pub(crate) fn the_record(&mut self) -> Result<Record, StoreError> {
        self.record()?.ok_or_else(|| odd(&Value::Nil))
    }
}

/// The server's clock, as `TIME` tells it.
pub(crate) fn time(value: &Value) -> Option<StoreTime> {
    let (seconds, micros): (i64, i64) = redis::from_redis_value_ref(value).ok()?;
    Some(StoreTime::from_micros(seconds * 1_000_000 + micros))
}

/// No script of ours says that: something between us and the server does, and what it did nobody can tell.
pub(crate) fn odd(value: &Value) -> StoreError {
    let words = format!("a reply that no script of this store gives: {}", shown(value));
    StoreError::new(Did::Unknown, StoreErrorKind::Unavailable, words)
}

/// What kind of value it is; records are nobody's to read in a log.
fn shown(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) | Value::Okay => "a string",
        Value::Array(_) => "a list",
        _ => "a value of another type",
    }
}

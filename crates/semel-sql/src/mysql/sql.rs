//! The statements. `NOW` is the store's clock: the server's, in microseconds, read once when a statement begins and before it
//! waits for any lock.

use semel_core::{Fence, StoreTime, fingerprint::Fingerprint, identity::Identity};
use sqlx::{Arguments, Encode, MySql, Type, mysql::MySqlArguments};
use std::time::Duration;

macro_rules! now {
    () => {
        "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))"
    };
}
pub(super) use now;

/// What a record is made of, in the order that [`row`](super::row) reads.
macro_rules! columns {
    () => {
        "r.v, r.state, r.flags, r.fp_v, r.fp, r.owner, r.fence, r.attempt, r.lease_until, r.expires_at, r.rest"
    };
}

/// A fresh claim. One row: granted, and the fence is the last insert id. None: late. 1062: there is a row.
pub(super) const CLAIM: &str = concat!(
    "INSERT INTO semel_record (id, v, state, flags, fp_v, fp, owner, fence, attempt, lease_until, expires_at, rest, ",
    "namespace, kind, rule) ",
    "SELECT ?, 1, 1, ?, ?, ?, ?, LAST_INSERT_ID(",
    now!(),
    "), 1, ",
    now!(),
    " + ?, ",
    now!(),
    " + ?, ?, ?, ?, ? FROM DUAL WHERE ",
    now!(),
    " <= ?"
);

/// A record, if there is one, and the clock in any case: always one row.
pub(super) const READ: &str = concat!(
    "SELECT ",
    now!(),
    ", ",
    columns!(),
    " FROM (SELECT 1 AS one) AS one LEFT JOIN semel_record AS r ON r.id = ?"
);

/// A whole record where none is.
pub(super) const INSERT: &str = concat!(
    "INSERT INTO semel_record (v, state, flags, fp_v, fp, owner, fence, attempt, lease_until, expires_at, rest, rule, ",
    "id, namespace, kind) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM DUAL WHERE ",
    now!(),
    " <= ?"
);

/// That the row is still the one that was read.
macro_rules! as_seen {
    () => {
        "id = ? AND v = 1 AND owner = ? AND fence = ? AND state = ? AND lease_until = ? AND expires_at = ?"
    };
}

/// A whole record in place of the one that was read.
pub(super) const SWAP: &str = concat!(
    "UPDATE semel_record SET v = ?, state = ?, flags = ?, fp_v = ?, fp = ?, owner = ?, fence = ?, attempt = ?, ",
    "lease_until = ?, expires_at = ?, rest = ?, rule = ? WHERE ",
    as_seen!(),
    " AND ",
    now!(),
    " <= ?"
);

/// Away with the one that was read.
pub(super) const REMOVE: &str = concat!("DELETE FROM semel_record WHERE ", as_seen!());

/// Own and in flight (or, for a completion, unknown) → done or unknown. Assignments go from left to right and see each other:
/// what reads a column stands before what changes it.
pub(super) const SETTLE: &str = concat!(
    "UPDATE semel_record SET flags = (flags & 1) | ?, state = ?, fp_v = ?, fp = ?, attempt = ?, lease_until = ? * ",
    now!(),
    ", expires_at = ",
    now!(),
    " + ?, rest = ?, rule = ? WHERE id = ? AND v = 1 AND owner = ? AND fence = ? AND state IN (1, ?) AND expires_at > ",
    now!()
);

/// Own (whatever the fence, if that is 0) and in flight → free or parked.
pub(super) const RELEASE: &str = concat!(
    "UPDATE semel_record SET state = ?, flags = flags & 1, fp_v = 0, fp = NULL, attempt = GREATEST(attempt - ?, 0), ",
    "lease_until = 0, expires_at = ",
    now!(),
    " + ?, rest = ?, rule = ? ",
    "WHERE id = ? AND v = 1 AND owner = ? AND (? = 0 OR fence = ?) AND state = 1 AND expires_at > ",
    now!()
);

/// Own and in flight → a later end of the lease, for as many as there are [`RENEW_ONE`]s.
pub(super) const RENEW: &str = concat!(
    "UPDATE semel_record SET lease_until = GREATEST(lease_until, LEAST(",
    now!(),
    " + ?, expires_at - ?)) WHERE v = 1 AND state = 1 AND expires_at > ",
    now!(),
    " AND ("
);
pub(super) const RENEW_ONE: &str = "(id = ? AND owner = ? AND fence = ?)";

/// Those of a batch that are there.
pub(super) const READ_MANY: &str =
    concat!("SELECT ", now!(), ", ", columns!(), ", r.id FROM semel_record AS r WHERE r.id IN (");

/// What ended, oldest first. What this program cannot read does not end for it.
pub(super) const ENDED: &str = concat!(
    "SELECT id, state, owner, fence, expires_at, namespace, kind FROM semel_record WHERE expires_at <= ",
    now!(),
    " AND v = 1 ORDER BY expires_at LIMIT ?"
);

/// Away with what ended and was told.
pub(super) const PURGE: &str =
    concat!("DELETE FROM semel_record WHERE v = 1 AND state NOT IN (1, 3) AND expires_at <= ", now!(), " AND id IN (");

/// Away with one that ended and that nobody ever told: whoever removes it tells.
pub(super) const PURGE_UNRESOLVED: &str = concat!(
    "DELETE FROM semel_record WHERE id = ? AND v = 1 AND owner = ? AND fence = ? AND state = ? AND expires_at = ? ",
    "AND expires_at <= ",
    now!()
);

/// How far one page looks, so that a filter nothing passes does not read the whole table in one statement.
pub(super) const WINDOW: &str =
    concat!("SELECT ", now!(), ", (SELECT id FROM semel_record WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?)");

/// A page: filters are appended, then [`PAGE_END`].
pub(super) const PAGE: &str = concat!(
    "SELECT ",
    now!(),
    ", ",
    columns!(),
    ", r.id, r.namespace, r.kind FROM semel_record AS r WHERE r.id > ? AND (r.expires_at > ",
    now!(),
    " OR r.v <> 1)"
);
pub(super) const PAGE_END: &str = " ORDER BY r.id LIMIT ?";
/// Those that read as unknown because their lease is over.
pub(super) const READS_UNKNOWN: &str =
    concat!(" AND r.v = 1 AND (r.state = 3 OR (r.state = 1 AND r.lease_until <= ", now!(), " AND r.flags & 2 = 0))");
/// Those that read as in flight, what this program cannot read among them.
pub(super) const READS_IN_FLIGHT: &str =
    concat!(" AND (r.v <> 1 OR (r.state = 1 AND (r.lease_until > ", now!(), " OR r.flags & 2 = 2)))");

pub(super) const AUDIT: &str = concat!("INSERT INTO semel_audit (at, line) VALUES (", now!(), ", ?)");
/// Away with lines before this one, the oldest first, so many at most.
pub(super) const FORGET_AUDIT: &str = "DELETE FROM semel_audit WHERE n <= ? ORDER BY n LIMIT ?";
pub(super) const AUDITED: &str = "SELECT line FROM semel_audit ORDER BY n DESC LIMIT ?";

/// The clock, whether writes are refused, and whose records these are.
pub(super) const HEALTH: &str = concat!(
    "SELECT ",
    now!(),
    ", CAST(@@global.read_only AS CHAR), CAST(@@global.innodb_read_only AS CHAR), ",
    "(SELECT mark FROM semel_mark WHERE id = 1)"
);

/// `n` times `one`, with commas or what else separates.
pub(super) fn repeat(start: &str, one: &str, separator: &str, n: usize, end: &str) -> String {
    let mut out = String::with_capacity(start.len() + n * (one.len() + separator.len()) + end.len());
    out.push_str(start);
    for i in 0..n {
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(one);
    }
    out.push_str(end);
    out
}

/// The values of a statement's question marks, in their order.
#[derive(Clone, Default)]
pub(super) struct Args(MySqlArguments);

impl Args {
    pub(super) fn and<'q, T: Encode<'q, MySql> + Type<MySql>>(mut self, value: T) -> Self {
        self.0.add(value).expect("numbers, bytes and texts can always be encoded");
        self
    }

    pub(super) fn fingerprint(self, fp: &Fingerprint) -> Self {
        let algorithm = fp.version().algorithm;
        self.and(i16::from(algorithm)).and((algorithm != 0).then(|| &fp.digest()[..]))
    }

    /// What a new row says of whose it is.
    pub(super) fn identity(self, id: &Identity) -> Self {
        self.and(&id.digest()[..]).and(id.namespace().as_str()).and((id.kind().letter()).to_string())
    }

    pub(super) fn into_inner(self) -> MySqlArguments {
        self.0
    }
}

/// Microseconds, at most 70,000 years: added to any time of the server's they do not overflow.
pub(super) fn micros(d: Duration) -> i64 {
    i64::try_from(d.as_micros()).unwrap_or(i64::MAX).min(1 << 61)
}

pub(super) fn fence(fence: Option<Fence>) -> i64 {
    fence.map_or(0, |f| i64::try_from(f.get()).unwrap_or(i64::MAX))
}

pub(super) fn time(t: StoreTime) -> i64 {
    t.as_micros()
}

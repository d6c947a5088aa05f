//! What a server's error means: whether the statement did something, whether to send it again, and whether the connection is
//! still good.
//!
//! Statements run one by one, so an error that the server reports has rolled its statement back. What is not in the table is
//! unknown: that costs a repeat by the same owner and can never cost a second run.

use std::io;

use semel_core::store::{Did, StoreError, StoreErrorKind};
use sqlx::mysql::MySqlDatabaseError;

/// What a failed statement means.
#[derive(Debug)]
pub(super) enum Fault {
    /// There is a row of that key.
    Duplicate,
    /// Somebody holds a lock on the row; nothing was done.
    Busy,
    /// It lost to another one and was rolled back: to be sent again.
    Again,
    /// All else.
    Failed(StoreError),
}

/// A fault, and whether the connection it came over can be used again.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) fault: Fault,
    pub(super) connection_lives: bool,
}

impl Verdict {
    pub(super) fn of(error: sqlx::Error) -> Self {
        let reported = match &error {
            sqlx::Error::Database(e) => e.try_downcast_ref::<MySqlDatabaseError>(),
            _ => None,
        };
        let Some(reported) = reported else { return Self::of_connection(error) };
        let (meaning, connection_lives) = meaning(reported.number(), reported.message());
        let fault = match meaning {
            Meaning::Duplicate => Fault::Duplicate,
            Meaning::Busy => Fault::Busy,
            Meaning::Again => Fault::Again,
            Meaning::Failed(did, kind) => Fault::Failed(StoreError::new(did, kind, error)),
        };
        Self { fault, connection_lives }
    }

    /// No answer of the server, or none that can be read.
    fn of_connection(error: sqlx::Error) -> Self {
        let did = match &error {
            // Nobody listens, or there is no way there: nothing was sent.
            sqlx::Error::Io(e) if e.kind() == io::ErrorKind::ConnectionRefused => Did::Nothing,
            sqlx::Error::Configuration(_) | sqlx::Error::Tls(_) => Did::Nothing,
            _ => Did::Unknown,
        };
        let fault = Fault::Failed(StoreError::new(did, StoreErrorKind::Unavailable, error));
        Self { fault, connection_lives: false }
    }

    /// The error of a call that needed this to work.
    pub(super) fn into_error(self) -> StoreError {
        match self.fault {
            Fault::Failed(error) => error,
            Fault::Duplicate => nothing("a row of that key was there"),
            Fault::Busy => nothing("the row was locked for longer than a statement waits"),
            Fault::Again => nothing("the statement lost to others again and again"),
        }
    }
}

fn nothing(why: &'static str) -> StoreError {
    StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, why)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    Duplicate,
    Busy,
    Again,
    Failed(Did, StoreErrorKind),
}

const REFUSED: Meaning = Meaning::Failed(Did::Nothing, StoreErrorKind::Unavailable);
const FULL: Meaning = Meaning::Failed(Did::Nothing, StoreErrorKind::Full);
const READ_ONLY: Meaning = Meaning::Failed(Did::Nothing, StoreErrorKind::ReadOnly);
const UNKNOWN: Meaning = Meaning::Failed(Did::Unknown, StoreErrorKind::Unavailable);

/// Error numbers of MySQL 8 and MariaDB 10.6 and later, and whether the connection can be used after them.
fn meaning(number: u16, message: &str) -> (Meaning, bool) {
    match number {
        // A key that is there already.
        1022 | 1062 | 1586 => (Meaning::Duplicate, true),
        // Lock wait time-out: this statement was rolled back, and autocommit leaves nothing else.
        1205 => (Meaning::Busy, true),
        // Deadlock; the row changed since the snapshot; the table changed since the statement was prepared; a replication group
        // settled it for another one.
        1213 | 1020 | 1615 | 3101 => (Meaning::Again, true),
        // A statement that this connection does not know: a proxy went on with another server.
        1243 => (Meaning::Again, false),
        // No room: disk, table, row.
        1021 | 1114 | 1118 => (FULL, true),
        // What the storage engine says of a full disk.
        1030 if message.contains("error 28 ") => (FULL, true),
        // A packet that is larger than the server takes. It hangs up.
        1153 => (FULL, false),
        // Read only: by option, by mode, by transaction; a demoted primary. Its connections lead to the wrong server.
        1036 | 1290 | 1792 | 1836 => (READ_ONLY, false),
        // No more connections: server, user, host; not allowed in.
        1040 | 1129 | 1130 | 1203 | 1226 | 1044 | 1045 | 1698 => (REFUSED, false),
        // Not allowed to, no such table or database, not what this program knows.
        1046 | 1049 | 1054 | 1064 | 1142 | 1143 | 1146 | 1227 | 1370 => (REFUSED, true),
        // Values that do not fit; too many locks, transactions, statements; a binary log that cannot take it.
        1264 | 1366 | 1406 | 1690 | 1206 | 1461 | 1637 | 1665 => (REFUSED, true),
        // A Galera node that is not part of the cluster now.
        1047 => (REFUSED, false),
        // Idle for too long: it was closed before the statement came.
        4031 => (REFUSED, false),
        // Interrupted, killed, shut down, too slow, or lost between server and client: perhaps after it was done.
        1053 | 1080 | 1152 | 1158..=1161 | 1184 | 1927 | 3169 => (UNKNOWN, false),
        1317 | 1969 | 3024 => (UNKNOWN, true),
        _ => (UNKNOWN, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_broken_connection_is_taken_for_nothing_done() {
        for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe] {
            let verdict = Verdict::of(sqlx::Error::Io(kind.into()));
            assert!(!verdict.connection_lives);
            assert_eq!(verdict.into_error().did, Did::Unknown, "{kind}");
        }
        let garbled = Verdict::of(sqlx::Error::Protocol("what was that".into()));
        assert!(!garbled.connection_lives);
        assert_eq!(garbled.into_error().did, Did::Unknown);
    }

    #[test]
    fn where_nobody_listens_nothing_was_done() {
        let verdict = Verdict::of(sqlx::Error::Io(io::ErrorKind::ConnectionRefused.into()));
        assert_eq!(verdict.into_error().did, Did::Nothing);
    }

    #[test]
    fn an_error_that_nobody_knows_is_unknown() {
        for number in [1, 1030, 1105, 1180, 2006, 2013, 9999] {
            assert_eq!(meaning(number, "Got error 9 from storage engine").0, UNKNOWN, "{number}");
        }
        assert_eq!(meaning(1030, "Got error 28 \"No space left on device\" from storage engine").0, FULL);
    }
}

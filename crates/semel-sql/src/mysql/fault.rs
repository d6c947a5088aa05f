//! What a server's error means: whether the statement did something, whether to send it again, and whether the connection is
//! still good.
//!
//! Statements run one by one, so an error that the server reports has rolled its statement back. What is not in the table is
//! unknown: that costs a repeat by the same owner and can never cost a second run.

use std::io;

use semel_core::store::{Did, StoreError, StoreErrorKind};
use sqlx::mysql::MySqlDatabaseError;

use super::numbers::{FULL, Meaning, NUMBERS, UNKNOWN};

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

/// What a number means, and whether the connection can be used after it.
fn meaning(number: u16, message: &str) -> (Meaning, bool) {
    // What the storage engine says of a full disk.
    if number == 1030 && message.contains("error 28 ") {
        return (FULL, true);
    }
    let row = NUMBERS.iter().find(|(numbers, ..)| numbers.contains(&number));
    row.map_or((UNKNOWN, true), |(_, meaning, lives)| (*meaning, *lives))
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

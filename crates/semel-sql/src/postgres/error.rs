//! What an error means: whether the change can have happened, whether the connection is still good, whether to try again.
//!
//! | error | change | then |
//! |---|---|---|
//! | severity ERROR, any code but those below | not done: the transaction was rolled back | |
//! | 40001 serialization, 40P01 deadlock | not done | the statement is sent again, a few times |
//! | 55P03 lock not available | not done | a claim answers in flight; all else comes back later |
//! | 26000, 42P05 no such statement, it is there already | not done | a pooler is between: from now on in plain text |
//! | 0A000 cached plan | not done | sent again on another connection |
//! | 25006 read only | not done | a demoted primary: another connection |
//! | 53100 disk full, 53200, 53400 | not done | full, so a settlement leaves its body out |
//! | 53300 too many connections, 57P03 starting or stopping, 28… 3D000 login | not done: told before the session begins | another connection |
//! | class 08 (poolers speak so), 57P01, 57P02, severity FATAL or PANIC in a session | unknown | another connection |
//! | broken connection, protocol, an answer that cannot be read, no answer in time | unknown | another connection |

use semel_core::store::{Did, StoreError, StoreErrorKind};
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::codes::{CODES, Says};

/// What to make of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub(super) did: Did,
    pub(super) kind: StoreErrorKind,
    pub(super) next: Next,
    /// Whether the connection can be used for the next statement.
    pub(super) usable: bool,
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The caller is told.
    Tell,
    /// The statement can be sent again.
    Again,
    /// Somebody changes the row.
    Locked,
    /// Nothing that was prepared can be relied on.
    Plain,
}

const fn not_done(next: Next, usable: bool) -> Verdict {
    Verdict { did: Did::Nothing, kind: StoreErrorKind::Unavailable, next, usable }
}

const UNKNOWN: Verdict =
    Verdict { did: Did::Unknown, kind: StoreErrorKind::Unavailable, next: Next::Tell, usable: false };

/// The verdict over an error of a statement that was sent.
pub(super) fn verdict(error: &sqlx::Error) -> Verdict {
    match error {
        sqlx::Error::Database(error) => match error.try_downcast_ref::<PgDatabaseError>() {
            Some(error) => answered(error.code(), error.severity()),
            None => UNKNOWN,
        },
        // Nothing was sent.
        sqlx::Error::Configuration(_) | sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_) => {
            not_done(Next::Tell, true)
        }
        _ => UNKNOWN,
    }
}

fn answered(code: &str, severity: PgSeverity) -> Verdict {
    if let Some((_, says)) = CODES.iter().find(|(known, _)| code.starts_with(known)) {
        return match says {
            Says::Again => not_done(Next::Again, true),
            Says::AgainElsewhere => not_done(Next::Again, false),
            Says::Locked => not_done(Next::Locked, true),
            Says::Plain => not_done(Next::Plain, false),
            Says::Full => Verdict { kind: StoreErrorKind::Full, ..not_done(Next::Tell, true) },
            Says::Elsewhere => not_done(Next::Tell, false),
            Says::Unknown => UNKNOWN,
        };
    }
    match severity {
        PgSeverity::Fatal | PgSeverity::Panic => UNKNOWN,
        _ => not_done(Next::Tell, true),
    }
}

impl Verdict {
    /// The error as the store's caller gets it.
    pub(super) fn error(self, source: sqlx::Error) -> StoreError {
        told(self.did, self.kind, source)
    }
}

fn told(did: Did, kind: StoreErrorKind, source: sqlx::Error) -> StoreError {
    match crate::error::words(&source) {
        Some(words) => StoreError::new(did, kind, words),
        None => StoreError::new(did, kind, source),
    }
}

/// An error that came while a connection was made: nothing was asked yet.
pub(super) fn connecting(source: sqlx::Error) -> StoreError {
    told(Did::Nothing, StoreErrorKind::Unavailable, source)
}

pub(super) fn unavailable(did: Did, why: &'static str) -> StoreError {
    StoreError::new(did, StoreErrorKind::Unavailable, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: &str) -> (Did, Next, bool) {
        let verdict = answered(code, PgSeverity::Error);
        (verdict.did, verdict.next, verdict.usable)
    }

    #[test]
    fn what_the_server_rolled_back_was_not_done() {
        for code in ["23505", "22003", "42P01", "42501", "57014", "XX000", "58030", "25P02"] {
            assert_eq!(error(code), (Did::Nothing, Next::Tell, true), "{code}");
        }
    }

    #[test]
    fn conflicts_are_tried_again_and_locks_are_told() {
        assert_eq!(error("40001"), (Did::Nothing, Next::Again, true));
        assert_eq!(error("40P01"), (Did::Nothing, Next::Again, true));
        assert_eq!(error("55P03"), (Did::Nothing, Next::Locked, true));
    }

    #[test]
    fn a_server_that_may_not_write_did_nothing_and_is_left() {
        assert_eq!(error("25006"), (Did::Nothing, Next::Tell, false));
    }

    #[test]
    fn a_full_server_says_so() {
        for code in ["53100", "53200", "53400"] {
            assert_eq!(answered(code, PgSeverity::Error).kind, StoreErrorKind::Full, "{code}");
        }
    }

    #[test]
    fn what_ends_a_session_leaves_the_outcome_open() {
        for code in ["57P01", "57P02", "08006", "08P01", "08003"] {
            assert_eq!(error(code), (Did::Unknown, Next::Tell, false), "{code}");
        }
        assert_eq!(answered("XX000", PgSeverity::Panic).did, Did::Unknown);
        assert_eq!(answered("57014", PgSeverity::Fatal).did, Did::Unknown);
    }

    #[test]
    fn what_is_told_before_a_session_begins_did_nothing() {
        for code in ["53300", "57P03", "28P01", "28000", "3D000"] {
            assert_eq!(answered(code, PgSeverity::Fatal).did, Did::Nothing, "{code}");
        }
    }

    #[test]
    fn statements_that_a_pooler_mixed_up_go_as_text() {
        assert_eq!(error("26000"), (Did::Nothing, Next::Plain, false));
        assert_eq!(error("42P05"), (Did::Nothing, Next::Plain, false));
    }

    #[test]
    fn a_broken_connection_leaves_the_outcome_open() {
        let io = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert_eq!(verdict(&sqlx::Error::Io(io)), UNKNOWN);
        assert_eq!(verdict(&sqlx::Error::Protocol("odd".into())), UNKNOWN);
        assert_eq!(verdict(&sqlx::Error::ColumnNotFound("v".into())), UNKNOWN);
        assert_eq!(verdict(&sqlx::Error::Encode("odd".into())).did, Did::Nothing);
    }
}

//! Why a store could not be opened on a database: what, why, and what to do.

use std::fmt;

use semel_core::{
    identity::MarkError,
    store::{Finding, StoreError},
};
use sqlx::error::DatabaseError;

/// A database on which no store can be opened. Nothing in it was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL cannot be read.
    Url {
        /// What is wrong with it; never its password.
        why: String,
    },
    /// The server did not answer, or [refused](ConnectError::refused).
    Unreachable {
        /// Host, port and database.
        server: String,
        /// Why.
        source: sqlx::Error,
    },
    /// The tables are missing, or of another version.
    Schema {
        /// Host, port and database.
        server: String,
        /// What is there.
        schema: Schema,
    },
    /// How the server is set up would break the promise.
    Refused {
        /// Host, port and database.
        server: String,
        /// What was found, the fatal findings first.
        findings: Vec<Finding>,
    },
    /// The records belong to another deployment.
    Mark {
        /// Host, port and database.
        server: String,
        /// Why.
        source: MarkError,
    },
    /// The server stopped answering in the middle.
    Store {
        /// Host, port and database.
        server: String,
        /// Why.
        source: StoreError,
    },
}

/// What a migration did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Migrated {
    /// The version of the tables before; 0 where there were none.
    pub from: u32,
    /// The version they have now.
    pub to: u32,
    /// What somebody else changed about the tables since, the worst first: steps that were taken are not taken again.
    pub findings: Vec<Finding>,
}

/// The tables that were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schema {
    /// None.
    Missing,
    /// Of an earlier version.
    Older {
        /// Theirs.
        found: u32,
        /// The one that this program uses.
        known: u32,
    },
    /// Of a later version, which this program does not know.
    Newer {
        /// Theirs.
        found: u32,
        /// The one that this program uses.
        known: u32,
    },
}

impl Schema {
    /// What `found` means to a program that uses `known`; `None` where it fits.
    #[must_use]
    pub const fn of(found: Option<u32>, known: u32) -> Option<Self> {
        match found {
            None | Some(0) => Some(Self::Missing),
            Some(found) if found < known => Some(Self::Older { found, known }),
            Some(found) if found > known => Some(Self::Newer { found, known }),
            Some(_) => None,
        }
    }
}

impl ConnectError {
    /// Whether trying again later can help, with nothing done about it.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Store { .. })
    }

    /// Whether the server refused the user or the password.
    #[must_use]
    pub fn is_refused_login(&self) -> bool {
        // SQLSTATE class 28, of both servers: invalid authorization.
        self.refusal().is_some_and(|error| error.code().is_some_and(|code| code.starts_with("28")))
    }

    /// What the server itself said no with, in its own words; `None` where none answered.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refusal().map(DatabaseError::message)
    }

    /// What to do about a server that said no, where that is known.
    #[must_use]
    pub fn cure(&self) -> Option<&'static str> {
        let error = self.refusal()?;
        cure(error.code().as_deref().unwrap_or_default(), number(error), error.message())
    }

    fn refusal(&self) -> Option<&dyn DatabaseError> {
        match self {
            Self::Unreachable { source: sqlx::Error::Database(error), .. } => Some(&**error),
            _ => None,
        }
    }
}

/// The number by which MySQL and MariaDB tell apart what has one SQLSTATE; 0 of all others.
fn number(error: &dyn DatabaseError) -> u16 {
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return error.number();
    }
    let _ = error;
    0
}

fn cure(code: &str, number: u16, said: &str) -> Option<&'static str> {
    Some(match (code, number) {
        (_, 1049) | ("3D000", _) => "make it (CREATE DATABASE), or mend its name in the address",
        ("42501", _) if said.contains(" schema ") => {
            "tables are made by `semel migrate` with a user who may: the owner of the database, or after GRANT USAGE, CREATE \
             ON SCHEMA … TO its user"
        }
        ("42501", _) => {
            "give it the rights of a gateway: GRANT SELECT, INSERT, UPDATE, DELETE ON semel_record TO …; GRANT SELECT, INSERT \
             ON semel_mark TO …; GRANT SELECT, INSERT, UPDATE, DELETE ON semel_audit TO …; GRANT SELECT ON semel_schema TO …. \
             Tables are made by `semel migrate` with a user who may"
        }
        (_, 1044 | 1142 | 1143 | 1227) => {
            "give it the rights of a gateway: GRANT SELECT, INSERT, UPDATE, DELETE on the database. Tables are made by `semel \
             migrate` with a user who has CREATE and INDEX as well"
        }
        (_, 1290 | 1836) | ("25006", _) => {
            "name the server that takes writes; where it is this one, end what keeps the user or the database from writing \
             (default_transaction_read_only, read_only)"
        }
        (_, 1040 | 1203) | ("53300", _) => "let it have more connections (max_connections), or take fewer",
        ("57P03", _) => "wait until it has started",
        _ => return None,
    })
}

/// The words of an error, for people. PostgreSQL sends the line of its own source with them, which nobody is served by.
#[cfg(feature = "postgres")]
pub(crate) fn words(error: &sqlx::Error) -> Option<String> {
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            Some(format!("{} (SQLSTATE {code})", error.message()))
        }
        _ => None,
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("has no tables of Semel: make them with `semel migrate URL`"),
            Self::Older { found, known } => write!(
                f,
                "has tables of version {found}, this program uses {known}: bring them up with `semel migrate URL`"
            ),
            Self::Newer { found, known } => write!(
                f,
                "has tables of version {found}, this program knows {known} at most: upgrade the program, tables are \
                 never taken back"
            ),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { why } => write!(f, "the store's URL cannot be read: {why}"),
            Self::Unreachable { server, source } => match self.refused() {
                Some(said) => write!(f, "{server} refuses: {said}"),
                None => write!(f, "no connection to {server}: {source}"),
            },
            Self::Schema { server, schema } => write!(f, "the database {server} {schema}"),
            Self::Refused { server, findings } => {
                write!(f, "the server {server} does not keep the promise")?;
                findings.iter().try_for_each(|finding| write!(f, "\n  {finding}"))
            }
            Self::Mark { server, source } => write!(f, "{server}: {source}"),
            Self::Store { server, source } => write!(f, "{server}: {source}"),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } => Some(source),
            Self::Mark { source, .. } => Some(source),
            Self::Store { source, .. } => Some(source),
            Self::Url { .. } | Self::Schema { .. } | Self::Refused { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_that_is_known_has_a_cure_of_its_own() {
        for (code, number, said, expected) in [
            ("3D000", 0, "database \"nope\" does not exist", "CREATE DATABASE"),
            ("42000", 1049, "Unknown database 'nope'", "CREATE DATABASE"),
            ("42501", 0, "permission denied for schema public", "CREATE ON SCHEMA"),
            ("42501", 0, "permission denied for table semel_schema", "GRANT SELECT ON semel_schema"),
            ("42000", 1142, "CREATE command denied to user", "GRANT SELECT, INSERT, UPDATE, DELETE"),
            ("25006", 0, "cannot execute CREATE TABLE in a read-only transaction", "default_transaction_read_only"),
            ("HY000", 1290, "The server is running with the --read-only option", "read_only"),
            ("53300", 0, "too many clients already", "max_connections"),
            ("57P03", 0, "the database system is starting up", "started"),
        ] {
            let cure = cure(code, number, said);
            assert!(cure.is_some_and(|cure| cure.contains(expected)), "{said}: {cure:?}");
        }
        assert_eq!(cure("XX000", 0, "internal"), None);
    }
}

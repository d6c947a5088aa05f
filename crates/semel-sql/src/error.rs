//! Why a store could not be opened on a database: what, why, and what to do.

use std::fmt;

use semel_core::{
    identity::MarkError,
    store::{Finding, StoreError},
};

/// A database on which no store can be opened. Nothing in it was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL cannot be read.
    Url {
        /// What is wrong with it; never its password.
        why: String,
    },
    /// The server did not answer, or refused.
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Migrated {
    /// The version of the tables before; 0 where there were none.
    pub from: u32,
    /// The version they have now.
    pub to: u32,
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
        let Self::Unreachable { source: sqlx::Error::Database(error), .. } = self else { return false };
        // SQLSTATE class 28, of both servers: invalid authorization.
        error.code().is_some_and(|code| code.starts_with("28"))
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
            Self::Unreachable { server, source } => write!(f, "no connection to {server}: {source}"),
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

//! Why a directory could not be opened: what, where, why, and what to do.

use std::{fmt, io, path::PathBuf};

/// A directory that could not be opened. Nothing in it was changed, beyond the end of a torn batch cut off.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it.
    InUse {
        /// Which directory.
        dir: PathBuf,
        /// The other process, if its lock file says.
        process: Option<u32>,
    },
    /// Something else than a store is in it.
    NotAStore {
        /// Which directory.
        dir: PathBuf,
        /// What was found there.
        found: String,
    },
    /// It was written in a format that this program does not read.
    Version {
        /// Which directory.
        dir: PathBuf,
        /// What its version file says.
        found: String,
        /// The version that this program reads and writes.
        known: u32,
    },
    /// Its records were made with another secret: with this one none of them would be found.
    OtherSecret {
        /// Which directory.
        dir: PathBuf,
    },
    /// The end of the journal was synced, and is not there: no crash leaves that.
    Lost {
        /// The file where it ends.
        path: PathBuf,
        /// What was synced, and what is there.
        why: String,
        /// The file into which a person writes `words`, to go on without the part that is lost.
        accept: PathBuf,
        /// What to write there.
        words: String,
    },
    /// What is stored cannot be right.
    Damaged {
        /// Which file or directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The operating system refused.
    Io {
        /// What was being done.
        doing: &'static str,
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }

    /// Whether trying again later can help, with nothing done about it.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { dir, process } => {
                write!(f, "the store in {} is in use by another process", dir.display())?;
                if let Some(pid) = process {
                    write!(f, " (process id {pid})")?;
                }
                f.write_str(
                    ": one directory serves one process; stop that one, or give this one a directory of its own",
                )
            }
            Self::NotAStore { dir, found } => write!(
                f,
                "{} is no Semel store and not empty (found `{found}`): name an empty or new directory",
                dir.display()
            ),
            Self::Version { dir, found, known } => write!(
                f,
                "the store in {} has format `{found}`, this program reads version {known}: use the program that wrote \
                 it, or name another directory",
                dir.display()
            ),
            Self::OtherSecret { dir } => write!(
                f,
                "the records in {} were made with another secret: with this one none of them would be found, and their \
                 requests could run a second time. Name the secret they were made with (without a configured one that is \
                 the file `secret` in there); or, if losing them is acceptable, move the directory away and start with \
                 an empty one",
                dir.display()
            ),
            Self::Lost { path, why, accept, words } => write!(
                f,
                "{} lost what had been answered: {why}. Restore the whole directory from a backup; or, if the lost part is \
                 gone for good and that is acceptable (its requests could run a second time), write the words `{words}` \
                 into the file {} and start again: the store goes on without it, and its audit says so",
                path.display(),
                accept.display()
            ),
            Self::Damaged { path, why } => write!(
                f,
                "{} is damaged: {why}. Restore it from a backup; or, if losing its records is acceptable (their \
                 requests could run a second time), move the directory away and start with an empty one",
                path.display()
            ),
            Self::Io { doing, path, source } => {
                write!(f, "{doing} {}: {source}", path.display())?;
                match source.kind() {
                    io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                        f.write_str(". It is a file, or lies under one: name another directory")
                    }
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                        f.write_str(". This user may not write there: change that, or name another directory")
                    }
                    io::ErrorKind::NotFound => f.write_str(". Nothing can be made there: name another directory"),
                    io::ErrorKind::StorageFull => f.write_str(". Make room, or name a directory on another disk"),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

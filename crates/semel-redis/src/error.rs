//! Why a store could not be opened.

use std::fmt;

use semel_core::{
    identity::MarkError,
    store::{Finding, StoreError},
};

use crate::address::BadUrl;

/// Why [`RedisStore::connect`](crate::RedisStore::connect) refused. Nothing was written, but for the store's mark.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL, or an option beside it, cannot be used.
    Url(BadUrl),
    /// No server answered as one should. Trying again later makes sense.
    Unavailable(StoreError),
    /// The records there were made with another secret.
    Mark(MarkError),
    /// A certificate or key that cannot be used.
    #[cfg(feature = "tls")]
    Tls(crate::BadTls),
    /// The server is set up in a way that breaks the promise; each finding has its cure.
    Unfit(Vec<Finding>),
}

const RIGHTS: &str = "give the user its rights: ACL SETUSER … ~semel:* &semel:wake +eval +evalsha +time +get +set +getrange \
                      +setrange +del +pexpireat +lpush +ltrim +lrange +publish +subscribe +hello +ping +select +scan +wait \
                      +cluster|slots +info +config|get";

const CERTIFICATE: &str =
    "the server asks for a certificate of this side: name one and its key (`tls.certificate`, `tls.key`)";

const AUTHORITY: &str =
    "nobody whom this side trusts vouches for the server's certificate: name the authority that does (`tls.authority`)";

const NAME: &str =
    "the server's certificate is for other names: take one of them as its host, or give it one for this name";

const PRIMARY: &str = "name its primary; where that may move, redis+sentinel://HOST,HOST,…/PRIMARY, which follows it";

const DATABASE: &str = "take a number that the server has: below its setting `databases`, 16 as a rule";

impl ConnectError {
    /// Whether it may work later without anybody changing anything.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    /// Whether the server refused the user or the password. Read off its words, which are all that is left of an answer that several
    /// waited for.
    #[must_use]
    pub fn is_refused_login(&self) -> bool {
        let Self::Unavailable(error) = self else { return false };
        let said = error.to_string();
        ["WRONGPASS", "NOAUTH", "AuthenticationFailed"].iter().any(|word| said.contains(word))
    }

    /// What to do about a server that answered and said no, where that is known. `None` as well where none answered.
    #[must_use]
    pub fn cure(&self) -> Option<&'static str> {
        let Self::Unavailable(error) = self else { return None };
        let said = error.to_string();
        let cures = [
            ("CertificateRequired", CERTIFICATE),
            ("UnknownIssuer", AUTHORITY),
            ("not valid for name", NAME),
            ("NOPERM", RIGHTS),
            ("NoPerm", RIGHTS),
            ("DB index is out of range", DATABASE),
            ("is a replica", PRIMARY),
        ];
        cures.into_iter().find(|(word, _)| said.contains(word)).map(|(_, cure)| cure)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::Unavailable(error) => error.fmt(f),
            Self::Mark(error) => error.fmt(f),
            #[cfg(feature = "tls")]
            Self::Tls(error) => error.fmt(f),
            Self::Unfit(findings) => {
                for (n, finding) in findings.iter().enumerate() {
                    if n > 0 {
                        f.write_str("; ")?;
                    }
                    finding.fmt(f)?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Url(error) => Some(error),
            Self::Unavailable(error) => Some(error),
            Self::Mark(error) => Some(error),
            #[cfg(feature = "tls")]
            Self::Tls(error) => Some(error),
            Self::Unfit(_) => None,
        }
    }
}

impl From<BadUrl> for ConnectError {
    fn from(error: BadUrl) -> Self {
        Self::Url(error)
    }
}

#[cfg(test)]
mod tests {
    use semel_core::store::{Did, StoreErrorKind};

    use super::*;

    #[test]
    fn a_server_that_says_no_is_told_with_what_to_do() {
        for (said, cure) in [
            ("received fatal alert: CertificateRequired", Some("tls.certificate")),
            ("invalid peer certificate: UnknownIssuer", Some("tls.authority")),
            ("invalid peer certificate: certificate not valid for name \"a\"", Some("for other names")),
            ("h:6379 is a replica: it takes no writes", Some("name its primary")),
            ("Connection refused", None),
        ] {
            let error = ConnectError::Unavailable(StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, said));
            assert_eq!(
                error.cure().map(|told| cure.is_some_and(|cure| told.contains(cure))),
                cure.map(|_| true),
                "{said}"
            );
        }
    }
}

//! Certificates for `rediss://`.

use std::fmt;

use rustls::{
    Error, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    sign::CertifiedKey,
};

/// Certificates in PEM. The server's name is checked in any case.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Tls {
    /// Who vouches for the server, instead of those that the system trusts.
    pub authority: Option<Vec<u8>>,
    /// This side's certificate with its chain, and its key, where the server asks for one.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

/// Which of the texts of a [`Tls`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TlsPart {
    /// [`Tls::authority`].
    Authority,
    /// The certificate of [`Tls::client`].
    Certificate,
    /// The key of [`Tls::client`].
    Key,
}

/// A text that is no certificate or key, or not the one that belongs to the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadTls {
    /// Which one.
    pub part: TlsPart,
    /// Why it cannot be used, without a word of it.
    pub why: String,
}

impl fmt::Display for BadTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            TlsPart::Authority => "authority",
            TlsPart::Certificate => "client's certificate",
            TlsPart::Key => "client's key",
        };
        write!(f, "the {part} cannot be used for TLS: {}", self.why)
    }
}

impl std::error::Error for BadTls {}

impl Tls {
    /// Looks whether the texts are what they should be: found here, and not by a connection that never comes about.
    ///
    /// # Errors
    /// [`BadTls`]: which one is not, and why.
    pub fn check(&self) -> Result<(), BadTls> {
        if let Some(authority) = &self.authority {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(authority, TlsPart::Authority)? {
                roots.add(certificate).map_err(|error| bad(TlsPart::Authority, error))?;
            }
        }
        let Some((certificate, key)) = &self.client else { return Ok(()) };
        let chain = certificates(certificate, TlsPart::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            pem::Error::NoItemsFound => bad(TlsPart::Key, "there is no private key in it, or one under a password"),
            error => bad(TlsPart::Key, error),
        })?;
        let provider = aws_lc_rs::default_provider();
        let key = provider.key_provider.load_private_key(key).map_err(|error| bad(TlsPart::Key, error))?;
        match CertifiedKey::new(chain, key).keys_match() {
            Ok(()) => Ok(()),
            Err(Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
                Err(bad(TlsPart::Key, "it is the key of another certificate"))
            }
            Err(Error::InconsistentKeys(_)) => Ok(()),
            Err(error) => Err(bad(TlsPart::Certificate, error)),
        }
    }
}

fn certificates(pem: &[u8], part: TlsPart) -> Result<Vec<CertificateDer<'static>>, BadTls> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(|error| bad(part, error))?;
    if found.is_empty() { Err(bad(part, "there is no certificate in it")) } else { Ok(found) }
}

fn bad(part: TlsPart, why: impl fmt::Display) -> BadTls {
    BadTls { part, why: why.to_string() }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls(authority: {}, client: {})", self.authority.is_some(), self.client.is_some())
    }
}

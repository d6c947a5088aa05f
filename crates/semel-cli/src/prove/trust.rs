//! Whom an https:// address is believed: the machine's authorities, and one that a flag names.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore};

use super::target::Target;
use crate::exit::Failure;

/// The authorities that may vouch for a server.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Those of `--ca`, beside the machine's.
    named: Vec<CertificateDer<'static>>,
}

/// What it takes to speak TLS with one server.
#[derive(Clone)]
pub(crate) struct Secure {
    pub(crate) connector: TlsConnector,
    pub(crate) name: ServerName<'static>,
}

impl std::fmt::Debug for Secure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secure").field("name", &self.name).finish_non_exhaustive()
    }
}

/// More than all the authorities of a machine take.
const MOST: u64 = 4 << 20;

impl Trust {
    /// The machine's authorities and those of the PEM file, which is read at once.
    ///
    /// # Errors
    /// Usage: a file that cannot be read, or that has no certificate in it.
    pub fn with(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(file) = file else { return Ok(Self::default()) };
        let shown = file.display();
        let read = semel_gateway::named::read(file, MOST);
        let pem = read.map_err(|error| Failure::usage(format!("--ca: cannot read {shown}: {error}")))?;
        let wrong = |_: pem::Error| {
            Failure::usage(format!("--ca: {shown} is no PEM file; an authority's begins -----BEGIN CERTIFICATE-----"))
        };
        let named: Vec<_> = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(wrong)?;
        let mut roots = RootCertStore::empty();
        if named.is_empty() {
            return Err(Failure::usage(format!("--ca: there is no certificate in {shown}")));
        }
        for certificate in &named {
            let refused = |error| Failure::usage(format!("--ca: a certificate in {shown} cannot be used: {error}"));
            roots.add(certificate.clone()).map_err(refused)?;
        }
        Ok(Self { named })
    }

    /// For a target of https://; `None` for another. Reads the machine's authorities.
    pub(crate) fn secure(&self, target: &Target) -> Result<Option<Secure>, String> {
        if !target.is_https() {
            return Ok(None);
        }
        let name = ServerName::try_from(target.host().to_owned())
            .map_err(|_| format!("{} is no name that a certificate can have", target.host()))?;
        let mut roots = RootCertStore::empty();
        // What of the machine's list cannot be read or used vouches for nobody; the rest may do.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(self.named.iter().cloned());
        if roots.is_empty() {
            return Err("this machine has no list of authorities that vouch for servers: install ca-certificates, or \
                        name a file with --ca"
                .to_owned());
        }
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = builder
            .map_err(|error| format!("TLS cannot be used: {error}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(Secure { connector: TlsConnector::from(Arc::new(config)), name }))
    }
}

/// Why there is no TLS with a server, in words that follow its address.
pub(crate) fn refusal(error: &std::io::Error) -> String {
    let known = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match known {
        Some(Error::InvalidCertificate(why)) => certificate(why),
        Some(Error::InvalidMessage(_)) => {
            "what answers there does not speak TLS; it may be an http:// address".to_owned()
        }
        Some(other) => format!("no TLS with it: {other}"),
        None => format!("no TLS with it: {error}"),
    }
}

fn certificate(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => {
            "its certificate is of an authority that nobody here trusts: name the authority's file with --ca".to_owned()
        }
        // The name was found, the key was another: somebody made the authority anew.
        CertificateError::BadSignature => {
            "its certificate is of an authority that is not the one of its name that is known here: name its file with --ca"
                .to_owned()
        }
        CertificateError::ExpiredContext { not_after, .. } => {
            format!("its certificate has expired: it was good until {}", date(*not_after))
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            format!("its certificate is not good before {}; see whether this machine's clock is right", date(*not_before))
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let names = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
            format!("its certificate is for {names} and not for {}", expected.to_str())
        }
        CertificateError::Expired => "its certificate has expired, or its dates make no sense".to_owned(),
        // The verifier has no other name for it.
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "its certificate is an authority's own, and no server's: let the authority sign one for the server".to_owned()
        }
        other => format!("its certificate is refused: {other}"),
    }
}

/// `DnsName("a.example")` without its wrapping.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

fn date(at: UnixTime) -> String {
    let at = i64::try_from(at.as_secs()).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    at.map_or_else(|| "another time".to_owned(), |at| at.to_string())
}

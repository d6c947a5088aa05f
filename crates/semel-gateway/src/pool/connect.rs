//! Where an upstream is, and getting there.

use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use http::{HeaderValue, Uri};
use tokio::{net::TcpStream, time::timeout};

use super::{Inner, Link, Payload};

/// Host and port of an upstream. Names are looked up for each new connection, so a moved service is found again.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    host: Arc<str>,
    port: u16,
    header: HeaderValue,
}

impl Address {
    /// Takes `http://host[:port]` apart.
    ///
    /// # Errors
    /// Where the scheme is not `http`, the host is missing, or a path, query or user name is present.
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let uri: Uri = url.parse().map_err(|_| AddressError::Syntax)?;
        match uri.scheme_str() {
            Some("http") => {}
            Some(_) => return Err(AddressError::Scheme),
            None => return Err(AddressError::Syntax),
        }
        let authority = uri.authority().ok_or(AddressError::Syntax)?;
        if authority.as_str().contains('@') {
            return Err(AddressError::User);
        }
        if !matches!(uri.path_and_query().map(http::uri::PathAndQuery::as_str), None | Some("/" | "")) {
            return Err(AddressError::Path);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || (authority.port_u16().is_none() && authority.as_str() != authority.host()) {
            return Err(AddressError::Syntax);
        }
        let header = HeaderValue::from_str(authority.as_str()).map_err(|_| AddressError::Syntax)?;
        Ok(Self { host: host.into(), port: authority.port_u16().unwrap_or(80), header })
    }

    /// What a `Host` header for this upstream says.
    pub fn host_header(&self) -> &HeaderValue {
        &self.header
    }
}

impl From<SocketAddr> for Address {
    fn from(at: SocketAddr) -> Self {
        let header = HeaderValue::from_str(&at.to_string()).unwrap_or(HeaderValue::from_static("upstream"));
        Self { host: at.ip().to_string().into(), port: at.port(), header }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a URL does not name an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AddressError {
    /// Not `http://host[:port]`.
    Syntax,
    /// A scheme other than `http`.
    Scheme,
    /// A path or query; the upstream gets the client's own path.
    Path,
    /// A user name or password.
    User,
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "not an upstream: write http://host:port",
            Self::Scheme => "an upstream is reached over plain http here: write http://host:port",
            Self::Path => "an upstream has no path of its own, requests keep theirs: write http://host:port",
            Self::User => "an upstream URL carries no user name or password: write http://host:port",
        })
    }
}

impl std::error::Error for AddressError {}

/// Why there is no connection. Nothing was sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The name could not be looked up, or stands for no address.
    Resolve(io::Error),
    /// No address answered; the last one's reason.
    Connect(io::Error),
    /// It took longer than the connect time-out.
    Timeout(Duration),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(e) => write!(f, "its name could not be looked up ({e})"),
            Self::Connect(e) => write!(f, "no connection could be made ({e})"),
            Self::Timeout(t) => write!(f, "no connection could be made within {t:?}"),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Resolve(e) | Self::Connect(e) => Some(e),
            Self::Timeout(_) => None,
        }
    }
}

impl<B> Inner<B>
where
    B: Payload,
{
    pub(super) async fn connect(&self) -> Result<Box<Link<B>>, ConnectError> {
        let limit = self.config.connect_timeout;
        let stream = timeout(limit, dial(&self.address)).await.map_err(|_| ConnectError::Timeout(limit))??;
        Link::open(stream, &self.http).await.map_err(|e| ConnectError::Connect(io::Error::other(e)))
    }
}

async fn dial(to: &Address) -> Result<TcpStream, ConnectError> {
    let mut last = None;
    for at in tokio::net::lookup_host((&*to.host, to.port)).await.map_err(ConnectError::Resolve)? {
        match TcpStream::connect(at).await {
            Ok(stream) => {
                // A request is written whole, and its last piece must not wait for an acknowledgement.
                stream.set_nodelay(true).map_err(ConnectError::Connect)?;
                return Ok(stream);
            }
            Err(e) => last = Some(e),
        }
    }
    Err(match last {
        Some(e) => ConnectError::Connect(e),
        None => ConnectError::Resolve(io::Error::new(io::ErrorKind::NotFound, "the name stands for no address")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_scheme_host_and_port_and_nothing_else() {
        assert_eq!(Address::parse("http://orders.internal:3000").unwrap().to_string(), "orders.internal:3000");
        assert_eq!(Address::parse("http://127.0.0.1/").unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(Address::parse("http://[::1]:81").unwrap().to_string(), "[::1]:81");
        assert_eq!(Address::parse("https://orders"), Err(AddressError::Scheme));
        assert_eq!(Address::parse("http://orders/base"), Err(AddressError::Path));
        assert_eq!(Address::parse("http://u:p@orders"), Err(AddressError::User));
        assert_eq!(Address::parse("orders:3000"), Err(AddressError::Syntax));
        assert_eq!(Address::parse("http://orders:99999"), Err(AddressError::Syntax));
    }
}

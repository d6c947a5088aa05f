//! The address a run is fired at.

use std::net::SocketAddr;
use std::str::FromStr;

use http::Uri;

/// An `http://` or `https://` URL taken apart.
#[derive(Clone, Debug)]
pub struct Target {
    /// The URL as given.
    url: String,
    is_https: bool,
    host: String,
    port: u16,
    authority: String,
    path: Uri,
}

impl Target {
    /// The URL as it was given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether it is asked over TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.is_https
    }

    /// A name or an address, without port and brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Host and, if the URL had one, port: the value of the `Host` header.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query: the target of the request line.
    pub fn path(&self) -> &Uri {
        &self.path
    }

    /// The address of what is below its path; its query is left out.
    pub(crate) fn below(&self, path: &str) -> Result<Self, String> {
        let path = format!("{}{path}", self.path.path().trim_end_matches('/'));
        Ok(Self { path: path.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?, ..self.clone() })
    }

    /// All addresses of the host.
    pub(super) async fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        match found.map(Iterator::collect::<Vec<_>>) {
            Ok(addresses) if !addresses.is_empty() => Ok(addresses),
            Ok(_) => Err(format!("{} has no address", self.host)),
            Err(error) => Err(format!("cannot resolve {}: {error}", self.host)),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let begins_with =
            |scheme: &str| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
        let is_https = begins_with("https://");
        if !is_https && !begins_with("http://") {
            return Err("write the whole URL, such as http://127.0.0.1:8080/orders".to_owned());
        }
        let uri = url.parse::<Uri>().map_err(|error| error.to_string())?;
        let authority = uri.authority().ok_or("the URL names no host")?.as_str().to_owned();
        if authority.contains('@') {
            return Err("name and password do not belong into the URL; use --header 'Authorization: …'".to_owned());
        }
        let host = uri.host().unwrap_or_default();
        if host.is_empty() {
            return Err("the URL names no host".to_owned());
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).parse::<Uri>();
        Ok(Self {
            url: url.to_owned(),
            is_https,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if is_https { 443 } else { 80 }),
            authority,
            path: path.map_err(|error| error.to_string())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let target: Target = "http://[::1]:8080/orders?a=1".parse().unwrap();
        assert_eq!((target.host.as_str(), target.port), ("::1", 8080));
        assert_eq!((target.authority(), target.path().to_string().as_str()), ("[::1]:8080", "/orders?a=1"));
        let bare: Target = "http://shop".parse().unwrap();
        assert_eq!((bare.port, bare.is_https, bare.path().to_string().as_str()), (80, false, "/"));
        let safe: Target = "HTTPS://shop/orders".parse().unwrap();
        assert_eq!((safe.port, safe.is_https, safe.authority()), (443, true, "shop"));
    }

    #[test]
    fn half_addresses_are_refused_with_the_way_out() {
        for wrong in [
            "shop:8080/orders",
            "https://",
            "https:/shop",
            "ftp://shop",
            "http://",
            "http://me:secret@shop/",
            "/orders",
        ] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}

//! Where the servers are: the URL.
//!
//! ```text
//! redis://[user:password@]host[:6379][/db]
//! redis+sentinel://[user:password@]host[:26379],host,…/primary[?db=n][&sentinel_user=…&sentinel_password=…]
//! redis+cluster://[user:password@]host[:6379],host,…
//! ```
//!
//! `rediss` instead of `redis` is TLS; `valkey` and `valkeys` are other names of both.

use std::fmt;

use percent_encoding::percent_decode_str;

/// A URL that names no store of this kind, or an option that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadUrl {
    why: String,
}

impl BadUrl {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }
}

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for BadUrl {}

/// One server's place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl Host {
    pub(crate) fn new(name: impl Into<String>, port: u16) -> Self {
        Self { name: name.into(), port }
    }

    /// `host:port`, the host in brackets or bare; `[…]` for IPv6.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Self, BadUrl> {
        let bad = || BadUrl::new(format!("{text:?} is no host with a port"));
        let (name, rest) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(bad)?,
            // A bare IPv6 address with a port, as MOVED writes it: the port is after the last colon.
            None => text.rfind(':').map_or((text, ""), |at| text.split_at(at)),
        };
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| bad())?,
            None if rest.is_empty() => default_port,
            None => return Err(bad()),
        };
        if name.is_empty() || port == 0 { Err(bad()) } else { Ok(Self::new(name, port)) }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// How the servers stand to each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    Alone,
    Sentinel { primary: String, login: Login },
    Cluster,
}

/// Who logs in.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({:?}, {:?})", self.user, self.password.as_ref().map(|_| "…"))
    }
}

/// A parsed URL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) layout: Layout,
    pub(crate) hosts: Vec<Host>,
    pub(crate) db: i64,
    pub(crate) login: Login,
    pub(crate) tls: bool,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, BadUrl> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| unknown_scheme(url))?;
        let (transport, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match transport {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" if cfg!(feature = "tls") => true,
            "rediss" | "valkeys" => {
                return Err(BadUrl::new("this build speaks no TLS: it was made without the feature `tls`"));
            }
            _ => return Err(unknown_scheme(scheme)),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let mut query = Query::read(query)?;
        let default_port = if kind == "sentinel" { 26_379 } else { 6_379 };
        let hosts = hosts.split(',').map(|host| Host::parse(host, default_port)).collect::<Result<Vec<_>, _>>()?;
        let db = |text: Option<&str>| match text {
            None | Some("") => Ok(0),
            Some(n) => n.parse::<u16>().map(i64::from).map_err(|_| BadUrl::new(format!("{n:?} is no database number"))),
        };
        let (layout, db) = match kind {
            "" if hosts.len() > 1 => {
                return Err(BadUrl::new(format!(
                    "several hosts need {transport}+sentinel:// or {transport}+cluster://"
                )));
            }
            "" => (Layout::Alone, db(Some(path))?),
            "sentinel" if path.is_empty() => {
                return Err(BadUrl::new("the name of the primary is missing: …/name, as the Sentinels know it"));
            }
            "sentinel" => {
                let login = Login { user: query.take("sentinel_user"), password: query.take("sentinel_password") };
                (Layout::Sentinel { primary: decoded(path)?, login }, db(query.take("db").as_deref())?)
            }
            "cluster" if !matches!(path, "" | "0") => {
                return Err(BadUrl::new("a Cluster has no other database than 0"));
            }
            "cluster" => (Layout::Cluster, 0),
            _ => return Err(unknown_scheme(scheme)),
        };
        query.nothing_left()?;
        Ok(Self { layout, hosts, db, login: login_of(login)?, tls })
    }
}

fn unknown_scheme(scheme: &str) -> BadUrl {
    let scheme: String = scheme.chars().take(40).collect();
    BadUrl::new(format!(
        "{scheme:?} is not one of redis://, redis+sentinel://, redis+cluster:// (rediss for TLS; valkey is the same)"
    ))
}

fn decoded(text: &str) -> Result<String, BadUrl> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| BadUrl::new("a part of the URL is no UTF-8"))
}

fn login_of(text: &str) -> Result<Login, BadUrl> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let part = |text: &str| if text.is_empty() { Ok(None) } else { decoded(text).map(Some) };
    let login = Login { user: part(user)?, password: part(password)? };
    if login.user.is_some() && login.password.is_none() {
        return Err(BadUrl::new("a user without a password: write user:password@host, or :password@host"));
    }
    Ok(login)
}

/// What stands after the question mark.
struct Query(Vec<(String, String)>);

impl Query {
    fn read(text: &str) -> Result<Self, BadUrl> {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((name.to_owned(), decoded(value)?))
        };
        text.split('&').filter(|pair| !pair.is_empty()).map(pair).collect::<Result<_, _>>().map(Self)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(n, _)| n == name)?;
        Some(self.0.remove(at).1)
    }

    fn nothing_left(&self) -> Result<(), BadUrl> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(BadUrl::new(format!("{name:?} is no parameter of such a URL"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server() {
        let address = Address::parse("redis://127.0.0.1:7000/3").unwrap();
        assert_eq!(address.hosts, [Host::new("127.0.0.1", 7000)]);
        assert_eq!((address.layout, address.db, address.tls), (Layout::Alone, 3, false));
        assert_eq!(Address::parse("valkey://db.example").unwrap().hosts, [Host::new("db.example", 6379)]);
        assert_eq!(Address::parse("redis://[::1]:7").unwrap().hosts, [Host::new("::1", 7)]);
    }

    #[test]
    fn sentinels() {
        let url = "redis+sentinel://app:s%40cret@a,b:5/orders?db=2&sentinel_password=x";
        let address = Address::parse(url).unwrap();
        assert_eq!(address.hosts, [Host::new("a", 26_379), Host::new("b", 5)]);
        let login = Login { user: Some("app".to_owned()), password: Some("s@cret".to_owned()) };
        assert_eq!((address.login, address.db), (login, 2));
        let login = Login { user: None, password: Some("x".to_owned()) };
        assert_eq!(address.layout, Layout::Sentinel { primary: "orders".to_owned(), login });
    }

    #[test]
    fn a_cluster() {
        let address = Address::parse("redis+cluster://:pw@a:1,b:2,c").unwrap();
        assert_eq!((address.layout, address.hosts.len(), address.tls), (Layout::Cluster, 3, false));
        assert_eq!(address.login.password.as_deref(), Some("pw"));
    }

    #[test]
    fn tls_is_there_or_refused() {
        for url in ["rediss://a", "valkeys://a", "rediss+sentinel://a/b", "rediss+cluster://a"] {
            assert_eq!(Address::parse(url).is_ok_and(|address| address.tls), cfg!(feature = "tls"), "{url}");
        }
    }

    #[test]
    fn what_names_no_store_is_refused_with_a_reason() {
        for (bad, reason) in [
            ("localhost", "not one of"),
            ("postgres://a", "not one of"),
            ("redis+star://a", "not one of"),
            ("redis://a,b", "several hosts"),
            ("redis://a:x", "no host"),
            ("redis://", "no host"),
            ("redis://a/orders", "database number"),
            ("redis+sentinel://a", "name of the primary"),
            ("redis+cluster://a/2", "database"),
            ("redis://a?timeout=3", "parameter"),
            ("redis://user@a", "without a password"),
        ] {
            let error = Address::parse(bad).unwrap_err().to_string();
            assert!(error.contains(reason), "{bad}: {error}");
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        let address = Address::parse("redis://app:hunter2@a").unwrap();
        assert!(!format!("{address:?}").contains("hunter2"));
    }
}

//! Which store: its address, shown without its password.

use std::fmt;
use std::path::PathBuf;

use super::read::{Fault, Node, Read, text};

/// Which store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreUrl {
    /// In the memory of this process; gone when it ends.
    Memory,
    /// On disk, in this directory, for one process.
    Embedded(PathBuf),
    /// On a server that any number of gateways share.
    Shared(SharedUrl),
}

/// The address of a server that gateways share. Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedUrl {
    server: Server,
    url: String,
}

/// What kind of server it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// Redis or Valkey: alone, behind Sentinel, or a Cluster.
    Redis,
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB.
    MySql,
}

impl SharedUrl {
    fn parse(server: Server, url: &str) -> Result<Self, Fault> {
        let example = match server {
            Server::Redis => "\"redis://127.0.0.1:6379\"",
            Server::Postgres => "\"postgres://user@127.0.0.1/semel\"",
            Server::MySql => "\"mysql://user@127.0.0.1/semel\"",
        };
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let host = rest.split(['/', '?']).next().unwrap_or_default();
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        if host.is_empty() {
            // What is wrong may be a password.
            return Err(Fault::new("names no host").why("it is a server's address").fix(example));
        }
        Ok(Self { server, url: url.to_owned() })
    }

    /// The address with `password`, which it does not have itself.
    #[must_use]
    pub fn and_password(&self, password: &str) -> String {
        const KEPT: &percent_encoding::AsciiSet =
            &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
        let word = percent_encoding::utf8_percent_encode(password, KEPT);
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        match rest.split_once('@') {
            Some((user, hosts)) => format!("{scheme}://{user}:{word}@{hosts}"),
            None => format!("{scheme}://:{word}@{rest}"),
        }
    }

    /// Whether there is a password in it.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.to_string() != self.url
    }

    /// What kind of server.
    #[must_use]
    pub fn server(&self) -> Server {
        self.server
    }

    /// Whether it asks for TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        let scheme = self.url.split_once(':').map_or("", |(scheme, _)| scheme);
        let asks = ["sslmode=require", "sslmode=verify", "ssl-mode=REQUIRED", "ssl-mode=VERIFY"];
        scheme.starts_with("rediss") || scheme == "valkeys" || asks.iter().any(|asked| self.url.contains(asked))
    }

    /// The address with its password: for the client that connects, and for nothing that is shown.
    #[must_use]
    pub fn with_password(&self) -> &str {
        &self.url
    }
}

impl fmt::Display for SharedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let (address, query) = match rest.split_once('?') {
            Some((address, query)) if address.contains('@') || !query.contains('@') || names_port(address) => {
                (address, query)
            }
            _ => (rest, ""),
        };
        write!(f, "{scheme}://")?;
        // The last one: a password that was not written as a URL wants it may have such signs in it.
        match address.rsplit_once('@') {
            Some((user, hosts)) => match user.split_once(':') {
                Some((name, _)) => write!(f, "{name}:***@{hosts}")?,
                None => write!(f, "{user}@{hosts}")?,
            },
            None => f.write_str(address)?,
        }
        let mut between = '?';
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split('=').next().unwrap_or_default();
            match name.contains("pass") {
                true => write!(f, "{between}{name}=***")?,
                false => write!(f, "{between}{pair}")?,
            }
            between = '&';
        }
        Ok(())
    }
}

/// Whether `host:5432/…` ends its host with a port. What else stands there may be the beginning of a password.
fn names_port(address: &str) -> bool {
    let host = address.split('/').next().unwrap_or_default();
    host.rsplit_once(':').is_none_or(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
}

impl fmt::Debug for SharedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedUrl({self})")
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Embedded(dir) => write!(f, "embedded:{}", dir.display()),
            Self::Shared(url) => url.fmt(f),
        }
    }
}

const CHOICES: &str = "\"embedded:DIR\", \"memory\", or the address of a server that gateways share: \"redis://…\", \
                       \"redis+sentinel://…\", \"redis+cluster://…\", \"postgres://…\", \"mysql://…\"";

/// The directory of the embedded store where none is named.
pub(super) const DATA_DIR: &str = "semel-data";

impl StoreUrl {
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        match scheme {
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "embedded" if rest.is_empty() => Ok(Self::Embedded(DATA_DIR.into())),
            "embedded" => Ok(Self::Embedded(rest.strip_prefix("//").unwrap_or(rest).into())),
            "redis" | "rediss" | "valkey" | "valkeys" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
            | "rediss+cluster" => SharedUrl::parse(Server::Redis, text).map(Self::Shared),
            "postgres" | "postgresql" => SharedUrl::parse(Server::Postgres, text).map(Self::Shared),
            "mysql" | "mariadb" => SharedUrl::parse(Server::MySql, text).map(Self::Shared),
            _ => {
                // The rest may hold a password.
                let rest = if rest.is_empty() { "" } else { ":…" };
                Err(Fault::new(format!("is no store: `{scheme}{rest}`")).fix(CHOICES))
            }
        }
    }
}

impl Read for SharedUrl {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        const EXAMPLE: &str = "\"postgres://user@127.0.0.1/semel\"";
        match StoreUrl::parse(text(node, "a server's address", EXAMPLE)?)? {
            StoreUrl::Shared(url) => Ok(url),
            StoreUrl::Memory | StoreUrl::Embedded(_) => Err(Fault::new("is no server's address").fix(EXAMPLE)),
        }
    }
}

impl Read for StoreUrl {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        Self::parse(text(node, "a store", CHOICES)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(text: &str) -> SharedUrl {
        match StoreUrl::parse(text) {
            Ok(StoreUrl::Shared(url)) => url,
            _ => panic!("{text} is a server's address"),
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for (text, shown) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://:p@ss@h/1", "redis://:***@h/1"),
            ("rediss+cluster://ada:secret@a:1,b:2", "rediss+cluster://ada:***@a:1,b:2"),
            (
                "postgres://ada:secret@h/db?sslmode=require&password=secret",
                "postgres://ada:***@h/db?sslmode=require&password=***",
            ),
            ("mysql://ada@h/db", "mysql://ada@h/db"),
            ("postgres://ada:a/secret@h/db", "postgres://ada:***@h/db"),
            ("postgres://ada:a?secret@h/db", "postgres://ada:***@h/db"),
            ("postgres://h:5432/db?application_name=a@b", "postgres://h:5432/db?application_name=a@b"),
        ] {
            let url = shared(text);
            assert_eq!(url.to_string(), shown);
            assert!(!format!("{url:?}").contains("secret"));
            assert_eq!(url.has_password(), text != shown, "{text}");
        }
    }

    #[test]
    fn a_password_of_a_file_is_put_where_it_belongs() {
        assert_eq!(shared("postgres://ada@h/db").and_password("a b/@:"), "postgres://ada:a%20b%2F%40%3A@h/db");
        assert_eq!(shared("redis://h:1").and_password("word"), "redis://:word@h:1");
    }

    #[test]
    fn the_kind_of_server_follows_from_the_scheme() {
        for (text, server) in [
            ("redis://h", Server::Redis),
            ("valkeys://h", Server::Redis),
            ("redis+sentinel://a:1,b:2/main", Server::Redis),
            ("postgresql://h/db", Server::Postgres),
            ("mariadb://h/db", Server::MySql),
        ] {
            assert_eq!(shared(text).server(), server);
        }
    }
}

//! From a URL to what the driver wants, and whether a transaction pooler is behind it.

use std::time::Duration;

use sqlx::{
    ConnectOptions, Connection, PgConnection, Row,
    postgres::{PgConnectOptions, PgRow},
};

use crate::{ConnectError, url_options::refuse_unknown};

/// What may stand behind the question mark.
const OPTIONS: &[&str] = &[
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "options[",
];

/// How often two connections are asked which session they have.
const LOOKS: usize = 4;

/// What the driver needs, from a URL.
pub(super) fn parse(url: &str) -> Result<PgConnectOptions, ConnectError> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(ConnectError::Url { why: "it begins with `postgres://user@host:port/database`".into() });
    }
    refuse_unknown(url, OPTIONS).map_err(|why| ConnectError::Url { why })?;
    let options: PgConnectOptions = url.parse().map_err(|error| ConnectError::Url { why: format!("{error}") })?;
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("semel"),
    };
    // Poolers refuse this parameter, and no statement here has a float.
    Ok(options.extra_float_digits(None).disable_statement_logging())
}

/// The server for people; never its user's password.
pub(super) fn server(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or(options.get_username());
    match options.get_socket() {
        Some(socket) => format!("{}/{database}", socket.display()),
        None => format!("{}:{}/{database}", options.get_host(), options.get_port()),
    }
}

/// A connection, within `time`.
pub(super) async fn open(options: &PgConnectOptions, time: Duration) -> Result<PgConnection, ConnectError> {
    let unreachable = |source| ConnectError::Unreachable { server: server(options), source };
    match tokio::time::timeout(time, PgConnection::connect_with(options)).await {
        Ok(connection) => connection.map_err(unreachable),
        Err(_) => Err(unreachable(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))),
    }
}

/// Whether sessions change between transactions: two connections share one, or one sees another.
pub(super) async fn is_pooled(one: &mut PgConnection, other: &mut PgConnection) -> sqlx::Result<bool> {
    let first = (session(one).await?, session(other).await?);
    let mut moved = first.0 == first.1;
    for _ in 0..LOOKS {
        moved |= (session(one).await?, session(other).await?) != first;
    }
    Ok(moved)
}

/// The server's own number of a session.
pub(super) async fn session(connection: &mut PgConnection) -> sqlx::Result<i32> {
    let rows: Vec<PgRow> = sqlx::raw_sql("SELECT pg_backend_pid()").fetch_all(connection).await?;
    rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_named_without_its_password() {
        let options = parse("postgres://me:hidden@db.example:5433/shop").unwrap();
        assert_eq!(server(&options), "db.example:5433/shop");
        assert_eq!(server(&parse("postgresql://me@db.example").unwrap()), "db.example:5432/me");
    }

    #[test]
    fn what_is_no_url_is_refused_without_showing_it() {
        for url in ["mysql://me:hidden@db/shop", "postgres://me:hidden@db:port/shop", "hidden"] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.starts_with("the store's URL cannot be read") && !error.contains("hidden"), "{error}");
        }
    }
}

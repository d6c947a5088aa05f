//! TLS to a database: with the authority that vouches for the server, and not without; and a URL that says so in other words
//! than the driver's is refused, since what it asks for would not take place.

use std::sync::Arc;

use semel_core::env::Env;
use semel_sql::{ConnectError, MySqlStore, Options, PostgresStore};
use semel_testkit::servers::{Authority, MariaDb, Postgres};

#[track_caller]
fn refused<T: std::fmt::Debug>(opened: Result<T, ConnectError>, words: &str) {
    let error = opened.expect_err("nobody vouches for it");
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(words), "{error}");
}

async fn postgres(url: &str) -> Result<PostgresStore, ConnectError> {
    PostgresStore::connect(url, &Env::system(), Options::default()).await
}

#[tokio::test]
async fn a_postgres_is_believed_only_with_its_authority_and_its_name() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let certificate = authority.certify("server", "DNS:localhost");
    let plain = Postgres::start().await;
    let server = Postgres::start_tls(&certificate.pem, &certificate.key).await;
    PostgresStore::migrate(&server.url(), &Options::default()).await.unwrap();
    let at = |host: &str, server: &Postgres, options: &str| server.url().replace("127.0.0.1", host) + "?" + options;
    let (ca, other) = (authority.pem().display().to_string(), other.pem().display().to_string());

    let verified = postgres(&at("localhost", &server, &format!("sslmode=verify-full&sslrootcert={ca}"))).await.unwrap();
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE ssl AND application_name = 'semel'";
    assert_ne!(server.sql(encrypted), "0");
    drop(verified);
    postgres(&at("127.0.0.1", &server, &format!("sslmode=verify-ca&sslrootcert={ca}"))).await.unwrap();
    postgres(&at("127.0.0.1", &server, "sslmode=require")).await.unwrap();

    let wrong_host = at("127.0.0.1", &server, &format!("sslmode=verify-full&sslrootcert={ca}"));
    refused(postgres(&wrong_host).await, "not valid for name");
    let wrong_authority = at("localhost", &server, &format!("sslmode=verify-full&sslrootcert={other}"));
    refused(postgres(&wrong_authority).await, "UnknownIssuer");
    refused(postgres(&at("localhost", &server, "sslmode=verify-full")).await, "UnknownIssuer");
    // A server without TLS, to someone who wants it.
    refused(postgres(&at("127.0.0.1", &plain, "sslmode=require")).await, "TLS");
}

async fn mariadb(url: &str) -> Result<MySqlStore, ConnectError> {
    MySqlStore::connect(url, &Env::system(), Options::default()).await
}

#[tokio::test]
async fn a_mariadb_is_believed_only_with_its_authority_and_its_name() {
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let certificate = authority.certify("server", "DNS:localhost");
    let option = |name: &str, file: &std::path::Path| format!("--{name}={}", file.display());
    let options =
        [option("ssl-cert", &certificate.pem), option("ssl-key", &certificate.key), option("ssl-ca", &authority.pem())];
    let server = Arc::new(MariaDb::start_with(&options.each_ref().map(String::as_str)).await);
    let place = crate::mysql::place::Place::blank(Arc::clone(&server)).await;
    MySqlStore::migrate(&place.url(), &Options::default()).await.unwrap();
    let at = |host: &str, options: &str| place.url().replace("127.0.0.1", host) + "?" + options;
    let (ca, other) = (authority.pem().display().to_string(), other.pem().display().to_string());

    place.run(&format!("CREATE USER shy REQUIRE SSL; GRANT ALL ON {}.* TO shy", place.database)).await;
    let shy = |host: &str, options: &str| at(host, options).replace("root@", "shy@");
    let identity = format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={ca}");
    mariadb(&shy("localhost", &identity)).await.unwrap();
    mariadb(&shy("127.0.0.1", &format!("ssl-mode=VERIFY_CA&ssl-ca={ca}"))).await.unwrap();
    mariadb(&shy("127.0.0.1", "ssl-mode=REQUIRED")).await.unwrap();

    refused(mariadb(&shy("127.0.0.1", &identity)).await, "not valid for name");
    refused(mariadb(&shy("localhost", &format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={other}"))).await, "UnknownIssuer");
    refused(mariadb(&shy("localhost", "ssl-mode=VERIFY_IDENTITY")).await, "UnknownIssuer");
    refused(mariadb(&shy("127.0.0.1", "ssl-mode=DISABLED")).await, "Access denied");
    let plain = MariaDb::shared().await;
    let plain = crate::mysql::place::Place::blank(plain).await;
    refused(mariadb(&(plain.url() + "?ssl-mode=REQUIRED")).await, "TLS");
}

#[tokio::test]
async fn an_option_that_nobody_knows_is_refused_by_its_name() {
    let said = |error: ConnectError| {
        assert!(matches!(error, ConnectError::Url { .. }), "{error:?}");
        error.to_string()
    };
    // Nobody listens there, and nobody is asked.
    let said_by_postgres =
        said(postgres("postgres://u@127.0.0.1:1/db?sslmod=verify-full&token=hush").await.unwrap_err());
    assert!(
        said_by_postgres.contains("`sslmod`, `token`") && said_by_postgres.contains("sslmode"),
        "{said_by_postgres}"
    );
    let said_by_mysql = said(mariadb("mysql://u@127.0.0.1:1/db?sslrootcert=hush&time-zone=UTC").await.unwrap_err());
    assert!(
        said_by_mysql.contains("`sslrootcert`, `time-zone`") && said_by_mysql.contains("ssl-ca"),
        "{said_by_mysql}"
    );
    for words in [said_by_postgres, said_by_mysql] {
        assert!(!words.contains("hush"), "{words}");
    }
    for mode in ["postgres://u@127.0.0.1:1/db?sslmode=always", "postgres://u@127.0.0.1:1/db?sslmode="] {
        assert!(said(postgres(mode).await.unwrap_err()).contains("ssl_mode"));
    }
}

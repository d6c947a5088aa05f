//! TLS: with the authority that vouches for the server, and not without.

use semel_core::{env::Env, store::Store};
use semel_redis::{ConnectError, Options, RedisStore};
use semel_testkit::servers::{
    Authority,
    redis::{Redis, Setup},
};

use crate::questions::{about, done, granted, stands};

#[tokio::test]
async fn a_server_is_believed_only_with_its_authority_and_its_name() {
    let authority = Authority::new("authority");
    let certificate = authority.certify("server", "DNS:localhost");
    let setup = Setup::new().tls(&certificate.pem, &certificate.key, &authority.pem());
    let server = Redis::start(&setup.set("user", "app on >s3cret ~* &* +@all")).await;
    let open = async |host: &str, authority: Option<Vec<u8>>| {
        let mut options = Options::default();
        (options.user, options.password) = (Some("app".to_owned()), Some("s3cret".to_owned()));
        options.tls.authority = authority;
        RedisStore::connect(&format!("rediss://{host}:{}", server.tls_port()), &Env::system(), options).await
    };
    let authority = std::fs::read(authority.pem()).expect("it was made");
    let store = open("localhost", Some(authority.clone())).await.expect("it opens");
    let claim = granted(store.claim(&about(1)).await);
    stands(store.settle(&claim, &done()).await);
    for (host, authority) in [("localhost", None), ("127.0.0.1", Some(authority))] {
        let refused = open(host, authority).await.expect_err("nobody vouches for it");
        assert!(matches!(refused, ConnectError::Unavailable(_)), "{refused}");
    }
}

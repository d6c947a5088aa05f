//! TLS: with the authority that vouches for the server, and not without.

use std::{path::Path, process::Command};

use semel_core::{env::Env, store::Store};
use semel_redis::{ConnectError, Options, RedisStore};
use semel_testkit::servers::redis::{Redis, Setup};

use crate::questions::{about, done, granted, stands};

fn openssl(folder: &Path, args: &str) {
    let mut command = Command::new("openssl");
    let done = command.args(args.split(' ')).current_dir(folder).output().expect("openssl is there");
    assert!(done.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&done.stderr));
}

/// An authority, and a certificate of its for `localhost`.
fn certificates(folder: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(folder, &format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
    openssl(folder, &format!("req {key} -keyout server.key -out server.csr -subj /CN=localhost"));
    std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").expect("the folder can be written");
    let sign = "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2";
    openssl(folder, &format!("{sign} -extfile names"));
}

#[tokio::test]
async fn a_server_is_believed_only_with_its_authority_and_its_name() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    certificates(folder.path());
    let file = |name: &str| folder.path().join(name);
    let setup = Setup::new().tls(&file("server.pem"), &file("server.key"), &file("ca.pem"));
    let server = Redis::start(&setup.set("user", "app on >s3cret ~* &* +@all")).await;
    let open = async |host: &str, authority: Option<Vec<u8>>| {
        let mut options = Options::default();
        (options.user, options.password) = (Some("app".to_owned()), Some("s3cret".to_owned()));
        options.tls.authority = authority;
        RedisStore::connect(&format!("rediss://{host}:{}", server.tls_port()), &Env::system(), options).await
    };
    let authority = std::fs::read(file("ca.pem")).expect("it was made");
    let store = open("localhost", Some(authority.clone())).await.expect("it opens");
    let claim = granted(store.claim(&about(1)).await);
    stands(store.settle(&claim, &done()).await);
    for (host, authority) in [("localhost", None), ("127.0.0.1", Some(authority))] {
        let refused = open(host, authority).await.expect_err("nobody vouches for it");
        assert!(matches!(refused, ConnectError::Unavailable(_)), "{refused}");
    }
}

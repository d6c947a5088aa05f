//! TLS: with the authority that vouches for the server, and not without; with a certificate of this side where the server
//! asks for one; and under Sentinel and in a Cluster, where everybody logs in as a user of his own.

use std::path::Path;

use semel_core::{
    env::Env,
    record::StateCode,
    store::{Claimed, Store},
};
use semel_redis::{ConnectError, Options, RedisStore, Tls, TlsPart};
use semel_testkit::servers::{
    Authority,
    redis::{Cluster, Redis, Sentinels, Setup},
};

use crate::{
    beds::connect_with,
    questions::{about, done, granted, id, stands},
    recover::at_last,
    users::documented,
};

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
    let authority = bytes(&authority.pem());
    let store = open("localhost", Some(authority.clone())).await.expect("it opens");
    let claim = granted(store.claim(&about(1)).await);
    stands(store.settle(&claim, &done()).await);
    for (host, authority, cure) in
        [("localhost", None, "tls.authority"), ("127.0.0.1", Some(authority), "for other names")]
    {
        let refused = open(host, authority).await.expect_err("nobody vouches for it");
        assert!(matches!(refused, ConnectError::Unavailable(_)), "{refused}");
        assert!(refused.cure().is_some_and(|told| told.contains(cure)), "{refused}: {:?}", refused.cure());
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("it was made")
}

/// An authority, servers that ask for its certificates, and a client that has one.
struct Trusting {
    authority: Authority,
    setup: Setup,
    options: Options,
}

fn trusting() -> Trusting {
    let authority = Authority::new("authority");
    let server = authority.certify("server", "DNS:localhost,IP:127.0.0.1");
    let client = authority.certify("client", "DNS:semel");
    let setup = Setup::new().mutual_tls(&server.pem, &server.key, &authority.pem());
    let mut options = Options::default();
    options.tls.authority = Some(bytes(&authority.pem()));
    options.tls.client = Some((bytes(&client.pem), bytes(&client.key)));
    Trusting { authority, setup, options }
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_it() {
    let Trusting { authority: _authority, setup, options } = trusting();
    let server = Redis::start(&setup).await;
    let url = format!("rediss://localhost:{}", server.tls_port());
    let store = connect_with(&url, options.clone()).await;
    let claim = granted(store.claim(&about(1)).await);
    stands(store.settle(&claim, &done()).await);

    let strangers = Authority::new("authority");
    let stranger = strangers.certify("client", "DNS:semel");
    for client in [None, Some((bytes(&stranger.pem), bytes(&stranger.key)))] {
        let mut options = options.clone();
        options.tls.client = client;
        let refused = RedisStore::connect(&url, &Env::system(), options).await.expect_err("it has no such certificate");
        assert!(matches!(refused, ConnectError::Unavailable(_)), "{refused}");
    }
}

#[tokio::test]
async fn a_text_that_is_no_certificate_or_key_is_named() {
    let authority = Authority::new("authority");
    let (one, other) = (authority.certify("one", "DNS:one"), authority.certify("other", "DNS:other"));
    let torn = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
    let (pem, key) = (bytes(&one.pem), bytes(&one.key));
    for (ca, client, part, why) in [
        (Some(Vec::new()), None, TlsPart::Authority, "no certificate"),
        (Some(key.clone()), None, TlsPart::Authority, "no certificate"),
        (Some(torn.clone()), None, TlsPart::Authority, ""),
        (None, Some((key.clone(), key.clone())), TlsPart::Certificate, "no certificate"),
        (None, Some((torn, key)), TlsPart::Certificate, ""),
        (None, Some((pem.clone(), pem.clone())), TlsPart::Key, "no private key"),
        (None, Some((pem, bytes(&other.key))), TlsPart::Key, "another certificate"),
    ] {
        let mut options = Options::default();
        options.tls = Tls::default();
        (options.tls.authority, options.tls.client) = (ca, client);
        // Nobody listens there, and nobody is asked.
        match RedisStore::connect("rediss://localhost:1", &Env::system(), options).await {
            Err(ConnectError::Tls(bad)) => assert!(bad.part == part && bad.why.contains(why), "{bad:?}"),
            other => panic!("{part:?} cannot be used: {other:?}"),
        }
    }
}

/// With users of their own for the store, for Sentinels, and for replicas.
fn with_users(setup: Setup) -> Setup {
    setup
        .set("user", &format!("app on >app-word resetchannels {}", documented()))
        .set("user", "watch on >watch-word allchannels ~* +@all")
        .set("user", "follow on >follow-word +psync +replconf +ping")
        .set("masteruser", "follow")
        .set("masterauth", "follow-word")
}

/// Who is logged in.
async fn users(server: &Redis) -> Vec<String> {
    let said = server.tell(&["CLIENT", "LIST"]).await.text();
    let user = |line: &str| line.split(' ').find_map(|word| word.strip_prefix("user=")).map(str::to_owned);
    said.lines().filter_map(user).collect()
}

#[tokio::test]
async fn under_sentinel_everybody_speaks_tls_and_logs_in_also_after_a_failover() {
    let Trusting { authority: _authority, setup, options } = trusting();
    let sentinels = "sentinel auth-user semel watch\nsentinel auth-pass semel watch-word\nuser ask on >ask-word \
                     resetchannels &+switch-master +sentinel|get-master-addr-by-name +sentinel|master +subscribe +hello +ping\n";
    let set = Sentinels::start_with(&with_users(setup), sentinels).await;
    let url = |word: &str| format!("{}?sentinel_user=ask&sentinel_password={word}", set.tls_url("app:app-word@"));
    let store = connect_with(&url("ask-word"), options.clone()).await;
    let claim = granted(store.claim(&about(1)).await);
    stands(store.settle(&claim, &done()).await);
    let there = users(&set.servers[0]).await;
    for user in ["app", "watch", "follow"] {
        assert!(there.iter().any(|logged_in| logged_in == user), "{user} is not among {there:?}");
    }

    set.caught_up().await;
    set.fail_over().await;
    match at_last(async || store.claim(&about(1)).await).await {
        Claimed::Found { record: Some(record), .. } => assert_eq!(record.state, StateCode::Done),
        other => panic!("the replica had it: {other:?}"),
    }
    let claim = granted(Ok(at_last(async || store.claim(&about(2)).await).await));
    stands(Ok(at_last(async || store.settle(&claim, &done()).await).await));

    let refused = RedisStore::connect(&url("wrong"), &Env::system(), options).await.expect_err("no Sentinel knows it");
    assert!(refused.is_refused_login(), "{refused}");
}

#[tokio::test]
async fn in_a_cluster_everybody_speaks_tls_and_logs_in_also_after_a_failover() {
    let Trusting { authority: _authority, setup, options } = trusting();
    let cluster = Cluster::start(&with_users(setup)).await;
    let store = connect_with(&cluster.tls_url("app:app-word@"), options).await;
    for n in 0..30 {
        let claim = granted(Ok(at_last(async || store.claim(&about(n)).await).await));
        stands(Ok(at_last(async || store.settle(&claim, &done()).await).await));
    }
    for master in &cluster.nodes[..3] {
        let there = users(master).await;
        assert!(there.iter().any(|user| user == "app") && there.iter().any(|user| user == "follow"), "{there:?}");
    }
    cluster.settled().await;
    cluster.fail_over_to(3).await;
    for n in 0..30 {
        let seen = at_last(async || store.get(&id(n)).await).await;
        assert!(seen.record.is_some_and(|record| record.state == StateCode::Done), "{n}");
    }
    assert!(users(&cluster.nodes[3]).await.iter().any(|user| user == "app"), "nobody came to the new master");
}

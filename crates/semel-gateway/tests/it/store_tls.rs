//! A Redis behind TLS with an authority of its own, which also asks for a certificate: the file could name neither.

use semel_gateway::wiring::StartError;
use semel_testkit::servers::{
    Authority,
    redis::{Redis, Setup},
};

use crate::{
    entire::{connect, keyed, try_entire},
    peers::{Upstream, status},
};

const RULE: &str = "[principal]\nshared = true\n[[rule]]\nname = \"submit\"\nmatch = \"POST /orders\"\n";

#[tokio::test]
async fn a_redis_is_believed_and_believes_by_the_files_that_are_named() {
    let authority = Authority::new("authority");
    let server = authority.certify("server", "DNS:localhost");
    let client = authority.certify("client", "DNS:semel");
    let other = authority.certify("other", "DNS:semel");
    let redis = Redis::start(&Setup::new().mutual_tls(&server.pem, &server.key, &authority.pem())).await;
    let upstream = Upstream::start(|_, mut wire| async move {
        while wire.head().await.is_some() {
            wire.body(1).await;
            wire.answer("201 Created", "done").await;
        }
    })
    .await;
    let url = format!("rediss://localhost:{}", redis.tls_port());
    let start = async |files: &[(&str, &std::path::Path)]| {
        let files: String = files.iter().map(|(name, file)| format!("\"\ntls.{name} = \"{}", file.display())).collect();
        try_entire(&format!("{url}{files}"), upstream.address, RULE).await
    };
    let ca = authority.pem();

    let gateway = start(&[("authority", &ca), ("certificate", &client.pem), ("key", &client.key)]).await.unwrap();
    let mut wire = connect(&gateway).await;
    wire.send(keyed("k", "x")).await;
    assert_eq!(status(&wire.head().await.unwrap()), 201);
    gateway.stop().await;

    let nowhere = client.pem.with_file_name("nowhere.pem");
    let pair = [("certificate", &*client.pem), ("key", &*client.key)];
    for (files, words) in [
        (pair.to_vec(), vec![&*url, "cannot be trusted", "UnknownIssuer", "tls.authority"]),
        (vec![("authority", &*nowhere)], vec!["nowhere.pem cannot be used for TLS", "No such file"]),
        (vec![("authority", &*client.key)], vec!["client.key cannot be used for TLS", "no certificate in it"]),
        (
            vec![("authority", &*ca), ("certificate", &*client.pem), ("key", &*other.key)],
            vec!["other.key cannot be used for TLS", "another certificate"],
        ),
    ] {
        let refused = start(&files).await.err().unwrap();
        assert!(matches!(refused, StartError::Store(_)), "{refused:?}");
        for word in words {
            assert!(refused.to_string().contains(word), "{word} is missing: {refused}");
        }
    }
}

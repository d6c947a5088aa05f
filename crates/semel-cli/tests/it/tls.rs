//! https:// addresses: whose certificates are believed, and what is said of the others.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use semel_testkit::servers::{Authority, Certificate};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::endpoints::Endpoint;
use crate::semel::{Ended, run};
use crate::through::{Field, RULE, flat};

const NAMES: &str = "DNS:localhost,IP:127.0.0.1";

/// The TLS end of a way; gone when dropped.
struct TlsEnd {
    port: u16,
    _task: JoinSet<()>,
}

impl TlsEnd {
    async fn before(behind: SocketAddr, certificate: &Certificate) -> Self {
        let chain = vec![CertificateDer::from_pem_file(&certificate.pem).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_file(&certificate.key).expect("a key");
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        let config = builder.with_single_cert(chain, key).expect("a certificate and its key");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut streams = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                streams.spawn(async move {
                    // Whoever does not believe the certificate goes away.
                    let Ok(mut inside) = acceptor.accept(stream).await else { return };
                    let mut outside = TcpStream::connect(behind).await.expect("somebody is there");
                    _ = copy_bidirectional(&mut inside, &mut outside).await;
                });
            }
        });
        Self { port, _task: task }
    }

    fn url(&self, host: &str, path: &str) -> String {
        format!("https://{host}:{}{path}", self.port)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// `semel prove` with two copies at an address with a certificate of `authority`.
async fn prove(url: &str, ca: Option<&Path>) -> Ended {
    let more = ca.map(|ca| ["--ca", text(ca)]);
    let args = ["prove", url, "--json", "--concurrency=2", "--ramp=0", "--timeout=10s"];
    run(&[&args[..], more.as_ref().map_or(&[], |more| &more[..])].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_goes_through_a_tls_end_whose_authority_is_named() {
    let field = Field::of("memory").await;
    let gateway = field.gateway(RULE);
    let authority = Authority::new("edge");
    let ca = authority.pem();
    let end = TlsEnd::before(gateway.http, &authority.certify("edge", NAMES)).await;
    for host in ["localhost", "127.0.0.1"] {
        let url = end.url(host, "/api");
        let args = ["--through", &url, "--header", "X-User: ada", "--ca", text(&ca)];
        let ended = field.doctor(&args).await;
        let said = flat(&ended.out);
        assert!(said.contains("24 copies of one request through one gateway had one effect"), "{said}");
        assert!(said.contains(&format!("requests to {url} reach a gateway as they were sent")), "{said}");
    }
    let ended = field.doctor(&["--through", &end.url("localhost", "")]).await;
    let said = flat(&ended.out);
    assert!(ended.code == 1 && said.contains("an authority that nobody here trusts"), "{said}");
    assert!(said.contains("name the authority's file with --ca"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prove_and_its_count_speak_tls() {
    let shop = Endpoint::start().await;
    let authority = Authority::new("edge");
    let ca = authority.pem();
    let end = TlsEnd::before(shop.address(), &authority.certify("shop", NAMES)).await;
    let (url, count) = (end.url("localhost", "/safe"), end.url("127.0.0.1", "/count"));
    let args = ["prove", &url, "--count-url", &count, "--json", "--ramp=0", "--ca", text(&ca)];
    let ended = run(&args).await;
    assert_eq!((ended.code, ended.json()["verdict"].as_str()), (0, Some("safe")), "{ended:?}");
    assert_eq!(ended.json()["effects"]["per_round"], serde_json::json!([1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_believed_is_told_with_its_reason() {
    let shop = Endpoint::start().await;
    let (authority, other, namesake) = (Authority::new("shop"), Authority::new("other"), Authority::new("shop"));
    let good = TlsEnd::before(shop.address(), &authority.certify("good", NAMES)).await;
    let expired = TlsEnd::before(shop.address(), &authority.certify_past("expired", NAMES)).await;
    let elsewhere = TlsEnd::before(shop.address(), &authority.certify("other", "DNS:a.example,IP:10.0.0.1")).await;
    let signed_by_nobody = TlsEnd::before(shop.address(), &authority.itself()).await;
    let ca = authority.pem();
    for (end, ca, words) in [
        (&good, None, "an authority that nobody here trusts"),
        (&good, Some(&*other.pem()), "an authority that nobody here trusts"),
        (&good, Some(&*namesake.pem()), "an authority that is not the one of its name that is known here"),
        (&signed_by_nobody, Some(&*ca), "its certificate is an authority's own"),
        (&expired, Some(&*ca), "its certificate has expired: it was good until 2020-01-02T00:00:00Z"),
        (&elsewhere, Some(&*ca), "its certificate is for a.example, 10.0.0.1 and not for localhost"),
    ] {
        let ended = prove(&end.url("localhost", "/safe"), ca).await;
        assert!(ended.code == 3 && flat(&ended.err).contains(words), "{words}: {ended:?}");
    }
    assert_eq!(shop.effects(), 0);
    // http:// written https://.
    let ended = prove(&shop.url("/safe").replace("http://", "https://"), Some(&ca)).await;
    assert!(ended.code == 3 && ended.err.contains("does not speak TLS; it may be an http:// address"), "{ended:?}");
}

#[tokio::test]
async fn a_file_of_an_authority_that_is_none_is_refused_before_anything_is_sent() {
    let folder = tempfile::TempDir::new().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (path, words) in [
        (folder.path().join("nowhere.pem"), "--ca: cannot read "),
        (file("empty.pem", "nothing\n"), "--ca: there is no certificate in "),
        (file("broken.pem", broken), "cannot be used: "),
        (file("garbled.pem", "-----BEGIN CERTIFICATE-----\n"), "is no PEM file"),
    ] {
        let ended = prove("https://localhost:1/orders", Some(&path)).await;
        assert!(ended.code == 2 && flat(&ended.err).contains(words), "{words}: {ended:?}");
    }
}

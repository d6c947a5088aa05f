//! `semel doctor --through`: what a way to the gateways does to requests, and whether the gateways behind it are one.

use semel_testkit::servers::redis::{Redis, Setup as RedisSetup};
use tempfile::TempDir;

use crate::endpoints::Endpoint;
use crate::meddler::{At503, Meddle, Meddler};
use crate::semel::{Ended, command, run_command};
use crate::system::gateway::{Gateway, Setup};

const PRINCIPAL: &str = "[principal]\nheader = \"X-User\"\n";
pub(crate) const RULE: &str = "[[rule]]\nname = \"submit\"\nmatch = \"POST /orders\"\nretry_id = [\"X-Request-Id\"]\n";

/// Gateways of one configuration, and the file of whoever looks at them.
pub(crate) struct Field {
    dir: TempDir,
    upstream: Endpoint,
    store: String,
}

impl Field {
    pub(crate) async fn of(store: &str) -> Self {
        let (dir, upstream) = (TempDir::new().expect("a directory"), Endpoint::start().await);
        std::fs::write(dir.path().join("secret"), "a secret of sixteen bytes").expect("a file");
        Self { dir, upstream, store: store.to_owned() }
    }

    pub(crate) fn gateway(&self, rules: &str) -> Gateway {
        let setup = Setup::new(&self.upstream.url(""), &self.store).with(PRINCIPAL).with(rules);
        setup.top(&format!("secret_file = \"{}\"\n", self.dir.path().join("secret").display())).start()
    }

    pub(crate) async fn doctor(&self, args: &[&str]) -> Ended {
        let secret = self.dir.path().join("secret");
        let text = format!(
            "secret_file = \"{}\"\n[upstream.shop]\nurls = [\"{}\"]\n[store]\nurl = \"{}\"\n{PRINCIPAL}{RULE}",
            secret.display(),
            self.upstream.url(""),
            self.store
        );
        std::fs::write(self.dir.path().join("semel.toml"), text).expect("a file");
        let mut command = command(&[&["doctor"], args].concat());
        command.current_dir(self.dir.path());
        run_command(command).await
    }

    /// What a look through a proxy before one gateway finds.
    async fn through(request: Meddle, answer: Meddle, at_503: At503) -> (i32, String) {
        let field = Self::of("memory").await;
        let gateway = field.gateway(RULE);
        let proxy = Meddler::before(gateway.http, request, answer, at_503).await;
        let url = format!("http://{}/api", proxy.address);
        let ended = field.doctor(&["--through", &url, "--header", "X-User: ada"]).await;
        (ended.code, flat(&ended.out))
    }
}

pub(crate) fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn as_it_is(text: &str) -> String {
    text.to_owned()
}

/// Without the field that begins so.
fn without(text: &str, field: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.to_lowercase().starts_with(field)).collect()
}

#[tokio::test]
async fn gateways_on_one_store_run_copies_once_and_their_service_sees_none() {
    let redis = Redis::start(&RedisSetup::new().keeps()).await;
    let field = Field::of(&redis.url()).await;
    let (one, other) = (field.gateway(RULE), field.gateway(RULE));
    let urls = [format!("http://{}", one.http), format!("http://{}", other.http)];
    let ended = field.doctor(&["--through", &urls[0], "--through", &urls[1], "--header", "X-User: ada"]).await;
    let said = flat(&ended.out);
    assert!(said.contains("48 copies of one request through 2 gateways had one effect"), "{said}");
    for url in &urls {
        assert!(said.contains(&format!("requests to {url} reach a gateway as they were sent")), "{said}");
    }
    assert!(said.contains("the clocks of this machine, the gateways and their store agree"), "{said}");
    assert!(!said.contains("error through") && !said.contains("warning through"), "{said}");
    // A request that nobody guards is counted: the service got none.
    let metrics = one.admin_get("/metrics").await.text();
    assert!(metrics.contains("semel_unguarded_total{rule=\"\",why=\"no-rule\"} 0"), "{metrics}");
}

#[tokio::test]
async fn gateways_with_a_store_each_or_other_rules_are_found() {
    let field = Field::of("memory").await;
    let (one, other) = (field.gateway(RULE), field.gateway(&RULE.replace("/orders", "/order")));
    let urls = [format!("http://{}", one.http), format!("http://{}", other.http)];
    let ended = field.doctor(&["--through", &urls[0], "--through", &urls[1]]).await;
    let said = flat(&ended.out);
    assert_eq!(ended.code, 1, "{said}");
    assert!(said.contains("48 copies of one request ran 2 times: "), "{said}");
    assert!(said.contains("give all gateways of a service one shared store"), "{said}");
    assert!(said.contains("the gateways have different rules"), "{said}");
}

#[tokio::test]
async fn a_gateway_with_another_secret_tells_nothing_but_that() {
    let field = Field::of("memory").await;
    let gateway = field.gateway(RULE);
    std::fs::write(field.dir.path().join("secret"), "another secret of sixteen bytes").expect("a file");
    let ended = field.doctor(&["--through", &format!("http://{}", gateway.http)]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let said = flat(&ended.out);
    assert!(said.contains("has another secret than the one at hand here"), "{said}");
    assert!(!said.contains("copies"), "{said}");
}

#[tokio::test]
async fn the_secret_of_a_memory_store_has_to_be_configured() {
    let upstream = Endpoint::start().await;
    let args = ["doctor", "--upstream", &upstream.url(""), "--store", "memory", "--through", "http://127.0.0.1:1"];
    let ended = crate::semel::run(&args).await;
    let said = flat(&ended.out);
    assert!(ended.code == 1 && said.contains("give the gateways a secret_file"), "{ended:?}");
}

#[tokio::test]
async fn what_stands_there_and_is_no_gateway_is_told() {
    let field = Field::of("memory").await;
    let ended = field.doctor(&["--through", &field.upstream.url("/orders")]).await;
    let said = flat(&ended.out);
    assert!(said.contains("no gateway answered at") && said.contains("404"), "{said}");
    let nobody = crate::endpoints::nobody().await;
    let ended = field.doctor(&["--through", &nobody]).await;
    assert!(flat(&ended.out).contains(&format!("no answer from {nobody}: cannot connect")), "{ended:?}");
}

#[tokio::test]
async fn a_client_that_can_say_who_it_is_is_found() {
    let field = Field::of("memory").await;
    let gateway = field.gateway(RULE);
    let ended = field.doctor(&["--through", &format!("http://{}", gateway.http)]).await;
    let said = flat(&ended.out);
    assert!(ended.code == 1 && said.contains("a client can say who it is: the gateway got x-user"), "{said}");
}

#[tokio::test]
async fn a_proxy_that_drops_or_rewrites_is_found() {
    let (code, said) = Field::through(|asked| without(asked, "idempotency-key"), as_it_is, At503::Pass).await;
    assert!(code == 1 && said.contains("something on the way drops idempotency-key"), "{said}");
    let rewrites = |asked: &str| asked.replace("semel-key-", "semel-kez-").replace("semel-request-", "edge-id-");
    let (code, said) = Field::through(rewrites, as_it_is, At503::Pass).await;
    assert!(code == 1 && said.contains("something on the way rewrites idempotency-key"), "{said}");
    assert!(said.contains("something on the way drops or rewrites x-request-id"), "{said}");
    let (code, said) = Field::through(|asked| asked.replace("\"b\": 1.0", "\"b\": 1.1"), as_it_is, At503::Pass).await;
    assert!(code == 1 && said.contains("something on the way rewrites bodies"), "{said}");
    let (code, said) = Field::through(as_it_is, |said| without(said, "idempotency-status"), At503::Pass).await;
    assert!(code == 1 && said.contains("takes idempotency-status out of answers"), "{said}");
    let (code, said) = Field::through(|asked| without(asked, "semel-probe"), as_it_is, At503::Pass).await;
    assert!(code == 1 && said.contains("takes the field Semel-Probe away"), "{said}");
}

#[tokio::test]
async fn a_path_that_is_rewritten_and_a_proxy_that_retries_are_worth_knowing() {
    let (code, said) =
        Field::through(|asked| asked.replacen("POST /api/", "POST /v1/", 1), as_it_is, At503::SendAgain).await;
    assert!(said.contains("/api arrives as /v1"), "{said}");
    assert!(said.contains("sends a request again when it is answered with 503"), "{said}");
    assert!(!said.contains("warning through") && !said.contains("error through"), "{code}: {said}");
    let (code, said) = Field::through(as_it_is, as_it_is, At503::OwnPage).await;
    assert!(code == 1 && said.contains("puts an answer of its own in the place of a 503"), "{said}");
}

/// Its advice was to write a secret into the directory, which the gateway then refused to take for a store.
#[tokio::test]
async fn away_from_the_store_nobody_is_told_to_write_its_secret() {
    let (dir, upstream) = (tempfile::TempDir::new().expect("a directory"), Endpoint::start().await);
    let mut doctor = command(&["doctor", "--upstream", &upstream.url(""), "--through", "http://127.0.0.1:1"]);
    doctor.current_dir(dir.path());
    let ended = run_command(doctor).await;
    let said = flat(&ended.out);
    assert!(said.contains("the store's own secret in semel-data/secret cannot be used"), "{said}");
    assert!(
        said.contains("on the gateway's machine with its -c or --data-dir, or give all of them a secret_file"),
        "{said}"
    );
    assert!(!said.contains("random bytes") && !dir.path().join("semel-data").exists(), "{said}");
}

//! What is guarded, what passes, what is refused at the door.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::{HeaderName, Method, Request, header};
use semel_core::{
    engine::{Engine, Limits},
    env::Env,
    identity::Secret,
    record::{Rest, StateCode},
    store::{Capacity, Filter, MemoryStore, StoreAdmin},
};
use semel_http::{GuardLayer, MissingKey, RequestView, Rule, Rules, principal};
use tower::{Layer, service_fn};

use crate::support::*;

/// A service that answers with what it sees of the guard.
fn mirror(engine: &Engine, rule: semel_http::RuleBuilder) -> impl Guarded + use<> {
    guard(engine, rule, |request: Ask| async move {
        let seen = |name: &str| request.headers().get(name).map_or("-", |v| v.to_str().unwrap()).to_owned();
        let run = request.extensions().get::<semel_core::engine::Run>().is_some();
        let names = ["semel-identity", "semel-fence", "semel-attempt", "idempotency-key"];
        answer(200, format!("{} {run}", names.map(seen).join(" ")))
    })
}

#[tokio::test]
async fn a_quoted_and_a_bare_key_are_one_and_bad_keys_are_refused() {
    let engine = Engine::memory();
    let service = mirror(&engine, rule());
    assert_eq!(send(&service, post("k", "x")).await.became(), "fresh");
    for same in ["\"k\"", " k ", "k;v=1", "\"k\";v=\"2\""] {
        assert_eq!(send(&service, post(same, "x")).await.became(), "replayed", "{same}");
    }
    assert_eq!(send(&service, post("k", "x").with("idempotency-key", "\"k\"")).await.became(), "replayed");
    let long = ["k".repeat(300), "k".repeat(10_000)];
    for bad in ["", " ", "\"\"", "a,b", "a b", "\"k", &long[0], &long[1]] {
        let got = send(&service, post(bad, "x")).await;
        assert_eq!((got.status.as_u16(), got.problem()), (400, "key-invalid".to_owned()), "{bad}");
    }
    let mut binary = post("k", "x");
    binary.headers_mut().insert("idempotency-key", http::HeaderValue::from_bytes("schlüssel".as_bytes()).unwrap());
    assert_eq!(send(&service, binary).await.problem(), "key-invalid");
    assert_eq!(send(&service, post("k", "x").with("idempotency-key", "other")).await.problem(), "key-invalid");
}

/// Metrics count what the guard refuses; a request without an identity was once refused without anybody hearing of it.
#[tokio::test]
async fn what_is_turned_away_at_the_door_is_told_to_observers() {
    let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let env = semel_core::env::Env::system();
    let store = semel_core::store::MemoryStore::new(&env, semel_core::store::Capacity::default());
    let secret = semel_core::identity::Secret::random(&*env.rng);
    let observer = move |event: &semel_core::observe::Event<'_>| {
        if let semel_core::observe::What::TurnedAway(problem) = event.what {
            heard.lock().push((event.rule.to_owned(), problem));
        }
    };
    let engine = Engine::builder(Arc::new(store), secret).env(env).observe(Arc::new(observer)).build();
    let small = semel_http::Caps { request: 10, ..semel_http::Caps::default() };
    let service = mirror(&engine, rule().named("orders").caps(small));
    send(&service, Request::post("/orders").body(Body::empty()).unwrap()).await;
    send(&service, post("", "x")).await;
    send(&service, post("k", "more than ten bytes")).await;
    send(&service, post("k", Body::from_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("0123456789ab")]))))
        .await;
    send(&service, post("k", "fine")).await;
    let orders = |problem| ("orders".to_owned(), problem);
    let expected = ["key-missing", "key-invalid", "request-too-large", "request-too-large"].map(orders);
    assert_eq!(*told.lock(), expected);
}

/// The lines of the log.
#[derive(Clone, Default)]
struct Lines(Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// From now on, of this thread.
    fn heard(&self) -> tracing::subscriber::DefaultGuard {
        let lines = self.clone();
        let plain = tracing_subscriber::fmt().with_ansi(false).without_time().with_target(false);
        tracing::subscriber::set_default(plain.with_writer(move || lines.clone()).finish())
    }

    fn taken(&self) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock())).unwrap();
        text.lines().map(|line| line.trim_start().to_owned()).collect()
    }
}

/// A layer cannot see its neighbours: whoever stands in the wrong order gets 403 for every request, and nothing but this
/// line says why.
#[tokio::test(start_paused = true)]
async fn a_missing_principal_is_refused_with_a_line_that_names_the_order_once_in_a_while() {
    let lines = Lines::default();
    let _heard = lines.heard();
    let engine = semel_core::testing::engine();
    let header = principal::trusted_header(http::HeaderName::from_static("x-user"));
    let extension = principal::extension(|user: &u64| {
        semel_core::identity::Principal::new(semel_core::identity::PrincipalKind::Subject, user.to_string())
    });
    let rule = |name: &str| semel_http::Rule::key().named(name);
    let by_header = mirror(&engine, rule("orders").principal(header));
    let by_extension = mirror(&engine, rule("refunds").principal(extension));
    for _ in 0..3 {
        for got in [send(&by_header, post("k", "x")).await, send(&by_extension, post("k", "x")).await] {
            assert_eq!((got.status.as_u16(), got.problem()), (403, "principal-missing".to_owned()));
        }
    }
    let proxy =
        "the request names no principal: the proxy in front must set x-user once on each request; refused with 403";
    let layer =
        "the request names no principal: authentication must run before the guard and leave it; refused with 403";
    assert_eq!(
        lines.taken(),
        [format!("WARN {proxy} rule=\"orders\" withheld=0"), format!("WARN {layer} rule=\"refunds\" withheld=0"),]
    );
    tokio::time::advance(std::time::Duration::from_secs(61)).await;
    let doubled = post("k", "x").with("x-user", "a").with("x-user", "b");
    assert_eq!(send(&by_header, doubled).await.problem(), "principal-missing");
    let twice = proxy.replace("no principal", "more than one principal");
    assert_eq!(lines.taken(), [format!("WARN {twice} rule=\"orders\" withheld=2")]);
    assert_eq!(send(&by_header, post("k", "x").with("x-user", "a")).await.became(), "fresh");
    assert_eq!(lines.taken(), [] as [String; 0]);
}

#[tokio::test]
async fn a_missing_key_is_refused_or_passes_as_the_rule_says() {
    let engine = Engine::memory();
    let bare = |method| Request::builder().method(method).uri("/orders").body(Body::empty()).unwrap();
    let required = mirror(&engine, rule());
    for method in [Method::POST, Method::PATCH] {
        assert_eq!(send(&required, bare(method)).await.problem(), "key-missing");
    }
    for method in [Method::PUT, Method::DELETE] {
        assert_eq!(send(&required, bare(method)).await.became(), "bypassed");
    }
    let optional = mirror(&engine, rule().missing(MissingKey::Optional));
    let got = send(&optional, bare(Method::POST)).await;
    assert_eq!((got.status.as_u16(), got.became(), &*got.body), (200, "bypassed", &b"- - - - false"[..]));
}

/// `post` is a method of its own, and a service that writes methods in capitals takes it for POST.
#[tokio::test]
async fn a_method_in_small_letters_does_not_pass_where_it_would_not_in_capitals() {
    let engine = Engine::memory();
    let one = mirror(&engine, rule());
    let orders = Arc::new(rule().named("orders").build().unwrap());
    let inner = service_fn(|_: Ask| async { Ok::<_, std::convert::Infallible>(answer(200, "")) });
    // As a file has it: a rule for one method, found by it alone.
    let found = GuardLayer::routed(engine.clone(), move |request: &RequestView<'_>| {
        (request.method == Method::POST && request.uri.path() == "/orders").then(|| Arc::clone(&orders))
    })
    .layer(inner);
    let ask = |method: &str, path: &str, key: bool| {
        let mut request = post("k", "x");
        if !key {
            request.headers_mut().remove("idempotency-key");
        }
        *request.method_mut() = method.parse().unwrap();
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    for method in ["post", "pOST", "Post", "POSt"] {
        let bare = send(&one, ask(method, "/orders", false)).await;
        assert_eq!((bare.status.as_u16(), bare.problem(), bare.became()), (400, "bad-request".to_owned(), "rejected"));
        for key in [false, true] {
            let got = send(&found, ask(method, "/orders", key)).await;
            assert_eq!((got.status.as_u16(), got.problem()), (400, "bad-request".to_owned()), "{method} {key}");
            let got = send(&found, ask(method, "/other", key)).await;
            assert_eq!(got.status, 200, "{method} {key}");
        }
    }
    // In capitals these pass, too.
    for method in ["get", "connect", "delete", "purge"] {
        assert_eq!(send(&one, ask(method, "/orders", false)).await.became(), "bypassed", "{method}");
        assert_eq!(send(&found, ask(method, "/orders", false)).await.status, 200, "{method}");
    }
}

#[tokio::test]
async fn the_service_sees_the_grant_and_never_what_a_client_made_up() {
    let engine = Engine::memory();
    let service = mirror(&engine, rule().service("orders"));
    let forged = |request: Request<Body>| {
        request.with("semel-identity", "forged").with("semel-fence", "9").with("semel-attempt", "9")
    };
    let got = send(&service, forged(post("\"k\"", "x"))).await;
    let body = String::from_utf8(got.body.to_vec()).unwrap();
    let seen: Vec<&str> = body.split(' ').collect();
    let identity: semel_core::identity::Identity = seen[0].parse().unwrap();
    assert_eq!(identity.namespace().as_str(), "layer:orders");
    assert!(seen[1].parse::<u64>().unwrap() > 0);
    assert_eq!(&seen[2..], ["1", "\"k\"", "true"]);
    let mut read = forged(post("k", ""));
    *read.method_mut() = Method::GET;
    let got = send(&service, read).await;
    assert_eq!((got.became(), &*got.body), ("", &b"- - - k false"[..]));
}

/// Fields that a service, or a gateway behind this one, would take for the gateway's.
#[tokio::test]
async fn no_field_of_ours_that_a_client_made_up_reaches_the_service() {
    let ours = ["semel-identity", "semel-fence", "semel-attempt", "semel-unguarded", "semel-probe", "semel-outcome"];
    let service = guard(&Engine::memory(), rule(), |request: Ask| async move {
        let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
        let seen: Vec<_> = request.headers().values().map(text).filter(|value| value == "forged").collect();
        answer(200, format!("{}", seen.len()))
    });
    // A service that sees its fields as CGI variables cannot tell these two from each other.
    let alike = ["semel_identity", "semel_fence", "semel-fence_", "semel_unguarded", "semel-of-a-later-version"];
    for name in ours.into_iter().chain(alike) {
        for method in [Method::POST, Method::GET] {
            let mut request = post(name, "").with(name, "forged").with(name, "forged");
            *request.method_mut() = method;
            assert_eq!(send(&service, request).await.body, "0", "{name}");
        }
    }
}

#[tokio::test]
async fn safe_methods_and_connect_pass_and_an_offer_to_upgrade_is_no_way_around() {
    let (engine, effects) = (Engine::memory(), Effects::default());
    let counted = effects.clone();
    let service = guard(&engine, rule(), move |request: Ask| {
        counted.happen();
        let upgrade = request.headers().contains_key(header::UPGRADE);
        async move { answer(200, format!("{upgrade}")) }
    });
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::CONNECT] {
        let before = effects.count();
        for _ in 0..2 {
            let mut request = post("k", "").with("upgrade", "websocket");
            *request.method_mut() = method.clone();
            let got = send(&service, request).await;
            assert_eq!((got.became(), &*got.body), ("", &b"true"[..]), "{method}");
        }
        assert_eq!(effects.count(), before + 2);
    }
    let before = effects.count();
    let offer = || post("k", "").with("connection", "upgrade").with("upgrade", "h2c");
    assert_eq!((send(&service, offer()).await.became(), effects.count()), ("fresh", before + 1));
    let again = send(&service, offer()).await;
    assert_eq!((again.became(), &*again.body, effects.count()), ("replayed", &b"false"[..], before + 1));
}

#[tokio::test]
async fn the_rule_is_found_for_each_request_and_none_lets_it_pass() {
    let engine = Engine::memory();
    let rule = Arc::new(rule().named("orders").build().unwrap());
    let inner = service_fn(|_: Ask| async { Ok::<_, std::convert::Infallible>(answer(200, "")) });
    let service = GuardLayer::routed(engine, move |request: &RequestView<'_>| {
        request.uri.path().starts_with("/orders").then(|| Arc::clone(&rule))
    })
    .layer(inner);
    let to = |path: &str| {
        let mut request = post("k", "x");
        *request.uri_mut() = path.parse().unwrap();
        request
    };
    // Its key is kept by nobody, and it is told so.
    assert_eq!(send(&service, to("/other")).await.became(), "bypassed");
    assert_eq!(send(&service, to("/other")).await.became(), "bypassed");
    let mut bare = to("/other");
    bare.headers_mut().remove("idempotency-key");
    assert_eq!(send(&service, bare).await.became(), "");
    assert_eq!(send(&service, to("/orders")).await.became(), "fresh");
    assert_eq!(send(&service, to("/orders")).await.became(), "replayed");
}

#[tokio::test]
async fn a_proxy_finds_the_run_in_the_body_alone() {
    let engine = Engine::memory();
    let rule = Arc::new(rule().named("orders").build().unwrap());
    let inner = service_fn(|request: Ask| async move {
        let run = request.body().run().map(|run| run.attempt());
        let extension = request.extensions().get::<semel_core::engine::Run>().is_some();
        Ok::<_, std::convert::Infallible>(answer(200, format!("{run:?} {extension}")))
    });
    let service = GuardLayer::proxied(engine, move |_: &RequestView<'_>| Some(Arc::clone(&rule))).layer(inner);
    assert_eq!(&*send(&service, post("k", "x")).await.body, b"Some(1) false");
    let unguarded = Request::get("/orders").body(Body::empty()).unwrap();
    assert_eq!(&*send(&service, unguarded).await.body, b"None false");
}

#[tokio::test]
async fn a_refusal_carries_the_trace_and_the_form_that_was_asked_for() {
    let engine = Engine::memory();
    let service = mirror(&engine, rule());
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let got = send(&service, post("", "x").with("traceparent", trace)).await;
    let document: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
    assert_eq!(document["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(document["detail"], "The key is empty.");
    assert_eq!(got.header("content-type"), "application/problem+json");
    let text = send(&service, post("", "x").with("accept", "text/plain")).await;
    assert_eq!((text.header("content-type"), &*text.body), ("text/plain; charset=utf-8", &b"The key is empty.\n"[..]));
}

#[tokio::test]
async fn a_rule_without_a_principal_is_not_built() {
    let why = semel_http::Rule::key().build().unwrap_err().to_string();
    assert!(why.contains("trusted_header") && why.contains("shared"), "{why}");
    assert!(semel_http::Rule::key().principal(principal::shared()).build().is_ok());
}

/// A rule that is found by the path as it stands, and known by another spelling of it.
struct Spelled(Arc<Rule>);

impl Rules for Spelled {
    fn find(&self, request: &RequestView<'_>) -> Option<Arc<Rule>> {
        (request.uri.path() == "/orders").then(|| Arc::clone(&self.0))
    }

    fn otherwise(&self, request: &RequestView<'_>) -> Option<Arc<Rule>> {
        (request.uri.path() == "/%6Frders").then(|| Arc::clone(&self.0))
    }
}

#[tokio::test]
async fn what_another_spelling_would_guard_does_not_pass() {
    let inner = service_fn(|_: Ask| async { Ok::<_, std::convert::Infallible>(answer(200, "")) });
    let rules = Spelled(Arc::new(rule().build().unwrap()));
    let service = GuardLayer::routed(Engine::memory(), rules).layer(inner);
    for (path, status, problem) in [("/%6Frders", 400, "bad-request"), ("/other", 200, ""), ("/orders", 200, "")] {
        let mut request = post("k", "x");
        *request.uri_mut() = path.parse().unwrap();
        let got = send(&service, request).await;
        assert_eq!((got.status.as_u16(), got.problem()), (status, problem.to_owned()), "{path}");
    }
}

/// The engine bounds what one caller runs at once, and its record says whose it is and which key it had.
#[tokio::test]
async fn the_engine_knows_whose_request_it_is_and_under_which_key() {
    let env = Env::system();
    let store = Arc::new(MemoryStore::new(&env, Capacity::default()));
    let limits = Limits { running_per_scope: 1, ..Limits::default() };
    let engine = Engine::builder(store.clone(), Secret::random(&*env.rng)).env(env).limits(limits).build();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let hold = Arc::clone(&gate);
    let by_user = Rule::key().principal(principal::trusted_header(HeaderName::from_static("x-user")));
    let service = guard(&engine, by_user, move |_| {
        let hold = Arc::clone(&hold);
        async move {
            drop(hold.acquire().await);
            answer(201, "")
        }
    });
    let from = |key: &str, user: &str| post(key, "x").with("x-user", user);
    let begun = |request| {
        let service = service.clone();
        #[expect(clippy::disallowed_methods, reason = "clients of the test, not work of the library")]
        tokio::spawn(async move { send(&service, request).await })
    };
    let first = begun(from("order-4711-a", "alice"));
    until("it runs", || engine.load().running == 1).await;
    let second = tokio::time::timeout(Duration::from_secs(20), send(&service, from("order-4711-b", "alice"))).await;
    assert_eq!(second.expect("it does not run").problem(), "too-many-running");
    let other = begun(from("order-4711-a", "bob"));
    until("the other's runs", || engine.load().running == 2).await;
    gate.add_permits(2);
    for run in [first, other] {
        assert_eq!(run.await.unwrap().became(), "fresh");
    }
    let page = store.list(&Filter { state: Some(StateCode::Done), ..Filter::default() }, None, 10).await.unwrap();
    assert_eq!(page.entries.len(), 2);
    for entry in page.entries {
        let rest = Rest::read(&entry.record.rest).unwrap();
        assert!(rest.meta.key.starts_with("or") && rest.meta.key != "order-4711-a", "{}", rest.meta.key);
    }
}

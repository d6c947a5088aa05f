//! Where the guard stands among other layers, and why.
//!
//! `cargo run -p semel-http --example layer_order`
//!
//! A hundred copies of one order go through limits, authentication, the guard, an operation log and a handler. The
//! handler runs once and the operation log has one line: a duplicate is the guard's event, never a line of the business.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{
    Extension, Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::StatusCode,
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::post,
};
use semel_core::{
    engine::Engine,
    identity::{Principal, PrincipalKind},
};
use semel_http::{GuardLayer, Rule, principal};
use tower::{ServiceExt, limit::ConcurrencyLimitLayer};

/// Who calls, as the authentication layer found out.
#[derive(Clone)]
struct User(String);

/// The business's log: one line for each operation that was carried out.
#[derive(Clone, Default)]
struct OperationLog(Arc<tokio::sync::Mutex<Vec<String>>>);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::memory();
    let log = OperationLog::default();
    let orders = Arc::new(AtomicU32::new(0));
    let app = app(&engine, &log, &orders)?;

    let mut copies = Vec::new();
    for _ in 0..100 {
        let request = Request::post("/orders").header("authorization", "Bearer alice").header("idempotency-key", "42");
        let asking = app.clone().oneshot(request.body(Body::from("one tea"))?);
        #[expect(clippy::disallowed_methods, reason = "a hundred clients")]
        copies.push(tokio::spawn(asking));
    }
    let mut became: HashMap<String, u32> = HashMap::new();
    for copy in copies {
        let answer = copy.await?.unwrap_or_else(|never: Infallible| match never {});
        assert_eq!(answer.status(), StatusCode::CREATED);
        let status = answer.headers()["idempotency-status"].to_str()?.to_owned();
        *became.entry(status).or_default() += 1;
        assert_eq!(to_bytes(answer.into_body(), 1 << 10).await?, "order 1");
    }
    // A caller whom authentication refuses never reaches the guard, whatever the key.
    let stranger = Request::post("/orders").header("idempotency-key", "42").body(Body::from("one tea"))?;
    assert_eq!(app.oneshot(stranger).await?.status(), StatusCode::UNAUTHORIZED);

    let lines = log.0.lock().await;
    assert_eq!(orders.load(Ordering::SeqCst), 1, "one effect");
    assert_eq!(lines.as_slice(), ["alice: POST /orders → 201"], "one line in the operation log");
    #[expect(clippy::print_stdout, reason = "the example shows its result")]
    {
        println!("100 copies became {became:?}");
        println!("operation log: {lines:?}");
    }
    // Work whose caller has left comes to its end before the process does.
    engine.drain(Duration::from_secs(10)).await;
    Ok(())
}

/// With axum, the layer that is added last runs first: read from the bottom.
fn app(engine: &Engine, log: &OperationLog, orders: &Arc<AtomicU32>) -> Result<Router, semel_http::RuleError> {
    let who = principal::extension(|user: &User| Principal::new(PrincipalKind::Subject, user.0.clone()));
    let rule = Rule::key().payment().named("create-order").service("orders").principal(who).build()?;
    Ok(Router::new()
        .route("/orders", post(create))
        .with_state(Arc::clone(orders))
        // Behind the guard: a replay is no operation.
        .layer(from_fn_with_state(log.clone(), operation_log))
        // Behind authentication: keys belong to a verified caller, and a replay passes the same checks as a fresh call.
        .layer(GuardLayer::new(engine.clone(), rule))
        // In front of the guard: who is refused here claims nothing.
        .layer(from_fn(authenticate))
        // In front of everything: what is too much costs least here.
        .layer(ConcurrencyLimitLayer::new(1_000)))
}

async fn create(State(orders): State<Arc<AtomicU32>>) -> impl IntoResponse {
    tokio::time::sleep(Duration::from_millis(50)).await; // a slow effect, so that copies meet it
    let n = orders.fetch_add(1, Ordering::SeqCst) + 1;
    (StatusCode::CREATED, format!("order {n}"))
}

async fn operation_log(
    State(log): State<OperationLog>,
    Extension(user): Extension<User>,
    request: Request,
    next: Next,
) -> Response {
    let what = format!("{}: {} {}", user.0, request.method(), request.uri().path());
    let answer = next.run(request).await;
    log.0.lock().await.push(format!("{what} → {}", answer.status().as_u16()));
    answer
}

async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get("authorization").and_then(|v| v.to_str().ok());
    let Some(user) = token.and_then(|t| t.strip_prefix("Bearer ")) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let user = User(user.to_owned());
    request.extensions_mut().insert(user);
    next.run(request).await
}

#[test]
fn a_hundred_copies_leave_one_line_in_the_operation_log() {
    main().unwrap();
}

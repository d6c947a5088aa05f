//! What the demo lets you see: the same two loads without and with Semel, then how to go on.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};

use super::{Gateway, Service};
use crate::exit::{Exit, Failure};
use crate::prove::answer::Class;
use crate::prove::effects::Naming;
use crate::prove::key;
use crate::prove::load::{Request, Start, Tick, volley};
use crate::prove::sheet::Sheet;
use crate::prove::{Place, Target, Trust};
use crate::term::Look;

const ORDER: &str = r#"{"item":"book","qty":1}"#;
const STORM: u64 = 100;
/// Between the two clicks of a double click.
const CLICKS: Duration = Duration::from_millis(60);
/// The copies of the storm come within this time.
const GUST: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(30);

pub(super) fn introduce(
    service: &Service,
    gateway: &Gateway,
    database: &Path,
    out: &mut impl Write,
    look: Look,
) -> std::io::Result<()> {
    writeln!(out, "{}", look.strong("Semel demo"))?;
    let words = "An order service with a database. It takes 150 ms per order and has nothing against duplicates.";
    writeln!(out, "{}", look.wrap(words, 0))?;
    writeln!(out)?;
    writeln!(out, "  order service  http://{}", service.address())?;
    writeln!(out, "  behind Semel   http://{}", gateway.http)?;
    writeln!(out, "  database       {}", database.display())?;
    writeln!(out)
}

/// Fires the four loads; [`Exit::Clean`] if each of those through Semel left one order.
pub(super) async fn perform(
    service: &Service,
    gateway: &Gateway,
    out: &mut impl Write,
    look: Look,
) -> Result<Exit, Failure> {
    let heading = format!("{:<16}{:>10}{:>8}  answers", "one order, sent", "requests", "orders");
    writeln!(out, "{}", look.strong(&heading))?;
    let mut exit = Exit::Clean;
    for (title, address, guarded) in [("without Semel", service.address(), false), ("with Semel", gateway.http, true)] {
        writeln!(out, "{title}")?;
        for (name, starts) in [("double click", double_click()), ("storm", storm())] {
            out.flush()?;
            let before = service.orders().await?;
            let sheet = fire(address, &starts).await?;
            let orders = service.orders().await?.saturating_sub(before);
            let figure = format!("{orders:>8}");
            let figure = if orders == 1 { look.good(&figure) } else { look.bad(&figure) };
            writeln!(out, "  {name:<14}{:>10}{figure}  {}", starts.len(), answers(&sheet))?;
            if guarded && orders != 1 {
                exit = Exit::Finding;
            }
        }
    }
    writeln!(out)?;
    let words = match exit {
        Exit::Clean => look.good(&look.wrap("Many identical requests, one order in the database.", 0)),
        _ => {
            look.bad(&look.wrap("More or less than one order came through Semel: this is a bug, please report it.", 0))
        }
    };
    writeln!(out, "{words}")?;
    out.flush()?;
    Ok(exit)
}

/// Commands to copy.
pub(super) fn invite(service: &Service, gateway: &Gateway, out: &mut impl Write, look: Look) -> std::io::Result<()> {
    let (http, admin, service) = (gateway.http, gateway.admin, service.address());
    writeln!(out)?;
    writeln!(out, "{}", look.strong("Both keep running. Try it (twice):"))?;
    writeln!(out)?;
    writeln!(out, "curl -i http://{http}/orders \\")?;
    writeln!(out, "  -H 'Idempotency-Key: order-1' \\")?;
    writeln!(out, "  -H 'Content-Type: application/json' \\")?;
    writeln!(out, "  -d '{ORDER}'")?;
    writeln!(out)?;
    writeln!(out, "{}", look.strong("More:"))?;
    writeln!(out)?;
    writeln!(out, "curl http://{http}/orders   # all orders")?;
    writeln!(out, "curl http://{admin}/metrics  # counters")?;
    writeln!(out, "{} prove http://{http}/orders \\", this_command())?;
    writeln!(out, "  --rounds 20 --direct http://{service}/orders \\")?;
    writeln!(out, "  --count-url http://{service}/orders/count")?;
    writeln!(out)?;
    writeln!(out, "Ctrl-C ends both.")?;
    out.flush()
}

/// As it was called: a freshly built one is seldom in the `PATH`.
fn this_command() -> String {
    std::env::args().next().filter(|name| name.ends_with("semel")).unwrap_or_else(|| "semel".to_owned())
}

fn double_click() -> Vec<Start> {
    vec![Start::default(), Start { after: CLICKS, hangs_up: None }]
}

fn storm() -> Vec<Start> {
    (0..STORM).map(|index| Start { after: GUST.mul_f64(index as f64 / STORM as f64), hangs_up: None }).collect()
}

async fn fire(address: SocketAddr, starts: &[Start]) -> Result<Sheet, Failure> {
    let target: Target = format!("http://{address}/orders").parse().map_err(Failure::runtime)?;
    let place = Place::find(target, &Trust::default()).await.map_err(Failure::runtime)?;
    let key = key::fresh("demo-")?;
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("idempotency-key", HeaderValue::from_str(&key).map_err(Failure::runtime)?);
    let request = Request { place, method: Method::POST, headers, body: Bytes::from_static(ORDER.as_bytes()) };
    let tick: Tick = Arc::new(|| {});
    Ok(Sheet::of(&volley(&request, starts, LIMIT, &tick).await, &Naming::Whole))
}

fn answers(sheet: &Sheet) -> String {
    let said = |class| match class {
        Class::Executed => "ran",
        Class::Replayed => "replayed",
        Class::Waited => "waited",
        Class::Rejected => "refused",
        Class::Unknown => "unclear",
        Class::Error | Class::HungUp => "failed",
    };
    let parts = Class::ALL.into_iter().filter(|class| sheet.count(*class) > 0);
    parts.map(|class| format!("{} {}", sheet.count(class), said(class))).collect::<Vec<_>>().join(", ")
}

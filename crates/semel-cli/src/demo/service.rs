//! The order service of the demo: a real one with a real database, written the way such services are written. It looks,
//! works, then inserts; nothing in it stops a duplicate.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use parking_lot::Mutex;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Stands for what an order costs between the look and the insert: a payment, a mail, a slow neighbour.
const WORK: Duration = Duration::from_millis(150);
const IN_STOCK: i64 = 1_000_000;

const SCHEMA: &str = "\
CREATE TABLE IF NOT EXISTS orders (
    order_id  INTEGER PRIMARY KEY AUTOINCREMENT,
    item      TEXT    NOT NULL,
    qty       INTEGER NOT NULL,
    placed_at TEXT    NOT NULL DEFAULT (datetime('now'))
)";

type Database = Arc<Mutex<Connection>>;

/// A running order service. Dropping it cuts what is in flight; [`Service::stop`] lets it finish.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    database: Database,
    stop: oneshot::Sender<()>,
    task: JoinSet<()>,
}

#[derive(Debug, Deserialize)]
struct Wanted {
    item: String,
    qty: i64,
}

#[derive(Debug, Serialize)]
struct Order {
    order_id: i64,
    item: String,
    qty: i64,
    placed_at: String,
}

impl Service {
    /// Opens or creates the database file and serves on the listener.
    ///
    /// # Errors
    /// The file cannot be opened as a database, or the listener has no address.
    pub async fn start(listener: TcpListener, file: &Path) -> anyhow::Result<Self> {
        let database = open(file).with_context(|| format!("cannot open the orders database {}", file.display()))?;
        let database = Arc::new(Mutex::new(database));
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/orders", get(list).post(place))
            .route("/orders/count", get(count))
            .with_state(database.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let mut task = JoinSet::new();
        task.spawn(async move {
            // A dropped sender means the same as a message.
            let served = axum::serve(listener, router).with_graceful_shutdown(async { _ = stopped.await });
            // It only ends by the line above: accepting retries by itself.
            _ = served.await;
        });
        Ok(Self { address, database, stop, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Rows in the table, asked of the database itself.
    ///
    /// # Errors
    /// The database refuses the question.
    pub async fn orders(&self) -> anyhow::Result<u64> {
        let rows = on(&self.database, rows).await?;
        Ok(u64::try_from(rows)?)
    }

    /// Takes no more orders and ends when those in flight are done, or after `limit`.
    pub async fn stop(mut self, limit: Duration) {
        // The receiver is gone only if the service has ended already.
        _ = self.stop.send(());
        if tokio::time::timeout(limit, self.task.join_next()).await.is_err() {
            self.task.abort_all();
        }
    }
}

fn open(file: &Path) -> rusqlite::Result<Connection> {
    let database = Connection::open(file)?;
    database.pragma_update(None, "journal_mode", "wal")?;
    database.execute(SCHEMA, ())?;
    Ok(database)
}

/// Runs SQL away from the runtime's threads.
async fn on<T: Send + 'static>(
    database: &Database,
    sql: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let database = database.clone();
    Ok(tokio::task::spawn_blocking(move || sql(&database.lock())).await??)
}

fn rows(database: &Connection) -> rusqlite::Result<i64> {
    database.query_row("SELECT count(*) FROM orders", (), |row| row.get(0))
}

async fn place(State(database): State<Database>, Json(wanted): Json<Wanted>) -> Result<Response, Broken> {
    if wanted.qty < 1 || wanted.item.trim().is_empty() {
        return Ok(
            (StatusCode::UNPROCESSABLE_ENTITY, "item must have a name, qty must be at least 1\n").into_response()
        );
    }
    let item = wanted.item.clone();
    let sold = on(&database, move |sql| {
        sql.query_row("SELECT coalesce(sum(qty), 0) FROM orders WHERE item = ?1", [item], |row| row.get::<_, i64>(0))
    });
    if sold.await?.saturating_add(wanted.qty) > IN_STOCK {
        return Ok((StatusCode::CONFLICT, "sold out\n").into_response());
    }
    tokio::time::sleep(WORK).await;
    let order = on(&database, move |sql| {
        sql.query_row(
            "INSERT INTO orders (item, qty) VALUES (?1, ?2) RETURNING order_id, item, qty, placed_at",
            (wanted.item, wanted.qty),
            order,
        )
    });
    let order = order.await?;
    let location = format!("/orders/{}", order.order_id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(order)).into_response())
}

async fn list(State(database): State<Database>) -> Result<Json<Vec<Order>>, Broken> {
    let orders = on(&database, |sql| {
        let mut query = sql.prepare("SELECT order_id, item, qty, placed_at FROM orders ORDER BY order_id")?;
        query.query_map((), order)?.collect()
    });
    Ok(Json(orders.await?))
}

async fn count(State(database): State<Database>) -> Result<Json<serde_json::Value>, Broken> {
    Ok(Json(serde_json::json!({ "orders": on(&database, rows).await? })))
}

fn order(row: &rusqlite::Row<'_>) -> rusqlite::Result<Order> {
    Ok(Order { order_id: row.get(0)?, item: row.get(1)?, qty: row.get(2)?, placed_at: row.get(3)? })
}

/// Whatever went wrong inside: 500 with a sentence.
struct Broken(anyhow::Error);

impl From<anyhow::Error> for Broken {
    fn from(error: anyhow::Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Broken {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{:#}\n", self.0)).into_response()
    }
}

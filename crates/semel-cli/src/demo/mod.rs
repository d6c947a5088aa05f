//! `semel demo`: an order service that places every order it is sent, and Semel in front of it, before your eyes.

mod guard;
mod ports;
mod service;
mod show;

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

pub use guard::start;
pub use service::Service;

use crate::exit::{Exit, Failure};
use crate::stop::Stop;
use crate::term::{Look, Out};

/// Requests in flight may take this long to end when the demo stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Shows on this machine what duplicates do to a service, and what they do with Semel in front of it.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(after_help = "Opens nothing outside loopback. Exit codes: 0 one order each time, 1 more than one, 2 usage, \
                        3 could not start or was stopped during the show.")]
pub struct Args {
    /// Keep the orders database and Semel's data here [default: a temporary directory, removed at the end]
    #[arg(long, env = "SEMEL_DEMO_DIR", value_name = "DIR")]
    pub dir: Option<PathBuf>,

    /// Where the gateway listens [default: 127.0.0.1:8080, or a free port]
    #[arg(long, env = "SEMEL_DEMO_LISTEN", value_name = "ADDR")]
    pub listen: Option<SocketAddr>,

    /// Where the gateway's health and metrics are [default: 127.0.0.1:9090, or a free port]
    #[arg(long, env = "SEMEL_DEMO_ADMIN", value_name = "ADDR")]
    pub admin: Option<SocketAddr>,

    /// Where the order service listens [default: 127.0.0.1:3000, or a free port]
    #[arg(long, env = "SEMEL_DEMO_SERVICE", value_name = "ADDR")]
    pub service: Option<SocketAddr>,

    /// End after the show instead of running on
    #[arg(long, env = "SEMEL_DEMO_EXIT")]
    pub exit: bool,
}

/// What the demo asks of the gateway it starts.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The order service: `http://127.0.0.1:3000`.
    pub upstream: String,
    /// Was free a moment ago.
    pub listen: SocketAddr,
    /// Was free a moment ago.
    pub admin: SocketAddr,
    /// An existing directory for the store.
    pub data_dir: PathBuf,
}

/// A running gateway.
pub struct Gateway {
    /// Where it serves.
    pub http: SocketAddr,
    /// Where its admin side is.
    pub admin: SocketAddr,
    /// Drains and ends it; polled once, at the end of the demo.
    pub stop: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("http", &self.http).field("admin", &self.admin).finish_non_exhaustive()
    }
}

/// Runs the command: starts the service, calls `start` for the gateway, shows, and keeps both running until a signal.
///
/// # Errors
/// An address that is taken, a directory that cannot be written, a gateway that does not start.
pub fn run<F, G>(args: &Args, start: F) -> Result<Exit, Failure>
where
    F: FnOnce(Wanted) -> G,
    G: Future<Output = anyhow::Result<Gateway>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stop = Stop::listen()?;
        let mut out = Out::stdout();
        play(args, start, stop.asked(), &mut out, Look::of_stdout()).await
    })
}

/// The command without its surroundings: `stop` ends it, `out` gets the show.
///
/// # Errors
/// As [`run`].
pub async fn play<F, G>(
    args: &Args,
    start: F,
    stop: impl Future<Output = ()>,
    out: &mut impl Write,
    look: Look,
) -> Result<Exit, Failure>
where
    F: FnOnce(Wanted) -> G,
    G: Future<Output = anyhow::Result<Gateway>>,
{
    let place = Place::make(args.dir.as_deref())?;
    let usual = [("--service", args.service, 3000), ("--listen", args.listen, 8080), ("--admin", args.admin, 9090)];
    let mut taken = Vec::with_capacity(usual.len());
    for (flag, asked, port) in usual {
        let found = ports::take(flag, asked, port)?;
        if let Some(note) = &found.note {
            writeln!(out, "{note}")?;
        }
        taken.push(found.listener);
    }
    let (admin, listen, service) = (taken.pop(), taken.pop(), taken.pop());
    let (Some(admin), Some(listen), Some(service)) = (admin, listen, service) else {
        return Err(Failure::runtime("an address is missing"));
    };
    service.set_nonblocking(true)?;
    let database = place.path().join("orders.db");
    let service = Service::start(tokio::net::TcpListener::from_std(service)?, &database).await?;
    let wanted = Wanted {
        upstream: format!("http://{}", service.address()),
        listen: freed(listen)?,
        admin: freed(admin)?,
        data_dir: place.path().join("semel-data"),
    };
    std::fs::create_dir_all(&wanted.data_dir)?;
    let gateway = start(wanted).await?;

    show::introduce(&service, &gateway, &database, out, look)?;
    tokio::pin!(stop);
    let exit = tokio::select! {
        exit = show::perform(&service, &gateway, out, look) => exit,
        () = &mut stop => Ok(Exit::Runtime),
    };
    if !args.exit && matches!(exit, Ok(Exit::Clean | Exit::Finding)) {
        show::invite(&service, &gateway, out, look)?;
        stop.await;
        // Whoever read along may have gone; the drain is for the others.
        let _ = writeln!(out, "\nStopping.");
    }
    gateway.stop.await;
    service.stop(DRAIN).await;
    exit
}

/// The listener held the address while the others were looked for; now the gateway may take it.
fn freed(listener: std::net::TcpListener) -> std::io::Result<SocketAddr> {
    let address = listener.local_addr()?;
    drop(listener);
    Ok(address)
}

/// The demo's directory: a given one stays, a temporary one goes with it.
enum Place {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Place {
    fn make(dir: Option<&Path>) -> Result<Self, Failure> {
        let told = |dir: &Path, error| Failure::runtime(format!("cannot use --dir {}: {error}", dir.display()));
        match dir {
            Some(dir) => {
                std::fs::create_dir_all(dir).map_err(|error| told(dir, error))?;
                Ok(Self::Given(dir.to_owned()))
            }
            None => Ok(Self::Temporary(tempfile::Builder::new().prefix("semel-demo-").tempdir()?)),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Given(dir) => dir,
            Self::Temporary(dir) => dir.path(),
        }
    }
}

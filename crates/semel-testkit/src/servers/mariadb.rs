//! A private MariaDB.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Weak},
    time::Duration,
};

use tempfile::TempDir;
use tokio::sync::Mutex;

use super::{Process, SmallDisk, free_port, place_for_data};

/// How often another port is tried where somebody took the one that was free.
const PORTS: usize = 5;

/// How often, and after which time again, a server that starts is looked at.
const LOOKS: u32 = 12_000;
const LOOK: Duration = Duration::from_millis(5);

/// Set where the server and its installer both read them; the files have to fit what the template was made with.
const FILES: [&str; 4] = [
    "--innodb-data-file-path=ibdata1:2M:autoextend",
    "--innodb-autoextend-increment=1",
    "--innodb-log-file-size=8M",
    // What a killed process wrote is with the kernel and stays there; only a power cut would tell.
    "--innodb-flush-method=nosync",
];

/// One MariaDB server with a data directory of its own. Its only user is `root`, without a password. Dropping it kills it.
#[derive(Debug)]
pub struct MariaDb {
    process: Process,
    port: u16,
    options: Vec<String>,
    dir: TempDir,
}

impl MariaDb {
    /// Starts one with an empty data directory.
    ///
    /// Cost: about a quarter of a second; the first one of a machine half a second more, for a template.
    ///
    /// # Panics
    /// When it does not start: a test without its server has failed.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with more of the server's own options: `--max-connections=5`.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub async fn start_with(options: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("semel-mariadb-").tempdir_in(place_for_data());
        let dir = dir.expect("there is room for a temporary folder");
        copy(&template(), &dir.path().join("data")).expect("the template can be copied");
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        for _ in 0..PORTS {
            let port = free_port();
            if let Some(process) = launch(dir.path(), port, &options).await {
                return Self { process, port, options, dir };
            }
        }
        panic!("MariaDB does not start; it said\n{}", fs::read_to_string(log(dir.path())).unwrap_or_default());
    }

    /// One server for whoever asks while another one in this process still has it: tests that run at the same time share
    /// it, each with a database of its own, and it ends with the last of them.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub async fn shared() -> Arc<Self> {
        static CURRENT: Mutex<Weak<MariaDb>> = Mutex::const_new(Weak::new());
        let mut current = CURRENT.lock().await;
        if let Some(server) = current.upgrade() {
            return server;
        }
        let server = Arc::new(Self::start().await);
        *current = Arc::downgrade(&server);
        server
    }

    /// Where `database` is: `mysql://root@127.0.0.1:port/database`.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.url_of("root", database)
    }

    /// The same for another user: `name` or `name:password`.
    #[must_use]
    pub fn url_of(&self, user: &str, database: &str) -> String {
        format!("mysql://{user}@127.0.0.1:{}/{database}", self.port)
    }

    /// The port it listens on; the same after a restart.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where its data is.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What it said so far.
    #[must_use]
    pub fn said(&self) -> String {
        self.process.said()
    }

    /// Stops it in its tracks: connections stay open and nothing answers.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// Ends it without a word, as a crash does.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to end in its own way, and waits.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Ends it if it runs, and starts it again on the same port with what it kept.
    ///
    /// # Panics
    /// When it does not start again.
    pub async fn restart(&mut self) {
        if self.process.runs() {
            self.process.stop();
        }
        for _ in 0..PORTS {
            if let Some(process) = launch(self.dir.path(), self.port, &self.options).await {
                self.process = process;
                return;
            }
        }
        panic!("MariaDB does not start again; it said\n{}", self.said());
    }

    /// Ends it without a word and starts it on the same port with an empty data directory, as after a disk was replaced.
    ///
    /// # Panics
    /// As [`restart`](Self::restart).
    pub async fn restart_empty(&mut self) {
        self.process.kill();
        fs::remove_dir_all(self.data()).expect("a folder of one's own can be removed");
        copy(&template(), &self.data()).expect("the template can be copied");
        self.restart().await;
    }

    /// Moves a database without tables to another disk, for what is to run out of room.
    ///
    /// # Panics
    /// When it cannot be moved.
    pub fn move_database(&self, database: &str, disk: &SmallDisk) {
        let (from, to) = (self.data().join(database), disk.path().join(database));
        copy(&from, &to).expect("an empty database is a small folder");
        fs::remove_dir_all(&from).expect("a folder of one's own can be removed");
        symlink(&to, &from).expect("a link can be made");
    }
}

fn log(dir: &Path) -> PathBuf {
    dir.join("server.log")
}

/// A server that answers on `port`; `None` where the port is taken.
async fn launch(dir: &Path, port: u16, options: &[String]) -> Option<Process> {
    let log = log(dir);
    let before = fs::metadata(&log).map_or(0, |m| m.len());
    let mut command = Command::new(server());
    command.arg("--no-defaults").arg(setting("datadir", dir.join("data"))).arg(setting("socket", dir.join("socket")));
    command.arg(setting("pid-file", dir.join("pid"))).arg(format!("--port={port}")).args(user()).args(FILES);
    command.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-buffer-pool-size=32M"]);
    command
        .args(["--performance-schema=OFF", "--userstat=ON", "--key-buffer-size=64K", "--max-connections=300"])
        .args(options);
    let mut process = Process::start("MariaDB", &mut command, &log);
    for _ in 0..LOOKS {
        // Looked at first: what it said before it ended is all there then.
        let runs = process.runs();
        // Whoever else listens on the port would answer a connection too: only its own words say that it is this one.
        let all = fs::read(&log).unwrap_or_default();
        let said = String::from_utf8_lossy(all.get(usize::try_from(before).unwrap_or(0)..).unwrap_or_default());
        if said.contains("Bind on TCP/IP port") {
            return None;
        }
        if said.contains("ready for connections") {
            return Some(process);
        }
        assert!(runs, "MariaDB ended while it started:\n{said}");
        tokio::time::sleep(LOOK).await;
    }
    panic!("MariaDB did not start in {:?}:\n{}", LOOK * LOOKS, process.said());
}

fn setting(name: &str, value: PathBuf) -> OsString {
    let mut out = OsString::from(format!("--{name}="));
    out.push(value);
    out
}

/// Run by the superuser, the server wants to be told so.
fn user() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

/// Debian keeps servers where only the superuser's path leads.
fn server() -> PathBuf {
    let places = ["/usr/sbin/mariadbd", "/usr/bin/mariadbd", "/usr/libexec/mariadbd"].map(PathBuf::from);
    places.into_iter().find(|p| p.exists()).unwrap_or_else(|| PathBuf::from("mariadbd"))
}

/// A data directory with nothing in it but the server's own tables, made once per machine, user and version of the server.
fn template() -> PathBuf {
    let version = Command::new(server()).arg("--version").output();
    let version = version.unwrap_or_else(|e| panic!("no mariadbd here ({e}); ./test installs it")).stdout;
    let version = String::from_utf8_lossy(&version);
    let version = version.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit())).unwrap_or("unknown");
    let whose = rustix::process::geteuid().as_raw();
    let finished = std::env::temp_dir().join(format!("semel-mariadb-template-1-{whose}-{version}"));
    if finished.exists() {
        return finished;
    }
    let making = TempDir::with_prefix("semel-mariadb-template-").expect("there is room for a temporary folder");
    let mut command = Command::new("mariadb-install-db");
    command.arg("--no-defaults").arg(setting("datadir", making.path().to_owned())).args(user()).args(FILES);
    command.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
    let made = command.output().unwrap_or_else(|e| panic!("no mariadb-install-db here ({e}); ./test installs it"));
    assert!(made.status.success(), "mariadb-install-db: {}", String::from_utf8_lossy(&made.stdout));
    // Two may do this at once: the first rename stands, and what it brought is as good.
    let made = making.keep();
    if fs::rename(&made, &finished).is_err() {
        fs::remove_dir_all(&made).expect("a folder of one's own can be removed");
        assert!(finished.exists(), "the template cannot be put in its place");
    }
    finished
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

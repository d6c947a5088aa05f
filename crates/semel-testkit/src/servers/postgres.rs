//! PostgreSQL, with a standby and a transaction pooler where a test needs them.

mod cluster;
mod pooler;

pub use pooler::PgBouncer;

use std::{path::Path, process::Command};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Process, SmallDisk, free_port};

/// How often a port that somebody else took is exchanged for another.
const TRIES: usize = 5;

/// One PostgreSQL server, its data in a temporary folder. Dropping it ends it and removes the folder.
///
/// Everybody on the loopback may be its superuser `postgres`, without a password. Nothing is synced to disk unless a
/// setting says `fsync=on`.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    /// Taken only from a server that has ended.
    dir: Option<TempDir>,
    port: u16,
    settings: Vec<String>,
}

impl Postgres {
    /// A new, empty server.
    ///
    /// # Panics
    /// When PostgreSQL is not installed or does not start; so for the other calls.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with settings as in `postgresql.conf`: `["max_connections=20"]`.
    ///
    /// # Panics
    /// See [`Postgres::start`].
    pub async fn start_with(settings: &[&str]) -> Self {
        let empty = cluster::kept("empty", async || cluster::make()).await;
        Self::copy_of(&empty, settings).await
    }

    /// One that speaks TLS as well, with this certificate and its key.
    ///
    /// # Panics
    /// See [`Postgres::start`].
    pub async fn start_tls(certificate: &Path, key: &Path) -> Self {
        let empty = cluster::kept("empty", async || cluster::make()).await;
        let dir = cluster::folder();
        cluster::copy(&empty, &dir.path().join("data"));
        // The server believes only in a key that is its user's and nobody else's.
        for (from, to) in [(certificate, "server.crt"), (key, "server.key")] {
            cluster::give_file(from, &dir.path().join("data").join(to));
        }
        Self::on(dir, vec!["ssl=on".to_owned()]).await
    }

    /// A server on a copy of one that was prepared once and is kept beside the tests' program. A new `name` is prepared
    /// anew: let it say what `prepare` does.
    ///
    /// # Panics
    /// See [`Postgres::start`].
    pub async fn prepared(name: &str, settings: &[&str], prepare: impl AsyncFnOnce(&Self)) -> Self {
        let make = async || {
            let mut server = Self::start_with(settings).await;
            // It makes a third of the files, and nobody copies it.
            server.sql("UPDATE pg_database SET datistemplate = false WHERE datname = 'template0'");
            server.sql("DROP DATABASE template0");
            prepare(&server).await;
            server.stop();
            server.dir.take().expect("a server has its folder until it ends")
        };
        let prepared = cluster::kept(name, make).await;
        Self::copy_of(&prepared, settings).await
    }

    async fn copy_of(cluster: &Path, settings: &[&str]) -> Self {
        let dir = cluster::folder();
        cluster::copy(cluster, &dir.path().join("data"));
        Self::on(dir, settings.iter().map(|&s| s.to_owned()).collect()).await
    }

    /// A standby that follows this server, which keeps up to some moments behind it.
    ///
    /// # Panics
    /// See [`Postgres::start`].
    pub async fn standby(&self) -> Self {
        Self::on(backup(self.port, &["-R"]), self.settings.clone()).await
    }

    /// The same on a way of its own, a [`Proxy`](super::proxy::Proxy) before this server: what is stalled there is behind.
    ///
    /// # Panics
    /// See [`Postgres::start`].
    pub async fn standby_through(&self, way: &super::proxy::Proxy) -> Self {
        Self::on(backup(way.port(), &["-R"]), self.settings.clone()).await
    }

    /// Another server with what this one has now, as from a backup.
    ///
    /// # Panics
    /// See [`Postgres::start`].
    pub async fn copy(&self) -> Self {
        Self::on(backup(self.port, &[]), self.settings.clone()).await
    }

    async fn on(dir: TempDir, settings: Vec<String>) -> Self {
        for _ in 0..TRIES {
            let port = free_port();
            let mut process = launch(dir.path(), port, &settings);
            if is_ready(&mut process, dir.path()).await {
                return Self { process, dir: Some(dir), port, settings };
            }
            assert!(process.said().contains("Address already in use"), "{}", process.said());
        }
        panic!("somebody took {TRIES} ports in a row")
    }

    /// Where its database `postgres` is.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Where a database of it is.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The port it listens on; the same after a restart.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its process: to see whether it runs, and what it said. Its sessions are processes of their own.
    #[must_use]
    pub const fn process(&self) -> &Process {
        &self.process
    }

    /// Stops it and all its sessions in their tracks: connections stay open and nothing answers.
    ///
    /// # Panics
    /// When the system does not say which sessions there are.
    pub fn pause(&self) {
        // First of all the one that would begin others.
        self.process.pause();
        let sessions = self.sessions().expect("Linux says which processes a server has begun");
        sessions.into_iter().for_each(|pid| signal(pid, Signal::STOP));
    }

    /// Lets all of it go on.
    pub fn resume(&self) {
        // Of one that has ended nothing is left to go on.
        self.sessions().into_iter().flatten().for_each(|pid| signal(pid, Signal::CONT));
        self.process.resume();
    }

    /// Processes that it began and that have not ended.
    fn sessions(&self) -> std::io::Result<Vec<Pid>> {
        let id = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
        Ok(children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect())
    }

    /// What `sql` says, in the database `postgres`: rows by line, columns by `|`.
    ///
    /// # Panics
    /// When it fails.
    pub fn sql(&self, sql: &str) -> String {
        self.sql_in("postgres", sql)
    }

    /// The same in another database.
    ///
    /// # Panics
    /// When it fails.
    pub fn sql_in(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        run(psql.arg(self.url_of(database))).trim_end().to_owned()
    }

    /// A tablespace on another disk, for what is to run out of room.
    ///
    /// # Panics
    /// When it cannot be made there.
    pub fn tablespace(&self, name: &str, disk: &SmallDisk) {
        let place = disk.path().join(name);
        cluster::make_folder(&place);
        self.sql(&format!("CREATE TABLESPACE {name} LOCATION '{}'", place.display()));
    }

    /// Makes a standby the primary, and waits until it is.
    ///
    /// # Panics
    /// When it is no standby.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote(true, 30)"), "t", "{}", self.process.said());
    }

    /// Ends all sessions, writes a checkpoint, and ends.
    pub fn stop(&mut self) {
        self.process.stop_by(Signal::INT);
    }

    /// Ends at once: what it acknowledged is in its log, to be recovered from.
    pub fn stop_at_once(&mut self) {
        self.process.stop_by(Signal::QUIT);
    }

    /// Starts it again after a stop, on the data it kept.
    ///
    /// # Panics
    /// See [`Postgres::start`].
    pub async fn start_again(&mut self) {
        assert!(!self.process.runs(), "stop it first");
        let dir = self.dir.as_ref().expect("a server has its folder until it ends");
        self.process = launch(dir.path(), self.port, &self.settings);
        assert!(is_ready(&mut self.process, dir.path()).await, "{}", self.process.said());
    }

    /// Starts it again after a stop, on what another server kept: an older backup, or nothing at all. That one ends.
    ///
    /// # Panics
    /// See [`Postgres::start`].
    pub async fn start_on_data_of(&mut self, mut other: Self) {
        other.stop();
        self.dir = other.dir.take();
        self.start_again().await;
    }

    /// Stops it and starts it again.
    ///
    /// # Panics
    /// See [`Postgres::start`].
    pub async fn restart(&mut self) {
        self.stop();
        self.start_again().await;
    }
}

/// A server that is killed leaves its shared memory to the machine; one that is stopped takes it along.
impl Drop for Postgres {
    fn drop(&mut self) {
        if self.process.runs() {
            self.resume();
            self.stop_at_once();
        }
    }
}

/// A folder with all that the server on this port has.
fn backup(port: u16, more: &[&str]) -> TempDir {
    let dir = cluster::folder();
    let mut backup = cluster::command("pg_basebackup");
    backup.args(["-h", "127.0.0.1", "-U", "postgres", "-X", "stream", "-c", "fast", "--no-sync"]).args(more);
    run(backup.args(["-p", &port.to_string(), "-D"]).arg(dir.path().join("data")));
    dir
}

fn signal(pid: Pid, signal: Signal) {
    // One that has ended meanwhile needs none.
    let _gone = kill_process(pid, signal);
}

fn launch(dir: &Path, port: u16, settings: &[String]) -> Process {
    let mut command = cluster::command("postgres");
    command.arg("-D").arg(dir.join("data"));
    let port = format!("port={port}");
    let ours = [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "fsync=off",
        "shared_buffers=32MB",
        "dynamic_shared_memory_type=mmap",
        &port,
    ];
    for setting in ours.into_iter().chain(settings.iter().map(String::as_str)) {
        command.args(["-c", setting]);
    }
    Process::start("postgres", &mut command, &dir.join("log"))
}

/// Whether the server takes connections; `false` when it ended instead. It says so itself, beside its data.
async fn is_ready(process: &mut Process, dir: &Path) -> bool {
    let says = dir.join("data/postmaster.pid");
    for _ in 0..12_000 {
        if !process.runs() {
            return false;
        }
        let words = std::fs::read_to_string(&says).unwrap_or_default();
        let mut lines = words.lines();
        // A server that was killed before may have left its own words.
        let own = lines.next().and_then(|line| line.trim().parse().ok()) == Some(process.id());
        if own && lines.nth(6).is_some_and(|line| line.trim() == "ready") {
            return true;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("it does not begin to answer:\n{}", process.said())
}

/// What a command says when it succeeds.
fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; ./test installs what is missing"));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{command:?}\n{said}{}", String::from_utf8_lossy(&done.stderr));
    said
}

//! The gateway as a process: started, asked, killed, started again.

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use super::client::{Answer, Ask};
use crate::semel::command;

/// How to start one.
#[derive(Clone)]
pub(crate) struct Setup {
    /// A place for data and configuration, kept as long as anybody uses it.
    dir: Arc<tempfile::TempDir>,
    upstream: String,
    store: String,
    extra: String,
    top: String,
    level: &'static str,
    of_upstream: &'static str,
    of_store: &'static str,
    /// Where the embedded store lives; in `dir` unless a test has a disk of its own.
    data: PathBuf,
}

impl Setup {
    pub(crate) fn new(upstream: &str, store: &str) -> Self {
        let dir = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        let data = dir.path().join("data");
        Self {
            dir,
            upstream: upstream.into(),
            store: store.into(),
            extra: String::new(),
            top: String::new(),
            level: "info",
            of_upstream: "",
            of_store: "",
            data,
        }
    }

    /// How much it logs.
    pub(crate) fn level(mut self, level: &'static str) -> Self {
        self.level = level;
        self
    }

    /// More lines of the section [upstream].
    pub(crate) fn of_upstream(mut self, toml: &'static str) -> Self {
        self.of_upstream = toml;
        self
    }

    /// More lines of the section [store].
    pub(crate) fn of_store(mut self, toml: &'static str) -> Self {
        self.of_store = toml;
        self
    }

    /// Another place for the embedded store.
    pub(crate) fn data(mut self, dir: &Path) -> Self {
        self.data = dir.join("data");
        self
    }

    /// More of `semel.toml`: sections after [upstream] and [store].
    pub(crate) fn with(mut self, toml: &str) -> Self {
        self.extra.push_str(toml);
        self
    }

    /// Lines before all sections.
    pub(crate) fn top(mut self, toml: &str) -> Self {
        self.top.push_str(toml);
        self
    }

    /// Writes the configuration and returns its path.
    fn file(&self) -> PathBuf {
        let store = match self.store.as_str() {
            "embedded" => format!("embedded:{}", self.data.display()),
            other => other.to_owned(),
        };
        // A disk that is busy with something else takes longer than a quarter of a second now and then.
        let of_store =
            if self.store == "embedded" && self.of_store.is_empty() { "timeout = \"10s\"" } else { self.of_store };
        let mut toml = self.top.clone();
        writeln!(toml, "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n").unwrap();
        writeln!(
            toml,
            "[upstream.shop]\nurls = [\"{}\"]\n{}\n[store]\nurl = \"{store}\"\n{}\n",
            self.upstream, self.of_upstream, of_store
        )
        .unwrap();
        // Rules want a principal; most of these tests have one caller.
        if !self.extra.contains("[principal]") && self.extra.contains("[[rule]]") {
            writeln!(toml, "[principal]\nshared = true\n").unwrap();
        }
        writeln!(toml, "[log]\nformat = \"json\"\nlevel = \"{}\"\n\n{}", self.level, self.extra).unwrap();
        let path = self.dir.path().join("semel.toml");
        std::fs::write(&path, toml).expect("the configuration is written");
        path
    }

    /// Starts it and waits until it serves.
    pub(crate) fn start(&self) -> Gateway {
        self.try_start().unwrap_or_else(|said| panic!("the gateway did not start: {said}"))
    }

    pub(crate) fn try_start(&self) -> Result<Gateway, String> {
        let file = self.file();
        let mut child = command(&["gateway", "-c", file.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let err = child.stderr.take().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let (tell, told) = mpsc::channel();
        let log = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                log.lock().push_str(&format!("{line}\n"));
                if let Some(addresses) = addresses(&line) {
                    let _ = tell.send(addresses);
                }
            }
        });
        match told.recv_timeout(Duration::from_secs(30)) {
            Ok((http, admin)) => {
                Ok(Gateway { child, http, admin, said, reader: Some(reader), _dir: Arc::clone(&self.dir) })
            }
            Err(_) => {
                let _ = child.kill();
                let status = child.wait().expect("a child ends");
                Err(format!("{status}: {}", said.lock()))
            }
        }
    }
}

/// The addresses in the line that says it serves.
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    if event["message"] != "serving" {
        return None;
    }
    Some((event["http"].as_str()?.parse().ok()?, event["admin"].as_str()?.parse().ok()?))
}

/// A running gateway; it dies with the value.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    said: Arc<Mutex<String>>,
    /// Ends with its standard error.
    reader: Option<JoinHandle<()>>,
    /// Its directory lives as long as it does: a store whose directory is taken away rightly stops.
    _dir: Arc<tempfile::TempDir>,
}

impl Gateway {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to standard error so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().clone()
    }

    /// Waits until it has written `words`.
    pub(crate) async fn says(&self, words: &str) {
        for _ in 0..6_000 {
            if self.said().contains(words) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it never said {words}: {}", self.said());
    }

    /// Resident memory in bytes.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the process is there");
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("Linux says how much is resident");
        line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("in kB") * 1024
    }

    /// Open file descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("the process is there").count()
    }

    /// SIGKILL: nothing of the process runs afterwards.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child ends");
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGHUP.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// SIGSTOP: it stands still, its connections stay open.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a child can be signalled");
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self, within: Duration) -> ExitStatus {
        let until = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                return status;
            }
            assert!(Instant::now() < until, "still running after {within:?}: {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) async fn admin_get(&self, path: &str) -> Answer {
        Ask::new("GET", path).body("").send(self.admin).await
    }

    /// The value of a metric's line that begins with `name`, zero where there is none.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = self.admin_get("/metrics").await.text();
        let line = text.lines().find(|l| l.starts_with(name));
        line.and_then(|l| l.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    }
}

/// Whatever a test is about, and however its gateway ended: it must not have panicked.
impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        if !std::thread::panicking() {
            let said = self.said.lock();
            assert!(!said.contains("panicked"), "it panicked: {said}");
        }
    }
}

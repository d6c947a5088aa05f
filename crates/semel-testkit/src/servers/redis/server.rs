//! One Redis process.

use std::{
    ffi::OsString,
    fmt::Write,
    fs, io,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use tempfile::TempDir;

use super::{
    super::{Process, free_port, process::Looking},
    monitor::Monitor,
    resp::{Said, ask},
};

/// How often another port is tried where somebody took the first one meanwhile, and a question where nobody answers it.
const TRIES: usize = 10;

/// How a server is set up. Without more it keeps nothing on disk, takes all the memory it needs, and evicts nothing.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    lines: String,
    /// The lines about TLS among them; empty where there is none.
    tls: String,
    cluster: bool,
    sentinel: bool,
}

impl Setup {
    /// The plain one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One line of the configuration file.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        // Writing to a string cannot fail.
        let _ok = writeln!(self.lines, "{name} {value}");
        self
    }

    /// Syncs what it acknowledges to the append-only file: it survives the end of the process. `everysec` would not do: while
    /// a sync of it takes its time, the server answers for up to two seconds without having written.
    #[must_use]
    pub fn keeps(self) -> Self {
        self.set("appendonly", "yes").set("appendfsync", "always")
    }

    /// Takes no more memory than this.
    #[must_use]
    pub fn maxmemory(self, bytes: u64) -> Self {
        self.set("maxmemory", &bytes.to_string())
    }

    /// Also listens on a port for TLS, with these files in PEM; whoever comes needs no certificate. Servers that belong
    /// together speak TLS among themselves, and so do Sentinels.
    #[must_use]
    pub fn tls(self, certificate: &Path, key: &Path, authority: &Path) -> Self {
        self.over_tls(certificate, key, authority, "no")
    }

    /// The same; whoever comes needs a certificate of this authority.
    #[must_use]
    pub fn mutual_tls(self, certificate: &Path, key: &Path, authority: &Path) -> Self {
        self.over_tls(certificate, key, authority, "yes")
    }

    fn over_tls(mut self, certificate: &Path, key: &Path, authority: &Path, asks: &str) -> Self {
        self.tls = format!(
            "tls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\ntls-auth-clients {asks}\ntls-replication yes\n",
            certificate.display(),
            key.display(),
            authority.display()
        );
        self
    }

    pub(super) fn is_tls(&self) -> bool {
        !self.tls.is_empty()
    }

    pub(super) fn cluster(mut self) -> Self {
        self.cluster = true;
        if self.is_tls() {
            self.tls += "tls-cluster yes\n";
        }
        self.set("cluster-enabled", "yes").set("cluster-config-file", "nodes.conf")
    }

    /// A Sentinel beside servers that are set up so.
    pub(super) fn sentinel(&self) -> Self {
        Self { sentinel: true, tls: self.tls.clone(), ..Self::default() }
    }

    /// Several lines as they are.
    pub(super) fn raw(mut self, lines: &str) -> Self {
        self.lines += lines;
        self
    }

    pub(super) fn ports(&self) -> Ports {
        if self.cluster && !is_modern() {
            // The bus is behind the port where servers find each other.
            let found = port_below_another();
            let (main, tls) = if self.is_tls() { (free_port(), Some(found)) } else { (found, None) };
            return Ports { main, tls, bus: Some(found + BUS) };
        }
        let tls = self.is_tls().then(free_port);
        Ports { main: free_port(), tls, bus: if self.cluster { Some(free_port()) } else { None } }
    }

    fn file(&self, ports: &Ports) -> String {
        let mut file = format!("port {}\nbind 127.0.0.1\ndaemonize no\nlogfile \"\"\n", ports.main);
        if !self.sentinel {
            file += "save \"\"\ndatabases 4096\nrepl-diskless-sync no\n";
            if is_modern() {
                // Before 7.0 DEBUG is always there.
                file += "enable-debug-command yes\n";
            }
        }
        if let Some(tls) = ports.tls {
            // Writing to a string cannot fail.
            let _ok = writeln!(file, "tls-port {tls}");
        }
        if let Some(bus) = ports.bus.filter(|_| is_modern()) {
            let _ok = writeln!(file, "cluster-port {bus}");
        }
        file + &self.tls + &self.lines
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) main: u16,
    pub(super) tls: Option<u16>,
    pub(super) bus: Option<u16>,
}

impl Ports {
    /// Where servers find each other.
    pub(super) fn among(&self) -> u16 {
        self.tls.unwrap_or(self.main)
    }
}

/// One Redis server, private to a test. It is killed with the value.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    dir: TempDir,
    ports: Ports,
    is_sentinel: bool,
}

impl Redis {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// When it does not start; with what it said.
    pub async fn start(setup: &Setup) -> Self {
        for _ in 0..TRIES {
            let ports = setup.ports();
            if let Some(server) = Self::on(ports, setup, |_| {}).await {
                return server;
            }
        }
        panic!("of {TRIES} ports that were free, all were taken before redis-server listened");
    }

    /// On these ports; `None` where one is taken. `prepare` may put files into its folder first.
    pub(super) async fn on(ports: Ports, setup: &Setup, prepare: impl FnOnce(&Path)) -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("semel-redis-").tempdir().expect("a temporary folder can be made");
        fs::write(dir.path().join("redis.conf"), setup.file(&ports)).expect("its configuration can be written");
        prepare(dir.path());
        let process = run(dir.path(), setup.sentinel);
        let mut server = Self { process, dir, ports, is_sentinel: setup.sentinel };
        match server.answers().await {
            Ok(()) => Some(server),
            Err(said) if said.contains("Address already in use") => None,
            Err(said) => panic!("redis-server does not start:\n{said}"),
        }
    }

    /// Waits until it answers; or what it said, where it ended.
    async fn answers(&mut self) -> Result<(), String> {
        let looking = Looking::begin();
        while !self.is_ready().await {
            if !self.process.runs() || !looking.again().await {
                return Err(self.process.said());
            }
        }
        Ok(())
    }

    /// Somebody else's server may have the port, and answer until this one has found out: it says who it is.
    async fn is_ready(&self) -> bool {
        // A server that loads its file answers with an error until it is done.
        if !matches!(ask(self.ports.main, &[b"PING"]).await, Ok(Said::Text(_))) {
            return false;
        }
        let said = ask(self.ports.main, &[b"INFO", b"server"]).await;
        said.is_ok_and(|said| said.field("process_id") == Some(self.process.id().to_string()))
    }

    /// The port it listens on, of the loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports.main
    }

    /// The port for TLS.
    ///
    /// # Panics
    /// Where it was not [set up](Setup::tls).
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.ports.tls.expect("TLS was set up")
    }

    /// Where other servers find it: its port for TLS, if it has one.
    pub(super) fn port_among(&self) -> u16 {
        self.ports.among()
    }

    /// `127.0.0.1:port`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports.main)
    }

    /// `redis://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends one command, on a connection of its own.
    ///
    /// # Panics
    /// When the server does not answer; an error is an answer.
    pub async fn ask(&self, command: &[&str]) -> Said {
        let command: Vec<_> = command.iter().map(|part| part.as_bytes()).collect();
        self.ask_bytes(&command).await
    }

    /// The same with parts that need not be text.
    ///
    /// # Panics
    /// When the server does not answer; an error is an answer.
    pub async fn ask_bytes(&self, command: &[&[u8]]) -> Said {
        match ask(self.ports.main, command).await {
            Ok(said) => said,
            Err(error) => panic!("the server does not answer ({error}):\n{}", self.process.said()),
        }
    }

    /// Sends one command that has to work.
    ///
    /// # Panics
    /// When the server answers with an error, or not at all.
    pub async fn tell(&self, command: &[&str]) -> Said {
        match self.ask(command).await {
            Said::Error(error) => panic!("{command:?}: {error}"),
            said => said,
        }
    }

    /// A field of INFO; empty where there is none.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn info(&self, section: &str, field: &str) -> String {
        self.section(section).await.field(field).unwrap_or_default()
    }

    /// Asks again where the connection is ended: a Sentinel ends all of those of a server that it makes a replica.
    async fn section(&self, section: &str) -> Said {
        for _ in 1..TRIES {
            match ask(self.ports.main, &[b"INFO", section.as_bytes()]).await {
                Ok(said) => return said,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => break,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
        self.tell(&["INFO", section]).await
    }

    /// How many replicas have confirmed all that was written until now.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn replicas_at_hand(&self) -> usize {
        let said = self.section("replication").await.text();
        let number = |line: &str, name: &str| -> Option<u64> {
            line.split([',', ':']).find_map(|part| part.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        };
        let written =
            said.lines().find_map(|line| line.strip_prefix("master_repl_offset:")?.trim().parse::<u64>().ok());
        let replicas = said.lines().filter(|line| line.starts_with("slave") && line.contains("state=online"));
        replicas.filter(|line| number(line, "offset") >= written && written.is_some()).count()
    }

    /// Hears of every command from now on.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn monitor(&self) -> Monitor {
        Monitor::of(self.ports.main).await
    }

    /// How often the server answered with this error: `OOM`, `MOVED`.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn refused(&self, code: &str) -> u64 {
        let count = self.info("errorstats", &format!("errorstat_{code}")).await;
        count.strip_prefix("count=").and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// How often a command was carried out, scripts' own commands included.
    ///
    /// # Panics
    /// When the server does not answer.
    pub async fn calls(&self, command: &str) -> u64 {
        let line = self.info("commandstats", &format!("cmdstat_{command}")).await;
        line.strip_prefix("calls=").and_then(|rest| rest.split(',').next()).and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// Ends it without a word, as a crash does.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops it in its tracks: connections stay open and nothing answers.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// Starts it again on the same port, after a kill or after its own end, with what it kept on disk.
    ///
    /// # Panics
    /// When it does not come back.
    pub async fn start_again(&mut self) {
        if self.process.runs() {
            self.process.stop();
        }
        self.process = run(self.dir.path(), self.is_sentinel);
        if let Err(said) = self.answers().await {
            panic!("redis-server does not start again:\n{said}");
        }
    }

    /// The same without what it kept.
    ///
    /// # Panics
    /// When it does not come back, or its folder cannot be emptied.
    pub async fn start_empty(&mut self) {
        if self.process.runs() {
            self.process.kill();
        }
        for entry in fs::read_dir(self.dir.path()).expect("its folder can be read").flatten() {
            let path = entry.path();
            if path.is_dir() {
                fs::remove_dir_all(&path).expect("its files can be removed");
            } else if path.extension().is_none_or(|e| e != "conf" && e != "log") {
                fs::remove_file(&path).expect("its files can be removed");
            }
        }
        self.start_again().await;
    }
}

/// Names the server to test against, where it is not the `redis-server` of the path: Valkey, another version.
const SERVER: &str = "SEMEL_TEST_REDIS_SERVER";

/// How far from its own port a node's bus is, where it cannot be told another (before 7.0).
const BUS: u16 = 10_000;

fn program() -> OsString {
    std::env::var_os(SERVER).filter(|path| !path.is_empty()).unwrap_or_else(|| "redis-server".into())
}

/// Whether the servers that are started here are of 7.0 or later, as every Valkey is.
///
/// # Panics
/// Where there is none, or it does not tell its version.
#[must_use]
pub fn is_modern() -> bool {
    static MODERN: OnceLock<bool> = OnceLock::new();
    *MODERN.get_or_init(|| {
        let said = Command::new(program()).arg("--version").output();
        let said = said.unwrap_or_else(|error| panic!("{:?} does not start: {error}", program()));
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let major = said.split(" v=").nth(1).and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        major.unwrap_or_else(|| panic!("{:?} does not tell its version: {said}", program())) >= 7
    })
}

/// A free port for a node whose bus port is free too.
fn port_below_another() -> u16 {
    for _ in 0..1_000 {
        let port = free_port();
        let main = if port < u16::MAX - BUS { port } else { port - BUS };
        if [main, main + BUS].into_iter().all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return main;
        }
    }
    panic!("no two free ports are {BUS} apart");
}

fn run(dir: &Path, sentinel: bool) -> Process {
    let mut command = Command::new(program());
    command.arg(dir.join("redis.conf")).current_dir(dir);
    if sentinel {
        command.arg("--sentinel");
    }
    Process::start("redis-server", &mut command, &dir.join("server.log"))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// Of two tests that were given the same port one listens, and answers the other's questions while that one's server is
    /// only about to find out.
    #[tokio::test]
    async fn somebody_elses_answer_is_not_taken_for_the_servers() {
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let ports = Ports { main: other.local_addr().unwrap().port(), tls: None, bus: None };
        let answering = async {
            loop {
                let (mut stream, _) = other.accept().await.unwrap();
                let mut question = [0; 64];
                let _read = stream.read(&mut question).await.unwrap();
                stream.write_all(b"+PONG\r\n").await.unwrap();
            }
        };
        let setup = Setup::new();
        tokio::select! {
            server = Redis::on(ports, &setup, |_| {}) => assert!(server.is_none(), "the port is taken"),
            () = answering => {}
        }
    }
}

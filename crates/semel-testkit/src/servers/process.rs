//! A server's process: started, paused, killed, and stopped with the value.

use std::{
    fs::File,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to begin to answer.
const START: Duration = Duration::from_secs(60);
/// How long it may take to end after it was asked to; then it is killed.
const END: Duration = Duration::from_secs(20);

/// One server process. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; what it says goes to `log`.
    ///
    /// # Panics
    /// When it cannot be started: a test without its server has failed.
    #[must_use]
    pub fn start(name: &'static str, command: &mut Command, log: &Path) -> Self {
        let out = File::options().create(true).append(true).open(log).expect("a server's log can be written");
        let err = out.try_clone().expect("a file handle can be doubled");
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let child =
            child.unwrap_or_else(|error| panic!("{name} does not start ({error}); ./test installs what is missing"));
        Self { name, child, log: log.to_owned() }
    }

    /// Waits until `ready` says so.
    ///
    /// # Panics
    /// When the process ends before, or takes longer than a minute; with what it said.
    pub async fn ready(&mut self, mut ready: impl AsyncFnMut() -> bool) {
        let began = now();
        while !ready().await {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("{} ended while it started, {status}:\n{}", self.name, self.said());
            }
            assert!(began.elapsed() < START, "{} did not begin to answer in {START:?}:\n{}", self.name, self.said());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What it said so far.
    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a child has an id");
        // One that has ended already needs no signal.
        let _gone = kill_process(pid, signal);
    }

    /// Stops it in its tracks: connections stay open and nothing answers.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends it without a word, as a crash does.
    ///
    /// # Panics
    /// When the system does not tell how it ended; it always does.
    pub fn kill(&mut self) -> ExitStatus {
        self.signal(Signal::KILL);
        self.child.wait().expect("a child ends")
    }

    /// Asks it to end in its own way, and waits.
    pub fn stop(&mut self) -> ExitStatus {
        self.stop_by(Signal::TERM)
    }

    /// The same by another signal.
    pub fn stop_by(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        let began = now();
        while began.elapsed() < END {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status;
            }
            pause_thread(Duration::from_millis(10));
        }
        self.kill()
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.runs() {
            self.kill();
        }
    }
}

/// A port that nobody listens on now. Somebody can take it before the caller does: whoever starts a server on it has to
/// try again then.
///
/// # Panics
/// When the loopback has none left.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has a free port");
    listener.local_addr().expect("a listener has an address").port()
}

/// Looking again and again, for at most a minute. (Not a function of an asynchronous closure: the futures that hold one
/// cannot be sent between threads yet.)
pub(super) struct Looking(Instant);

impl Looking {
    pub(super) fn begin() -> Self {
        Self(now())
    }

    /// Pauses for a moment; `false` when the time is over.
    pub(super) async fn again(&self) -> bool {
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.0.elapsed() < START
    }
}

#[expect(clippy::disallowed_methods, reason = "a server lives in real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "called where a server ends, outside of asynchronous code")]
fn pause_thread(time: Duration) {
    std::thread::sleep(time);
}

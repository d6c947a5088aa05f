//! Runs the binary.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Output, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The binary that `SEMEL_BIN` names (`./test` says the release one), else the one just built.
fn binary() -> OsString {
    std::env::var_os("SEMEL_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_semel").into())
}

/// A command with an environment of its own: what the developer has set must not reach it.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(args).env_clear();
    command
}

/// Runs it to its end beside the test's own servers.
pub(crate) async fn run(args: &[&str]) -> Ended {
    let command = command(args);
    run_command(command).await
}

pub(crate) async fn run_command(mut command: Command) -> Ended {
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("the thread ends");
    Ended::of(&output.expect("the binary was just built"))
}

/// Runs it with a terminal for its errors: its code, and all that it showed there.
pub(crate) fn before_a_terminal(mut command: Command) -> (Option<i32>, String) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).expect("it is ours");
    unlockpt(&ours).expect("it is ours");
    let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&ours, size).expect("it has a size");
    let name = ptsname(&ours, Vec::new()).expect("it has a name").into_string().expect("in ASCII");
    let theirs = File::options().read(true).write(true).open(name).expect("the other end");
    command.env("TERM", "xterm").stdout(Stdio::null()).stderr(theirs);
    let status = command.spawn().expect("the binary was just built").wait().expect("it ends");
    // With the other end's last holder the terminal has an end.
    drop(command);
    let (mut said, mut bytes) = (Vec::new(), [0; 4096]);
    let mut ours = File::from(ours);
    while let Ok(n @ 1..) = ours.read(&mut bytes) {
        said.extend_from_slice(&bytes[..n]);
    }
    (status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("semel writes UTF-8");
        Self { code: output.status.code().expect("no signal"), out: text(&output.stdout), err: text(&output.stderr) }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The result of a named check.
    pub(crate) fn check(&self, name: &str) -> String {
        let json = self.json();
        let checks = json["checks"].as_array().expect("checks");
        let check = checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {json}"));
        check["result"].as_str().expect("a word").to_owned()
    }
}

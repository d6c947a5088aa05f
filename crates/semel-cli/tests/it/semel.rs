//! Runs the binary.

use std::ffi::OsString;
use std::process::{Command, Output};

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

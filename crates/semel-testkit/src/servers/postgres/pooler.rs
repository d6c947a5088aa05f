//! PgBouncer in transaction mode: one server connection serves many clients, statement by statement.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

use super::{
    super::{Process, free_port},
    Postgres, TRIES, cluster,
};

/// A transaction pooler before a server. Dropping it kills it.
#[derive(Debug)]
pub struct PgBouncer {
    process: Process,
    _dir: TempDir,
    port: u16,
}

impl PgBouncer {
    /// A pooler before `server`, with so many connections to each of its databases.
    ///
    /// # Panics
    /// When PgBouncer is not installed, or does not start.
    pub async fn start(server: &Postgres, connections: usize) -> Self {
        let dir = cluster::folder();
        fs::write(dir.path().join("users"), "\"postgres\" \"\"\n").expect("a file can be written");
        for _ in 0..TRIES {
            let port = free_port();
            let ini = configuration(dir.path(), server.port(), port, connections);
            fs::write(dir.path().join("ini"), ini).expect("a file can be written");
            let mut command = cluster::as_user(Command::new("pgbouncer"));
            let mut process = Process::start("pgbouncer", command.arg(dir.path().join("ini")), &dir.path().join("log"));
            if answers(&mut process, port).await {
                return Self { process, _dir: dir, port };
            }
        }
        panic!("PgBouncer did not start {TRIES} times in a row")
    }

    /// Where a database of the server is, through the pooler.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Its process: to pause it, or to see whether it runs.
    #[must_use]
    pub const fn process(&self) -> &Process {
        &self.process
    }
}

/// Whether it answers; `false` when it ended instead.
async fn answers(process: &mut Process, port: u16) -> bool {
    let port = port.to_string();
    let (mut polls, mut answers) = (0, false);
    while !answers && process.runs() {
        polls += 1;
        assert!(polls < 3_000, "it does not begin to answer:\n{}", process.said());
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        let mut ready = Command::new(cluster::program("pg_isready"));
        answers = ready
            .args(["-q", "-h", "127.0.0.1", "-U", "postgres", "-d", "postgres", "-p", &port])
            .status()
            .is_ok_and(|status| status.success());
    }
    // Another program may have the port, and answer there until this one has found out.
    answers && says_that_it_listens(process, &port).await
}

async fn says_that_it_listens(process: &mut Process, port: &str) -> bool {
    let words = format!("listening on 127.0.0.1:{port}\n");
    for _ in 0..3_000 {
        if process.said().contains(&words) {
            return true;
        }
        if !process.runs() {
            return false;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it does not say that it listens:\n{}", process.said())
}

fn configuration(dir: &Path, server: u16, port: u16, connections: usize) -> String {
    format!(
        "[databases]\n\
         * = host=127.0.0.1 port={server}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = trust\n\
         auth_file = {}/users\n\
         pool_mode = transaction\n\
         default_pool_size = {connections}\n\
         max_client_conn = 1000\n",
        dir.display()
    )
}

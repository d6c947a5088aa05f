//! One Cluster and one set under Sentinel for all cases, also where each case is a process of its own (under nextest).
//!
//! A process holds them: this binary, started once more by the first who needs it. Users hold a shared lock for as long as
//! they live; the holder ends a few seconds after the last one, however that one ended.

use std::{
    fs::{self, File, TryLockError},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use semel_testkit::servers::redis::{Cluster, PRIMARY_NAME, Redis, Said, Sentinels, Setup, ask};
use tokio::sync::OnceCell;

/// Names the folder to the holder.
const HOLDS: &str = "SEMEL_TEST_HOLDS";
const THIS_TEST: &str = "beds::shared::what_is_shared_ends_after_its_last_user";
/// How long it waits for another user.
const GRACE: Duration = Duration::from_secs(4);

/// How the servers stand to each other; the name of the folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Cluster,
    Sentinels,
}

/// The ports of servers that others use too: nobody may change who is what.
pub(crate) struct Shared {
    kind: Kind,
    ports: Vec<u16>,
    _using: File,
}

impl Shared {
    pub(crate) fn url(&self) -> String {
        let hosts = |ports: &[u16]| {
            let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
            hosts.join(",")
        };
        match self.kind {
            Kind::Cluster => format!("redis+cluster://{}", hosts(&self.ports)),
            Kind::Sentinels => format!("redis+sentinel://{}/{PRIMARY_NAME}", hosts(&self.ports[3..])),
        }
    }

    /// The servers that take writes.
    pub(crate) fn masters(&self) -> &[u16] {
        match self.kind {
            Kind::Cluster => &self.ports[..3],
            Kind::Sentinels => &self.ports[..1],
        }
    }

    async fn answers(&self) -> bool {
        for port in &self.ports {
            if !matches!(ask(*port, &[b"PING"]).await, Ok(Said::Text(_))) {
                return false;
            }
        }
        self.ports.len() == 6
    }

    /// The one in this folder, started if need be.
    #[expect(clippy::zombie_processes, reason = "the holder ends by itself, after this process has")]
    async fn in_folder(folder: PathBuf, kind: Kind) -> Self {
        fs::create_dir_all(&folder).expect("the folder can be made");
        let (one_at_a_time, using) = (open(&folder, "starting"), open(&folder, "users"));
        let (one_at_a_time, using) = tokio::task::spawn_blocking(move || {
            one_at_a_time.lock().expect("a file can be locked");
            using.lock_shared().expect("a file can be locked");
            (one_at_a_time, using)
        })
        .await
        .expect("locks come free");
        let mut shared = Self { kind, ports: ports(&folder), _using: using };
        if !shared.answers().await {
            let _none = fs::remove_file(folder.join("ports"));
            let out = open(&folder, "holder.log");
            let mut holder = Command::new(std::env::current_exe().expect("this binary has a place"));
            holder
                .args(["--exact", THIS_TEST, "--nocapture"])
                .env(HOLDS, format!("{kind:?}:{}", folder.display()))
                .process_group(0);
            holder.stdin(Stdio::null()).stdout(out.try_clone().expect("a handle can be doubled")).stderr(out);
            let _holder = holder.spawn().expect("this binary can be started");
            for _ in 0..3_000 {
                shared.ports = ports(&folder);
                if !shared.ports.is_empty() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert!(shared.answers().await, "nobody answers:\n{:?}", fs::read_to_string(folder.join("holder.log")));
        }
        drop(one_at_a_time);
        shared
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The Cluster that this process uses to its end.
pub(crate) async fn cluster() -> &'static Shared {
    static CLUSTER: OnceCell<Shared> = OnceCell::const_new();
    CLUSTER.get_or_init(|| Shared::in_folder(folder("shared-cluster"), Kind::Cluster)).await
}

/// The set under Sentinel that this process uses to its end.
pub(crate) async fn sentinels() -> &'static Shared {
    static SENTINELS: OnceCell<Shared> = OnceCell::const_new();
    SENTINELS.get_or_init(|| Shared::in_folder(folder("shared-sentinels"), Kind::Sentinels)).await
}

fn open(folder: &Path, name: &str) -> File {
    let mut options = File::options();
    options.create(true).append(true).open(folder.join(name)).expect("the folder can be written")
}

fn ports(folder: &Path) -> Vec<u16> {
    let text = fs::read_to_string(folder.join("ports")).unwrap_or_default();
    text.split_whitespace().filter_map(|port| port.parse().ok()).collect()
}

/// Holds the servers until nobody uses them.
async fn hold(what: &str) {
    let (kind, folder) = what.split_once(':').expect("a kind and a folder");
    let folder = Path::new(folder);
    if kind == format!("{:?}", Kind::Cluster) {
        let cluster = Cluster::start(&Setup::new()).await;
        wait_for_users(folder, cluster.nodes.iter()).await;
    } else {
        let set = Sentinels::start(&Setup::new()).await;
        wait_for_users(folder, set.servers.iter().chain(&set.sentinels)).await;
    }
}

async fn wait_for_users(folder: &Path, servers: impl Iterator<Item = &Redis>) {
    let ports: Vec<_> = servers.map(|server| server.port().to_string()).collect();
    // Under another name first, so that nobody reads half of it.
    fs::write(folder.join("ports.new"), ports.join(" ")).expect("the folder can be written");
    fs::rename(folder.join("ports.new"), folder.join("ports")).expect("the folder can be written");
    let users = open(folder, "users");
    loop {
        tokio::time::sleep(GRACE).await;
        match users.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => panic!("a file cannot be locked: {error}"),
        }
    }
    fs::remove_file(folder.join("ports")).expect("the folder can be written");
}

/// It is also what the holder runs.
#[tokio::test]
async fn what_is_shared_ends_after_its_last_user() {
    if let Ok(what) = std::env::var(HOLDS) {
        return hold(&what).await;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let one = Shared::in_folder(folder.path().to_owned(), Kind::Sentinels).await;
    let other = Shared::in_folder(folder.path().to_owned(), Kind::Sentinels).await;
    assert_eq!(one.ports, other.ports);
    let port = one.ports[0];
    drop(one);
    tokio::time::sleep(GRACE + GRACE / 2).await;
    assert!(other.answers().await, "it ended although somebody uses it");
    drop(other);
    for _ in 0..600 {
        if ask(port, &[b"PING"]).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not end");
}

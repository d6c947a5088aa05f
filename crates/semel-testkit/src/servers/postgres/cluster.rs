//! The folder that a server's data lives in: made once by `initdb`, then copied.

use std::{
    fs::{self, File},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use tempfile::TempDir;

use super::{super::place_for_data, run};

/// Who runs the server: it refuses to be root, so then it is the user `postgres`.
fn user() -> Option<(u32, u32)> {
    static USER: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *USER.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let number =
            |flag| run(Command::new("id").args([flag, "postgres"])).trim().parse().expect("`id` says a number");
        Some((number("-u"), number("-g")))
    })
}

/// The newest version that is installed.
pub(super) fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let version = |path: &Path| path.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse::<u32>().ok());
        let newest = versions.map(|entry| entry.path()).filter(|p| version(p).is_some()).max_by_key(|p| version(p));
        // Where it is not Debian's, it is to be found by its name alone.
        newest.map_or_else(PathBuf::new, |version| version.join("bin"))
    });
    folder.join(name)
}

/// A command of PostgreSQL's, run as its user.
pub(super) fn command(name: &str) -> Command {
    as_user(Command::new(program(name)))
}

/// The same command, run as PostgreSQL's user.
pub(super) fn as_user(mut command: Command) -> Command {
    if let Some((uid, gid)) = user() {
        command.uid(uid).gid(gid);
    }
    // The folder that a test runs in need not be open to that user.
    command.current_dir("/");
    command
}

/// A temporary folder that the server's user may write to.
pub(super) fn folder() -> TempDir {
    let dir = tempfile::Builder::new().prefix("semel-postgres-").tempdir_in(place_for_data());
    let dir = dir.expect("a temporary folder can be made");
    give(dir.path());
    dir
}

/// A folder at `path` that the server's user may write to.
pub(super) fn make_folder(path: &Path) {
    fs::create_dir(path).expect("a folder can be made");
    give(path);
}

/// A copy that only the server's user may read.
pub(super) fn give_file(from: &Path, to: &Path) {
    fs::copy(from, to).expect("a file can be copied");
    fs::set_permissions(to, fs::Permissions::from_mode(0o600)).expect("a file of one's own can be closed to others");
    give(to);
}

fn give(what: &Path) {
    if let Some((uid, gid)) = user() {
        chown(what, Some(uid), Some(gid)).expect("root may give a file away");
    }
}

/// A cluster that was made once and is kept beside the test's program; `make` fills the folder it is given. Processes that
/// want it at the same time wait for the one that makes it.
pub(super) async fn kept(name: &str, make: impl AsyncFnOnce() -> TempDir) -> PathBuf {
    let program = std::env::current_exe().expect("a program knows where it is");
    let near = program.parent().and_then(Path::parent).expect("a test lies in a folder of the target directory");
    // Another version of the server cannot read it.
    let server = fs::metadata(self::program("postgres")).map_or(0, |m| m.ino());
    let cluster = near.join(format!("semel-postgres-{server}-{name}"));
    let lock = File::create(near.join(format!("semel-postgres-{name}.lock"))).expect("a lock file can be made");
    lock.lock().expect("a file can be locked");
    if !cluster.exists() {
        let made = make().await;
        let unfinished = near.join(format!("semel-postgres-{name}.new"));
        let _none = fs::remove_dir_all(&unfinished);
        copy(&made.path().join("data"), &unfinished);
        fs::rename(&unfinished, &cluster).expect("a folder can be renamed");
    }
    cluster
}

/// An empty cluster.
pub(super) fn make() -> TempDir {
    let dir = folder();
    let mut initdb = command("initdb");
    initdb.args(["--no-sync", "--no-instructions", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
    run(initdb.args(["--wal-segsize=1", "-D"]).arg(dir.path().join("data")));
    dir
}

/// Copies a folder with its owners and modes.
pub(super) fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").args(["-a", "--reflink=auto"]).args([from, to]));
}

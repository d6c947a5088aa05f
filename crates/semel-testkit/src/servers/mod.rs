//! Real servers, private to a test: on free ports of the loopback, in temporary folders, stopped by their own process
//! id. A server that is not installed is a failure and never a skip; `./test` installs them all.

mod authority;
mod disk;
mod mariadb;
mod postgres;
mod process;
pub mod proxy;
pub mod redis;

pub use authority::{Authority, Certificate};
pub use disk::SmallDisk;
pub use mariadb::MariaDb;
pub use postgres::{PgBouncer, Postgres};
pub use process::{Process, free_port};

/// Where a database's data is while a test runs: in memory, where the machine has room enough there, since most of a server's
/// start is the copy of its files.
fn place_for_data() -> std::path::PathBuf {
    const ENOUGH: u64 = 1 << 30;
    let memory = std::path::Path::new("/dev/shm");
    match rustix::fs::statvfs(memory) {
        Ok(room) if room.f_bavail.saturating_mul(room.f_frsize) >= ENOUGH => memory.to_owned(),
        _ => std::env::temp_dir(),
    }
}

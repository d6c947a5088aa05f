//! Real servers, private to a test: on free ports of the loopback, in temporary folders, stopped by their own process
//! id. A server that is not installed is a failure and never a skip; `./test` installs them all.

mod disk;
mod mariadb;
mod postgres;
mod process;
pub mod proxy;
pub mod redis;

pub use disk::SmallDisk;
pub use mariadb::MariaDb;
pub use postgres::{PgBouncer, Postgres};
pub use process::{Process, free_port};

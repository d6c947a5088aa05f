//! Semel's shared stores on SQL databases: one truth for many processes.
//!
//! - `PostgresStore` (feature `postgres`): PostgreSQL 13 and later.
//! - `MySqlStore` (feature `mysql`): MySQL 8, MariaDB 10.6 and later.
//!
//! Both keep one row per record in the table `semel_record`, whose columns are what a store compares; the database's clock
//! decides on leases and expiry, and the statement that changes a row carries its whole condition.

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod error;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod options;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod pool;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod record;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod url_options;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod watch;

#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use error::{ConnectError, Migrated, Schema};
#[cfg(feature = "mysql")]
pub use mysql::MySqlStore;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use options::Options;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;

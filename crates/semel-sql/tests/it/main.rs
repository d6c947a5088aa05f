//! The stores on real databases, each started for these tests alone.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod figures;
mod mysql;
mod postgres;
mod tls;

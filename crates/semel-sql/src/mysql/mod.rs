#![doc = include_str!("../../mysql.md")]

mod admin;
mod calls;
mod claim;
mod connect;
mod decide;
mod facts;
mod fault;
mod health;
mod inspect;
mod mark;
mod migrate;
mod numbers;
#[cfg(feature = "testing")]
mod plant;
mod renew;
mod row;
mod server;
mod settle;
mod sql;
mod store;

pub use store::MySqlStore;

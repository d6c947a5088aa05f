#![doc = include_str!("redis.md")]

mod address;
mod error;
mod inspect;
mod link;
mod mark;
mod names;
mod options;
mod reply;
mod scan;
mod script;
mod store;
mod topology;
mod verdict;
mod wake;

pub use address::BadUrl;
pub use error::ConnectError;
pub use options::Options;
#[cfg(feature = "tls")]
pub use options::Tls;
pub use store::RedisStore;

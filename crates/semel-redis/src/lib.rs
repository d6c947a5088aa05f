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
mod stored;
#[cfg(feature = "tls")]
mod tls;
mod topology;
mod verdict;
mod wake;

pub use address::BadUrl;
pub use error::ConnectError;
pub use options::Options;
pub use store::RedisStore;
#[cfg(feature = "tls")]
pub use tls::{BadTls, Tls, TlsPart};

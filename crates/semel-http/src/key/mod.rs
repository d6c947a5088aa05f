//! Where the client's key comes from, and what is one.

mod error;
mod extract;
mod parse;
mod pattern;

pub use error::KeyError;
pub use extract::{ExtractKey, FirstOf, HeaderKey, first, header};
pub use parse::{MAX_LEN, Syntax, parse};
pub use pattern::{Pattern, PatternError};

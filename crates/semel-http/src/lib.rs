//! Semel as a tower layer.

pub mod classify;
pub mod fingerprint;
pub mod key;
mod mark;
pub mod names;
pub mod principal;
mod replay;
mod view;

pub use mark::Mark;
pub use replay::ReplayHeaders;
pub use view::RequestView;

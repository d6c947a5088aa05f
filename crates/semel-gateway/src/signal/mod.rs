//! How a connection is woken: by its peer, by its own pieces, by its deadline.

mod bell;
mod readable;
mod timer;

pub(crate) use bell::Bell;
pub(crate) use readable::Readable;
pub(crate) use timer::Deadline;

//! The commands as a user meets them: the binary for `prove`, the library for the parts of `demo`.

mod check;
mod demo;
mod endpoints;
mod gateway;
mod prove;
mod semel;

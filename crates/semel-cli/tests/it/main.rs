//! The commands as a user meets them: the binary for `prove`, the library for the parts of `demo`; under `system` the
//! gateway with storms, crashes and hostile clients; under `chaos` several of them before one store, and what can happen
//! to either.

mod chaos;
mod check;
mod demo;
mod doctor;
mod endpoints;
mod gateway;
mod keys;
mod meddler;
mod messages;
mod migrate;
mod prove;
mod prove_progress;
mod semel;
mod shared;
mod system;
mod through;
mod tls;

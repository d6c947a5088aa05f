//! Clients that end their side of the connection and wait for the answer.

use std::{future::Future, pin::Pin};

use super::edge::Named;

/// An answer to come that may or may not be of use when its client has ended its side.
///
/// HTTP/1.1 lets a client end its side once the request is out. On the wire that looks like a client that has gone. What
/// is guarded runs to its end whatever the client does, so its answer is sent either way: where nobody is there any more,
/// the first bytes of it find out. What nobody guards is given up, as with most servers: else each client that lost
/// patience would leave its work running in the service.
pub trait Lasting {
    /// Whether the request goes on without its client.
    fn lasts(&self) -> bool;
}

impl<F, R, E> Lasting for semel_http::ResponseFuture<F, R, E> {
    fn lasts(&self) -> bool {
        self.is_guarded()
    }
}

impl<F: Lasting> Lasting for Named<F> {
    fn lasts(&self) -> bool {
        self.answer().lasts()
    }
}

/// Whatever is behind a box is given up with its client.
impl<F: Future + ?Sized> Lasting for Pin<Box<F>> {
    fn lasts(&self) -> bool {
        false
    }
}

//! The socket of a client's connection, telling what moves.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::StatusCode;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{accept::Seat, line::Line, refusal};
use crate::signal::Readable;

pub(super) struct Socket {
    stream: TcpStream,
    line: Arc<Line>,
    ended: bool,
    /// hyper's own answer to a head that it could not read, held back.
    held: Option<StatusCode>,
    readable: Readable,
    _seat: Seat,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, line: Arc<Line>, seat: Seat) -> Self {
        Self { stream, line, ended: false, held: None, readable: Readable::default(), _seat: seat }
    }

    /// The socket, whether the client has ended its side, and the status of the answer that was held back.
    pub(super) fn into_parts(self) -> (TcpStream, bool, Option<StatusCode>) {
        (self.stream, self.ended, self.held)
    }
}

impl AsyncRead for Socket {
    #[inline]
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let Self { stream, readable, .. } = &mut *self;
        let polled = readable.poll(cx, |cx| Pin::new(stream).poll_read(cx, buf));
        match &polled {
            Poll::Pending => {}
            Poll::Ready(Ok(())) if buf.filled().len() > before => self.line.received(),
            Poll::Ready(end) => {
                self.ended = true;
                // Nothing wakes whoever asked: the connection asks again when the answer is out.
                if end.is_ok() && self.line.keeps_end() {
                    return Poll::Pending;
                }
            }
        }
        polled
    }
}

impl AsyncWrite for Socket {
    #[inline]
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.line.is_in_head()
            && let Some(status) = refusal::of_hyper(buf)
        {
            self.held = Some(status);
            return Poll::Ready(Ok(buf.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.line.written(polled.is_pending());
        polled
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // There is something left to say.
        if self.held.is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

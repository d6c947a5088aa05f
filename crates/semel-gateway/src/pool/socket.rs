//! The socket of an upstream connection, counting what was written.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::link::Line;
use crate::signal::Readable;

pub(super) struct Socket {
    stream: TokioIo<TcpStream>,
    line: Arc<Line>,
    readable: Readable,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, line: Arc<Line>) -> Self {
        Self { stream: TokioIo::new(stream), line, readable: Readable::default() }
    }

    pub(super) fn into_inner(self) -> TcpStream {
        self.stream.into_inner()
    }
}

impl Read for Socket {
    #[inline]
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let Self { stream, readable, .. } = &mut *self;
        readable.poll(cx, |cx| Pin::new(stream).poll_read(cx, buf))
    }
}

impl Write for Socket {
    #[inline]
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(n)) = polled {
            self.line.count(n);
        }
        polled
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    // Head and a small body in one flat buffer cost fewer instructions than a vector of two, and one system call both.
    fn is_write_vectored(&self) -> bool {
        false
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = bufs.iter().find(|b| !b.is_empty()).map_or(&[][..], |b| &**b);
        self.poll_write(cx, first)
    }
}

impl Line {
    /// Only the task that drives the connection writes: no read-modify-write is needed.
    #[inline]
    fn count(&self, n: usize) {
        let before = self.written.load(Ordering::Relaxed);
        self.written.store(before.wrapping_add(n as u64), Ordering::Relaxed);
    }
}

//! Reading along: where a request or an answer ends, and what is asked.

mod mysql;
mod postgres;
mod resp;
#[cfg(test)]
mod tests;

use super::Way;

/// What is spoken through a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaks {
    /// Not known: what is read at once from the client is a request, and what comes from the server after it is its
    /// answer.
    Anything,
    /// The protocol of Redis and Valkey, 2 or 3. A connection that has subscribed gets answers nobody asked for: there
    /// no rule can be about an answer.
    Redis,
    /// The protocol of PostgreSQL, version 3. A request ends where the server is told to answer (`Sync` or `Query`);
    /// prepared statements are known by their text.
    Postgres,
    /// The protocol of MySQL and MariaDB. Prepared statements are known by their text.
    MySql,
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// All its bytes.
    pub bytes: &'a [u8],
    /// The text of the SQL statement, also where it was prepared earlier; empty elsewhere.
    pub statement: &'a str,
    /// Whether it executes something; false where a statement is only prepared or closed.
    pub executes: bool,
}

impl Request<'_> {
    /// Whether the words stand in its statement or its bytes, upper or lower case alike.
    #[must_use]
    pub fn contains(&self, words: &str) -> bool {
        let words = words.as_bytes();
        let within = |text: &[u8]| text.windows(words.len().max(1)).any(|w| w.eq_ignore_ascii_case(words));
        within(self.statement.as_bytes()) || within(self.bytes)
    }
}

/// Something that goes on, or does not, as one.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    /// A request or an answer ends with it.
    pub(super) ends: bool,
    /// Nobody asked for it.
    pub(super) is_push: bool,
    asked: Option<Asked>,
}

#[derive(Default, Debug)]
struct Asked {
    statement: String,
    executes: bool,
}

impl Piece {
    /// Bytes that mean nothing here.
    pub(super) const fn opaque(bytes: Vec<u8>) -> Self {
        Self { bytes, ends: false, is_push: false, asked: None }
    }

    const fn end(bytes: Vec<u8>) -> Self {
        Self { bytes, ends: true, is_push: false, asked: None }
    }

    const fn push(bytes: Vec<u8>) -> Self {
        Self { bytes, ends: false, is_push: true, asked: None }
    }

    const fn asks(bytes: Vec<u8>, statement: String, executes: bool) -> Self {
        Self { bytes, ends: true, is_push: false, asked: Some(Asked { statement, executes }) }
    }

    pub(super) fn request(&self) -> Option<Request<'_>> {
        let asked = self.asked.as_ref()?;
        Some(Request { bytes: &self.bytes, statement: &asked.statement, executes: asked.executes })
    }
}

/// One connection, read along.
pub(super) struct Lens {
    protocol: Protocol,
    /// What was read and is not whole yet.
    unread: [Vec<u8>; 2],
}

enum Protocol {
    Anything,
    Redis,
    Postgres(postgres::Session),
    MySql(mysql::Session),
}

impl Lens {
    pub(super) fn new(speaks: Speaks) -> Self {
        let protocol = match speaks {
            Speaks::Anything => Protocol::Anything,
            Speaks::Redis => Protocol::Redis,
            Speaks::Postgres => Protocol::Postgres(postgres::Session::default()),
            Speaks::MySql => Protocol::MySql(mysql::Session::default()),
        };
        Self { protocol, unread: Default::default() }
    }

    /// Whether answers are counted one by one. Otherwise what comes is for whatever was asked before.
    pub(super) const fn numbers_replies(&self) -> bool {
        matches!(self.protocol, Protocol::Redis | Protocol::Postgres(_))
    }

    /// What the client said.
    pub(super) fn client(&mut self, bytes: &[u8], out: &mut Vec<Piece>) {
        let unread = &mut self.unread[Way::There as usize];
        unread.extend_from_slice(bytes);
        match &mut self.protocol {
            Protocol::Anything => out.push(Piece::asks(std::mem::take(unread), String::new(), true)),
            Protocol::Redis => take_all(unread, out, |bytes| resp::command(bytes).map(|n| (n, resp::ask(bytes, n)))),
            Protocol::Postgres(session) => session.client(unread, out),
            Protocol::MySql(session) => take_all(unread, out, |bytes| session.client(bytes)),
        }
    }

    /// What the server said.
    pub(super) fn server(&mut self, bytes: &[u8], out: &mut Vec<Piece>) {
        let unread = &mut self.unread[Way::Back as usize];
        unread.extend_from_slice(bytes);
        match &mut self.protocol {
            Protocol::Anything => out.push(Piece::end(std::mem::take(unread))),
            Protocol::Redis => take_all(unread, out, resp::reply),
            Protocol::Postgres(session) => take_all(unread, out, |bytes| session.server(bytes)),
            Protocol::MySql(session) => take_all(unread, out, |bytes| session.server(bytes)),
        }
    }

    /// What was read and is not whole.
    pub(super) fn rest(&mut self, way: Way) -> Vec<u8> {
        std::mem::take(&mut self.unread[way as usize])
    }
}

/// Takes whole messages from the front, as long as there is one: how long it is, and the piece it is.
fn take_all(unread: &mut Vec<u8>, out: &mut Vec<Piece>, mut next: impl FnMut(&[u8]) -> Option<(usize, Piece)>) {
    let mut at = 0;
    while let Some((length, piece)) = next(&unread[at..]) {
        at += length;
        out.push(piece);
    }
    unread.drain(..at);
}

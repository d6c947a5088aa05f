//! The protocol of PostgreSQL: <https://www.postgresql.org/docs/current/protocol-message-formats.html>.

use std::collections::HashMap;

use super::Piece;

/// One connection.
#[derive(Default)]
pub(super) struct Session {
    /// Statements by the name they were prepared under.
    prepared: HashMap<String, String>,
    /// The client has said who it is.
    started: bool,
    /// The server is to answer with one letter whether it encrypts.
    letter: bool,
    /// The request that is being put together.
    asking: Asking,
}

#[derive(Default)]
struct Asking {
    bytes: Vec<u8>,
    statements: Vec<String>,
    executes: bool,
}

const ENCRYPTS: [u32; 2] = [80_877_103, 80_877_104];

impl Session {
    /// A message goes on with the request it belongs to.
    pub(super) fn client(&mut self, unread: &mut Vec<u8>, out: &mut Vec<Piece>) {
        let mut at = 0;
        while let Some(length) = self.length(&unread[at..]) {
            let message = &unread[at..at + length];
            at += length;
            if !self.started {
                out.push(self.start(message));
                continue;
            }
            self.asking.bytes.extend_from_slice(message);
            self.hear(message[0], &message[5..]);
            match message[0] {
                b'Q' | b'S' | b'F' => {
                    let asking = std::mem::take(&mut self.asking);
                    out.push(Piece::asks(asking.bytes, asking.statements.join("; "), asking.executes));
                }
                // A password, an end, and a client that wants to see what comes so far.
                b'p' | b'X' | b'H' | b'd' | b'c' | b'f' => {
                    out.push(Piece::opaque(std::mem::take(&mut self.asking.bytes)));
                }
                _ => {}
            }
        }
        unread.drain(..at);
    }

    fn length(&self, bytes: &[u8]) -> Option<usize> {
        let kind = usize::from(self.started);
        let length = usize::try_from(number(bytes.get(kind..kind + 4)?)).ok()?.max(4) + kind;
        (bytes.len() >= length).then_some(length)
    }

    /// Before anything else: encryption, a cancellation, or who the client is.
    fn start(&mut self, message: &[u8]) -> Piece {
        let code = message.get(4..8).map_or(0, number);
        self.letter = ENCRYPTS.contains(&code);
        self.started = code >> 16 == 3;
        // The server answers to who it is as to a request, and nobody can lose that by a rule.
        if self.started { Piece::end(message.to_vec()) } else { Piece::opaque(message.to_vec()) }
    }

    fn hear(&mut self, kind: u8, body: &[u8]) {
        match kind {
            b'Q' => {
                self.asking.statements.push(text(body).0);
                self.asking.executes = true;
            }
            b'P' => {
                let (name, rest) = text(body);
                let statement = text(rest).0;
                self.asking.statements.push(statement.clone());
                self.prepared.insert(name, statement);
            }
            b'B' => {
                let (_portal, rest) = text(body);
                let statement = self.prepared.get(&text(rest).0).cloned().unwrap_or_default();
                if !self.asking.statements.contains(&statement) {
                    self.asking.statements.push(statement);
                }
            }
            b'E' | b'F' => self.asking.executes = true,
            _ => {}
        }
    }

    pub(super) fn server(&mut self, bytes: &[u8]) -> Option<(usize, Piece)> {
        if self.letter {
            let letter = bytes.get(..1)?;
            self.letter = false;
            return Some((1, Piece::opaque(letter.to_vec())));
        }
        let length = usize::try_from(number(bytes.get(1..5)?)).ok()?.max(4) + 1;
        let message = bytes.get(..length)?.to_vec();
        let piece = match message[0] {
            b'Z' => Piece::end(message),
            // Notifications come at any time.
            b'A' => Piece::push(message),
            _ => Piece::opaque(message),
        };
        Some((length, piece))
    }
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |n, byte| n << 8 | u32::from(*byte))
}

/// A text up to its zero byte, and what follows.
fn text(bytes: &[u8]) -> (String, &[u8]) {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    (String::from_utf8_lossy(&bytes[..end]).into_owned(), bytes.get(end + 1..).unwrap_or_default())
}

//! The protocol of MySQL and MariaDB: <https://mariadb.com/kb/en/clientserver-protocol/>.

use std::collections::HashMap;

use super::Piece;

/// One connection.
#[derive(Default)]
pub(super) struct Session {
    /// Statements by the number that the server gave them.
    prepared: HashMap<u32, String>,
    /// A statement whose number the server is about to say.
    preparing: Option<String>,
}

const QUERY: u8 = 0x03;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;

impl Session {
    /// Commands begin with packet 0; other packets belong to the greeting, or go on with a command.
    pub(super) fn client(&mut self, bytes: &[u8]) -> Option<(usize, Piece)> {
        let (number, body) = packet(bytes)?;
        let whole = bytes[..4 + body.len()].to_vec();
        let piece = match (number, body.first().copied()) {
            (0, Some(command)) => {
                let said = &body[1..];
                let text = || String::from_utf8_lossy(said).into_owned();
                let (statement, executes) = match command {
                    QUERY => (text(), true),
                    PREPARE => {
                        self.preparing = Some(text());
                        (text(), false)
                    }
                    EXECUTE => {
                        let prepared = said.get(..4).and_then(|number| self.prepared.get(&little(number)));
                        (prepared.cloned().unwrap_or_default(), true)
                    }
                    _ => (String::new(), false),
                };
                Piece::asks(whole, statement, executes)
            }
            _ => Piece::opaque(whole),
        };
        Some((4 + body.len(), piece))
    }

    /// Where an answer of several packets ends cannot be told without reading it all; the first packet ends what a rule
    /// is about: a statement that changed something answers with one.
    pub(super) fn server(&mut self, bytes: &[u8]) -> Option<(usize, Piece)> {
        let (_, body) = packet(bytes)?;
        if let Some(statement) = self.preparing.take()
            && let Some([0, number @ ..]) = body.get(..5)
        {
            self.prepared.insert(little(number), statement);
        }
        Some((4 + body.len(), Piece::end(bytes[..4 + body.len()].to_vec())))
    }
}

/// The number and the body of the packet at the beginning, if it is whole.
fn packet(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let length = usize::try_from(little(bytes.get(..3)?)).ok()?;
    Some((*bytes.get(3)?, bytes.get(4..4 + length)?))
}

fn little(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte))
}

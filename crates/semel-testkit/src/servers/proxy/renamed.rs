//! Servers that tell their client where others are, and say something else when it arrives.

/// Ports instead of ports, both in five digits: whatever counts the bytes of a reply stays true.
#[derive(Default, Debug)]
pub(super) struct Renamed(Vec<([u8; DIGITS], [u8; DIGITS])>);

const DIGITS: usize = 5;

/// A reply without it is about no server.
const LOOPBACK: &[u8] = b"127.0.0.1";

impl Renamed {
    pub(super) fn add(&mut self, from: u16, to: u16) {
        let digits = |port: u16| {
            let text = port.to_string().into_bytes();
            text.try_into().unwrap_or_else(|_| panic!("port {port} has fewer than {DIGITS} digits"))
        };
        self.0.push((digits(from), digits(to)));
    }

    /// Renames what a reply tells.
    pub(super) fn of(&self, reply: &mut [u8]) {
        if self.0.is_empty() || !reply.windows(LOOPBACK.len()).any(|part| part == LOOPBACK) {
            return;
        }
        let mut at = 0;
        while at < reply.len() {
            let length = reply[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if length == DIGITS
                && let Some((_, to)) = self.0.iter().find(|(from, _)| *from == reply[at..at + DIGITS])
            {
                reply[at..at + DIGITS].copy_from_slice(to);
            }
            at += length.max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(reply: &str) -> String {
        let mut renamed = Renamed::default();
        renamed.add(40_001, 50_001);
        renamed.add(40_002, 50_002);
        let mut bytes = reply.as_bytes().to_vec();
        renamed.of(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_port_is_renamed_wherever_a_reply_says_where_a_server_is() {
        for (said, read) in [
            ("-MOVED 3999 127.0.0.1:40001\r\n", "-MOVED 3999 127.0.0.1:50001\r\n"),
            ("-ASK 3999 127.0.0.1:40002\r\n", "-ASK 3999 127.0.0.1:50002\r\n"),
            ("*2\r\n$9\r\n127.0.0.1\r\n$5\r\n40001\r\n", "*2\r\n$9\r\n127.0.0.1\r\n$5\r\n50001\r\n"),
            ("*2\r\n$9\r\n127.0.0.1\r\n:40002\r\n:40003\r\n", "*2\r\n$9\r\n127.0.0.1\r\n:50002\r\n:40003\r\n"),
            ("semel 127.0.0.1 40001 127.0.0.1 40002", "semel 127.0.0.1 50001 127.0.0.1 50002"),
        ] {
            assert_eq!(told(said), read);
        }
    }

    #[test]
    fn numbers_that_are_no_ports_stay() {
        for said in ["$5\r\n40001\r\n", "-MOVED 3999 127.0.0.1:140001\r\n", "127.0.0.1:4000", "127.0.0.1 400012"] {
            assert_eq!(told(said), said);
        }
    }
}

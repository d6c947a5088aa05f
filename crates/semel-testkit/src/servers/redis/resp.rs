//! Just enough of the protocol to tell a test's server what to do, independent of the client under test.

use std::{io, net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A server's reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// Nothing there.
    Nil,
    /// A number.
    Int(i64),
    /// A status or a string.
    Text(Vec<u8>),
    /// An error.
    Error(String),
    /// A list.
    List(Vec<Said>),
}

impl Said {
    /// As text; empty where it is none.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Int(n) => n.to_string(),
            Self::Error(words) => words.clone(),
            Self::Nil | Self::List(_) => String::new(),
        }
    }

    /// As a list; empty where it is none.
    #[must_use]
    pub fn list(&self) -> &[Said] {
        if let Self::List(list) = self { list } else { &[] }
    }

    /// As a number, also where the server writes it as text.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        if let Self::Int(n) = self { Some(*n) } else { self.text().parse().ok() }
    }

    /// The value of `field:` in what INFO says.
    #[must_use]
    pub fn field(&self, field: &str) -> Option<String> {
        let text = self.text();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }
}

/// Sends one command to whoever listens on a port of the loopback, on a connection of its own.
///
/// # Errors
/// When nobody answers in time; an error that is answered is an answer.
pub async fn ask(port: u16, command: &[&[u8]]) -> io::Result<Said> {
    let asking = async {
        let mut stream = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?);
        let mut out = format!("*{}\r\n", command.len()).into_bytes();
        for part in command {
            out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
        }
        stream.get_mut().write_all(&out).await?;
        reply(&mut stream).await
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn reply(stream: &mut BufReader<TcpStream>) -> io::Result<Said> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (kind, words) = line.trim_end().split_at(1);
    let number = || words.parse::<i64>().map_err(io::Error::other);
    Ok(match kind {
        "+" => Said::Text(words.as_bytes().to_vec()),
        "-" => Said::Error(words.to_owned()),
        ":" => Said::Int(number()?),
        "$" => match usize::try_from(number()?) {
            Ok(len) => {
                let mut bytes = vec![0; len + 2];
                stream.read_exact(&mut bytes).await?;
                bytes.truncate(len);
                Said::Text(bytes)
            }
            Err(_) => Said::Nil,
        },
        "*" => match usize::try_from(number()?) {
            Ok(len) => {
                let mut list = Vec::new();
                for _ in 0..len {
                    list.push(Box::pin(reply(stream)).await?);
                }
                Said::List(list)
            }
            Err(_) => Said::Nil,
        },
        _ => return Err(io::Error::other(format!("no reply of this protocol: {line:?}"))),
    })
}

//! Listening sockets, one per runtime on the same address.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener},
};

use socket2::{Domain, Protocol, Socket, Type};

/// Why the server cannot listen: where, why, and what to do.
#[derive(Debug)]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

impl BindError {
    /// The address that was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, source } = self;
        write!(f, "cannot listen on {address}: ")?;
        match source.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                "another process listens there, or has it as the local end of a connection. Stop it \
                 (`ss -tanp 'sport = :{}'` names it) or choose another port",
                address.port()
            ),
            io::ErrorKind::PermissionDenied if address.port() < 1024 => {
                f.write_str("ports below 1024 need a privilege. Choose a higher port, or grant CAP_NET_BIND_SERVICE")
            }
            io::ErrorKind::AddrNotAvailable => {
                f.write_str("this machine has no such address. Use one that `ip address` lists, or 0.0.0.0 for all")
            }
            _ => write!(f, "{source}"),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// `count` listeners on one address; for port 0 all share the port that the first one got.
pub(super) fn bind(
    address: SocketAddr,
    count: usize,
    backlog: i32,
) -> Result<(Vec<TcpListener>, SocketAddr), BindError> {
    let failed = |source| BindError { address, source };
    // With SO_REUSEPORT a second gateway would take half of the connections without a word. A socket without it
    // finds out whether somebody listens already.
    if count > 1 && address.port() != 0 {
        open(address, false, None).map_err(failed)?;
    }
    let mut listeners: Vec<TcpListener> = Vec::with_capacity(count);
    let mut at = address;
    for _ in 0..count {
        let listener = open(at, count > 1, Some(backlog)).map_err(failed)?;
        at = listener.local_addr().map_err(failed)?;
        listeners.push(listener);
    }
    Ok((listeners, at))
}

/// Whether an address can be had, without listening there.
pub(crate) fn probe(address: SocketAddr) -> Result<(), BindError> {
    open(address, false, None).map(drop).map_err(|source| BindError { address, source })
}

fn open(at: SocketAddr, share: bool, backlog: Option<i32>) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a former run in TIME_WAIT must not stop a restart.
    socket.set_reuse_address(true)?;
    if share {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    if let Some(backlog) = backlog {
        socket.listen(backlog)?;
    }
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_listeners_share_the_port_that_the_first_one_got() {
        let (all, _) = bind(([127, 0, 0, 1], 0).into(), 3, 16).unwrap();
        let ports: Vec<_> = all.iter().map(|l| l.local_addr().unwrap().port()).collect();
        assert!(ports[0] != 0 && ports.iter().all(|p| *p == ports[0]), "{ports:?}");
    }

    #[test]
    fn a_second_server_on_the_same_port_is_told_so() {
        let (_first, at) = bind(([127, 0, 0, 1], 0).into(), 2, 16).unwrap();
        for count in [1, 2] {
            let said = bind(at, count, 16).unwrap_err().to_string();
            assert!(said.contains(&at.to_string()) && said.contains("another process"), "{said}");
        }
    }

    #[test]
    fn a_port_that_is_the_end_of_a_connection_is_not_said_to_be_listened_on() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let said = bind(client.local_addr().unwrap(), 1, 16).unwrap_err().to_string();
        assert!(said.contains("or has it as the local end of a connection"), "{said}");
        assert!(said.contains("ss -tanp"), "{said}");
    }

    #[test]
    fn an_address_of_another_machine_is_named() {
        let said = bind(([192, 0, 2, 1], 0).into(), 1, 16).unwrap_err().to_string();
        assert!(said.contains("192.0.2.1") && said.contains("no such address"), "{said}");
    }
}

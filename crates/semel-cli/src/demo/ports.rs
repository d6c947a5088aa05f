//! Which addresses the demo takes: the asked one or none; the usual one or a free one.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::exit::Failure;

/// A bound listener and, where the usual port was taken, the sentence that says so.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) listener: TcpListener,
    pub(crate) note: Option<String>,
}

/// `asked` is what the flag says; without it `usual` is tried first.
pub(crate) fn take(flag: &str, asked: Option<SocketAddr>, usual: u16) -> Result<Taken, Failure> {
    if let Some(address) = asked {
        if !address.ip().is_loopback() {
            let why = format!("{flag} {address}: the demo opens nothing outside loopback; use 127.0.0.1 or [::1]");
            return Err(Failure::usage(why));
        }
        let listener = TcpListener::bind(address).map_err(|error| {
            let way_out = "Give another address, or leave the flag out: then a free port is taken.";
            Failure::runtime(format!("cannot listen on {address} ({flag}): {error}. {way_out}"))
        })?;
        return Ok(Taken { listener, note: None });
    }
    match TcpListener::bind((Ipv4Addr::LOCALHOST, usual)) {
        Ok(listener) => Ok(Taken { listener, note: None }),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let free = listener.local_addr()?.port();
            Ok(Taken { listener, note: Some(format!("Port {usual} is taken; {free} is used instead ({flag}).")) })
        }
        Err(error) => Err(Failure::runtime(format!("cannot listen on 127.0.0.1:{usual} ({flag}): {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_port_gives_way_and_an_asked_one_does_not() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        let taken = take("--listen", None, address.port()).unwrap();
        assert!(taken.note.unwrap().contains("is taken"));
        let failure = take("--listen", Some(address), 8080).unwrap_err();
        assert!(failure.to_string().contains("--listen") && failure.to_string().contains("free port"), "{failure}");
        assert!(
            take("--listen", Some("0.0.0.0:0".parse().unwrap()), 8080).unwrap_err().to_string().contains("loopback")
        );
    }
}

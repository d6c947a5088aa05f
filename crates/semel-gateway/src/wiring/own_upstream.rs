//! Whether an upstream is the gateway itself: every request would come back until no connection is left.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::StartError;
use crate::config::Config;

/// Refuses an upstream that leads to one of the gateway's own addresses, however it is spelled. A name that cannot be
/// looked up now is not judged.
pub(super) async fn check(config: &Config, http: SocketAddr, admin: SocketAddr) -> Result<(), StartError> {
    for upstream in &config.upstreams {
        let (host, port) = (upstream.url.host(), upstream.url.port());
        if port != http.port() && port != admin.port() {
            continue;
        }
        // A name server that does not answer must not hold up the start.
        let looked_up = tokio::time::timeout(*upstream.connect, tokio::net::lookup_host((host, port))).await;
        let Ok(Ok(addresses)) = looked_up else { continue };
        for address in addresses {
            if let Some(own) = [http, admin].into_iter().find(|own| is_served_at(*own, address)) {
                return Err(StartError::OwnUpstream {
                    upstream: upstream.name.to_string(),
                    url: upstream.url.value.to_string(),
                    own,
                });
            }
        }
    }
    Ok(())
}

/// Whether a connection to `target` comes in at `listener`.
fn is_served_at(listener: SocketAddr, target: SocketAddr) -> bool {
    if listener.port() != target.port() {
        return false;
    }
    let (listens, goes) = (listener.ip().to_canonical(), target.ip().to_canonical());
    // The unspecified address means this machine, to whoever connects to it.
    let goes_to_loopback = goes.is_loopback() || goes.is_unspecified();
    match listens.is_unspecified() {
        // `[::]` takes IPv4 as well, `0.0.0.0` no IPv6.
        true => (listens.is_ipv6() || goes.is_ipv4()) && (goes_to_loopback || is_of_this_machine(goes)),
        false => {
            goes == listens || (goes.is_unspecified() && listens.is_loopback() && goes.is_ipv4() == listens.is_ipv4())
        }
    }
}

/// Only an address of the machine can be bound.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_address_is_known_in_every_spelling() {
        let served = |listener: &str, target: &str| is_served_at(listener.parse().unwrap(), target.parse().unwrap());
        for (listener, target, is_own) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:80", "0.0.0.0:80", true),
            ("127.0.0.1:80", "[::1]:80", false),
            ("127.0.0.1:80", "[::ffff:127.0.0.1]:80", true),
            ("0.0.0.0:80", "127.9.9.9:80", true),
            ("0.0.0.0:80", "0.0.0.0:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("0.0.0.0:80", "192.0.2.1:80", false),
            ("[::]:80", "[::1]:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::]:80", "[2001:db8::1]:80", false),
            ("[::1]:80", "[::]:80", true),
            ("10.0.0.7:80", "10.0.0.7:80", true),
            ("10.0.0.7:80", "127.0.0.1:80", false),
        ] {
            assert_eq!(served(listener, target), is_own, "{listener} and {target}");
        }
    }
}

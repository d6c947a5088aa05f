//! Whether the upstreams can be reached. Nothing is sent.

use semel_gateway::config::Config;
use tokio::net::TcpStream;

use super::finding::{Checked, Level};

pub(super) async fn look(config: &Config, found: &mut Vec<Checked>) {
    for upstream in &config.upstreams {
        let url = &upstream.url.value;
        let connect = TcpStream::connect((url.host(), url.port()));
        let why = match tokio::time::timeout(*upstream.connect, connect).await {
            Ok(Ok(_reached)) => {
                found.push(Checked::new(Level::Fine, "upstream", format!("`{}` answers at {url}", upstream.name)));
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no connection in time".to_owned(),
        };
        found.push(
            Checked::new(Level::Error, "upstream", format!("`{}` cannot be reached at {url}: {why}", upstream.name))
                .why("requests for it get 502")
                .fix("start the service, or mend the address"),
        );
    }
}

//! Whether the upstreams are there when the gateway starts: a wrong port is told before the first request finds it.

use semel_core::env::Env;
use tokio::net::TcpStream;

use crate::config::Config;

/// Tries to connect to each upstream once, in tasks of their own, and says which cannot be reached. Nothing is sent.
/// Must be called inside a tokio runtime.
pub(super) fn tell(config: &Config, env: &Env) {
    for upstream in &config.upstreams {
        let (name, url, patience) = (upstream.name.to_string(), upstream.url.value.clone(), *upstream.connect);
        let task = async move {
            let why = match tokio::time::timeout(patience, TcpStream::connect((url.host(), url.port()))).await {
                Ok(Ok(_reached)) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no connection in time".to_owned(),
            };
            tracing::warn!(upstream = name, "{url} cannot be reached: {why}; requests get 502 until it can");
        };
        env.tasks.spawn("semel reach", Box::pin(task));
    }
}

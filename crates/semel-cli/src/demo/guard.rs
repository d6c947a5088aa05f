//! The gateway of the demo: the one that `semel gateway --upstream …` runs, in this process.

use semel_gateway::{
    config::{Config, Flags},
    wiring,
};

use super::{Gateway, Wanted};

/// Starts the gateway on the embedded store, with no configuration but the service's address.
///
/// # Errors
/// The store cannot be opened, an address cannot be used; in words.
pub async fn start(wanted: Wanted) -> anyhow::Result<Gateway> {
    let flags = Flags {
        upstream: Some(wanted.upstream),
        listen: Some(wanted.listen.to_string()),
        admin: Some(wanted.admin.to_string()),
        store: Some("embedded".to_owned()),
        data_dir: Some(wanted.data_dir.display().to_string()),
        ..Flags::default()
    };
    let config = Config::from_parts(None, &flags).map_err(|refused| anyhow::anyhow!("{refused}"))?;
    let gateway = wiring::start(&config, env!("CARGO_PKG_VERSION")).await?;
    Ok(Gateway {
        http: gateway.http(),
        admin: gateway.admin(),
        stop: Box::pin(async move {
            let _stopped = gateway.stop().await;
        }),
    })
}

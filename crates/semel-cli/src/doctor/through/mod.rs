//! `semel doctor --through URL`: marked requests through the whole chain, as clients send theirs.
//!
//! - `ask`: what is sent, and what comes back.
//! - `way`: what one request shows of the way: fields dropped, rewritten, let through that should not be.
//! - `gateways`: what many copies show of the gateways behind the way: one store, one secret, the same rules and time.

mod ask;
mod gateways;
mod way;

use std::path::PathBuf;

use semel_core::identity::Secret;
use semel_gateway::config::{Config, StoreUrl};
use semel_gateway::stores;

use self::ask::{Asker, Place};
use super::finding::{Checked, Level};
use crate::exit::Failure;
use crate::prove::{Target, Trust};

/// What `--through` was given.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Through {
    /// Send marked requests to this address, through all that stands before the gateways; may be given several times
    #[arg(long, env = "SEMEL_DOCTOR_THROUGH", value_name = "PUBLIC-URL", value_delimiter = ' ')]
    pub through: Vec<Target>,

    /// A header field of those requests, such as the log-in that a proxy wants, 'Name: value'
    #[arg(
        long = "header",
        env = "SEMEL_DOCTOR_HEADER",
        hide_env_values = true,
        value_name = "'K: V'",
        requires = "through"
    )]
    pub headers: Vec<String>,

    /// File with the certificate of an authority (PEM) that https:// addresses are believed for, beside the machine's
    #[arg(long, env = "SEMEL_DOCTOR_CA", value_name = "FILE", requires = "through")]
    pub ca: Option<PathBuf>,
}

/// The secret of the gateways, as far as it can be known here.
pub(super) fn secret(config: &Config, of_store: Option<Secret>) -> Result<Secret, Box<Checked>> {
    let cannot = |what: &str, fix: &str| {
        let why = "a gateway answers these requests to holders of its secret alone";
        Box::new(Checked::new(Level::Error, "through", what).why(why).fix(fix))
    };
    // The memory store's secret dies with the process that made it: the one at hand here is not the gateway's.
    let of_store = of_store.filter(|_| *config.store.url != StoreUrl::Memory);
    if let Some(secret) = of_store {
        return Ok(secret);
    }
    match stores::secret_of(&config.store, config.secret_file.as_ref()) {
        Ok(Some(secret)) => Ok(secret),
        Ok(None) if *config.store.url == StoreUrl::Memory => Err(cannot(
            "nothing was sent: the secret of a memory store is known to its gateway alone",
            "give the gateways a secret_file",
        )),
        Ok(None) => Err(cannot(
            "nothing was sent: without the store its secret is not known",
            "mend the store first, or name secret_file",
        )),
        Err(error) => Err(cannot(&format!("nothing was sent: {}", error.what()), error.cure().unwrap_or_default())),
    }
}

/// Sends the requests and says what they show.
///
/// # Errors
/// Usage: a field that cannot be one, a file of --ca that is none. Runtime: the system has no randomness.
pub(super) async fn look(
    args: &Through,
    config: &Config,
    secret: &Secret,
    found: &mut Vec<Checked>,
) -> Result<(), Failure> {
    let asker = Asker::new(args, config, secret)?;
    let trust = Trust::with(args.ca.as_deref())?;
    let mut reached = Vec::new();
    for target in &args.through {
        let place = match Place::find(target, &trust).await {
            Ok(place) => place,
            Err(why) => {
                found.push(Checked::new(Level::Error, "through", why).fix("mend the address"));
                continue;
            }
        };
        if way::look(&asker, &place, found).await? {
            reached.push(place);
        }
    }
    if !reached.is_empty() {
        gateways::look(&asker, &reached, config, found).await?;
    }
    Ok(())
}

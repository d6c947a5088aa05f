//! Addresses where a command wants something else: what takes them there.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use semel_gateway::config::{Flags, StoreConfig};

/// How a command is told of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// `--store` and `--upstream`: gateway, check, doctor.
    Both,
    /// `--store` alone: keys.
    Store,
    /// A database as its argument: migrate.
    Database,
}

impl Takes {
    /// The command of this name; `None` for one that no store is named to.
    #[must_use]
    pub fn of(command: &str) -> Option<Self> {
        match command {
            "gateway" | "check" | "doctor" => Some(Self::Both),
            "keys" => Some(Self::Store),
            "migrate" => Some(Self::Database),
            _ => None,
        }
    }

    fn tip(self, address: &Address) -> String {
        match (self, address) {
            (Self::Both | Self::Store, Address::Store(shown)) => format!("a store is named with --store {shown}"),
            (Self::Both, Address::Service(shown)) => format!("a service is named with --upstream {shown}"),
            (Self::Store, Address::Service(_)) => {
                "the records of a gateway are in its store: name that with --store URL, or the gateway's file with -c FILE"
                    .to_owned()
            }
            (Self::Database, Address::Store(shown)) => {
                format!("the database is named without a flag: semel migrate {shown}")
            }
            (Self::Database, Address::Service(_)) => {
                "the database is named without a flag: semel migrate postgres://USER@HOST/DATABASE".to_owned()
            }
        }
    }
}

/// An address as it may be shown.
enum Address {
    Store(String),
    Service(String),
}

impl Address {
    fn of(text: &str) -> Option<Self> {
        let (scheme, _) = text.split_once("://")?;
        if matches!(scheme, "http" | "https") {
            return Some(Self::Service(text.to_owned()));
        }
        let flags = Flags { store: Some(text.to_owned()), ..Flags::default() };
        let store = StoreConfig::from_parts(None, &flags).ok()?.store.url.value;
        Some(Self::Store(store.to_string()))
    }

    fn shown(&self) -> &str {
        match self {
            Self::Store(shown) | Self::Service(shown) => shown,
        }
    }
}

/// Why an address is not the file that is wanted, and what to type; `None` for what is no address.
pub(crate) fn is_no_file(text: &str, takes: Takes) -> Option<String> {
    let address = Address::of(text)?;
    Some(format!("{} is an address and no file: {}", address.shown(), takes.tip(&address)))
}

/// A refused command line of `command`, with what to type where an address stands in the wrong place. Shows no password.
#[must_use]
pub fn explained(mut error: clap::Error, command: &str) -> clap::Error {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return error,
    };
    let Some(ContextValue::String(text)) = error.get(kind) else { return error };
    let Some(address) = Address::of(text) else { return error };
    error.insert(kind, ContextValue::String(address.shown().to_owned()));
    if let Some(takes) = Takes::of(command) {
        let tip = takes.tip(&address);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

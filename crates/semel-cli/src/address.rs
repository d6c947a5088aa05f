//! Addresses where a command wants something else: which flag takes them.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use semel_gateway::config::{Flags, StoreConfig};

/// The flag for an address, and the address as it may be shown.
struct Address {
    flag: &'static str,
    what: &'static str,
    shown: String,
}

impl Address {
    fn of(text: &str) -> Option<Self> {
        let (scheme, _) = text.split_once("://")?;
        if matches!(scheme, "http" | "https") {
            return Some(Self { flag: "--upstream", what: "a service", shown: text.to_owned() });
        }
        let flags = Flags { store: Some(text.to_owned()), ..Flags::default() };
        let store = StoreConfig::from_parts(None, &flags).ok()?.store.url.value;
        Some(Self { flag: "--store", what: "a store", shown: store.to_string() })
    }
}

/// Why an address is not the file that is wanted, and what to type; `None` for what is no address.
pub(crate) fn is_no_file(text: &str) -> Option<String> {
    let Address { flag, what, shown } = Address::of(text)?;
    Some(format!("{shown} is an address and no file: {what} is named with {flag} {shown}"))
}

/// A refused command line, with the flag where an address stands in the wrong place. Shows no password.
#[must_use]
pub fn explained(mut error: clap::Error) -> clap::Error {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return error,
    };
    let Some(ContextValue::String(text)) = error.get(kind) else { return error };
    let Some(Address { flag, what, shown }) = Address::of(text) else { return error };
    let tip = format!("{what} is named with {flag} {shown}");
    error.insert(kind, ContextValue::String(shown));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

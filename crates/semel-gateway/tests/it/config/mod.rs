//! `semel.toml` from the outside.

mod bad_files;
mod findings;
mod good_files;
mod never_panics;
mod words;

use semel_gateway::config::{Config, Flags, Source};

/// The smallest file with a rule; what is written after it lands in the rule.
pub(crate) const RULE: &str = "\
[upstream.orders]
urls = [\"http://127.0.0.1:3000\"]
[principal]
header = \"X-User\"
[[rule]]
name = \"submit\"
match = \"POST /orders\"
";

pub(crate) fn read(text: &str) -> Result<Config, String> {
    Config::from_parts(Some(Source::new("semel.toml", text)), &Flags::default()).map_err(|refused| refused.to_string())
}

pub(crate) fn good(text: &str) -> Config {
    read(text).unwrap_or_else(|refused| panic!("{refused}"))
}

pub(crate) fn refusal(text: &str) -> String {
    match read(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(refused) => refused,
    }
}

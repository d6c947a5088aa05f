//! One number for what the rules say: two gateways with the same one treat a request alike.

use std::fmt::Write as _;

use semel_core::identity::{Purpose, Secret};

use super::Config;

impl Config {
    /// A digest of all that decides what becomes of a request: the callers, and each rule with its values in force. Where a
    /// value was written makes no difference, and neither do addresses, limits and times of the machine's own.
    #[must_use]
    pub fn rules_digest(&self) -> String {
        let mut said = format!("{}\n{}\n", self.principal.value, self.store.namespace.value.0.as_str());
        for rule in self.rules.iter() {
            // Writing to a string cannot fail.
            let upstream = self.upstreams.get(rule.upstream).map_or("", |upstream| &upstream.name);
            let _ = writeln!(said, "{}\t{}\t{}\t{upstream}", rule.name, rule.route, rule.mode.value.word());
            for line in rule.policy.lines() {
                let _ = writeln!(said, "\t{}\t{}", line.key, line.value);
            }
        }
        // The key is no secret: it makes the digest one of its own kind.
        let key = Secret::from_material(b"the rules of a gateway");
        let digest = key.map(|key| key.digest(Purpose::Probe, &[b"rules", said.as_bytes()]).short());
        const_hex::encode(digest.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Flags, Source};

    fn digest(rule: &str) -> String {
        let text = format!(
            "[upstream.a]\nurls = [\"http://127.0.0.1:1\"]\n[principal]\nshared = true\n\
             [[rule]]\nname = \"orders\"\nmatch = \"POST /orders\"\n{rule}\n"
        );
        let config = Config::from_parts(Some(Source::new("semel.toml", text)), &Flags::default());
        config.expect("a configuration").rules_digest()
    }

    #[test]
    fn rules_that_say_the_same_have_one_digest() {
        assert_eq!(digest(""), digest(""));
        assert_eq!(digest("preset = \"internal\""), digest("preset = \"internal\"\nttl = \"5min\""));
        assert_ne!(digest(""), digest("ttl = \"5min\""));
    }
}

//! What the server says of itself, and what the store can promise on it.

use std::collections::HashMap;

use semel_core::store::{Durability, FenceStrength, StoreFacts};
use sqlx::{Row as _, mysql::MySqlConnection};

/// What a statement carries beside a record's `rest`, with much to spare.
const BESIDE_REST: u64 = 64 << 10;

/// The server's variables that matter here, by name; what a server does not have is not there.
#[derive(Clone, Debug)]
pub(super) struct Variables(HashMap<String, String>);

const NAMES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'read_only', \
    'super_read_only', 'innodb_read_only', 'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'binlog_format', \
    'max_allowed_packet', 'max_connections', 'wsrep_on', 'wsrep_sync_wait', 'wsrep_cluster_name')";

impl Variables {
    pub(super) async fn read(connection: &mut MySqlConnection) -> Result<Self, sqlx::Error> {
        let rows = sqlx::raw_sql(NAMES).fetch_all(connection).await?;
        let pair = |row: &sqlx::mysql::MySqlRow| Ok((row.try_get::<String, _>(0)?.to_lowercase(), row.try_get(1)?));
        Ok(Self(rows.iter().map(pair).collect::<Result<_, sqlx::Error>>()?))
    }

    #[cfg(test)]
    pub(super) fn of(pairs: &[(&str, &str)]) -> Self {
        Self(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        !matches!(self.get(name).to_ascii_uppercase().as_str(), "" | "0" | "OFF")
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse().ok()
    }

    pub(super) fn is_mariadb(&self) -> bool {
        [self.get("version"), self.get("version_comment")].iter().any(|v| v.to_ascii_lowercase().contains("mariadb"))
    }

    /// Major and minor. Some proxies put `5.5.5-` in front of what MariaDB says.
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        let version = self.get("version");
        let version = if self.is_mariadb() { version.strip_prefix("5.5.5-").unwrap_or(version) } else { version };
        let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
            _ => None,
        }
    }

    pub(super) fn facts(&self, max_rest: u64) -> StoreFacts {
        let packet = self.number("max_allowed_packet").unwrap_or(1 << 20);
        StoreFacts {
            name: if self.is_mariadb() { "mariadb" } else { "mysql" },
            durability: self.durability(),
            fence: FenceStrength::Strong,
            max_rest: max_rest.min(packet.saturating_sub(BESIDE_REST)),
            shared: true,
            tells_changes: false,
        }
    }

    /// 1 (and MariaDB's 3) syncs the log before a commit is answered, 2 leaves it with the operating system, 0 leaves the last
    /// second in the server's own memory.
    fn durability(&self) -> Durability {
        match self.get("innodb_flush_log_at_trx_commit") {
            "1" | "3" => Durability::Power,
            "2" => Durability::Process,
            _ => Durability::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(version: &str) -> Option<(u32, u32)> {
        Variables::of(&[("version", version)]).version()
    }

    #[test]
    fn a_version_is_read_whoever_says_it() {
        assert_eq!(version("10.11.19-MariaDB-0+deb12u1"), Some((10, 11)));
        assert_eq!(version("5.5.5-10.6.4-MariaDB"), Some((10, 6)));
        assert_eq!(version("8.0.36"), Some((8, 0)));
        assert_eq!(version("8.4.0-commercial"), Some((8, 4)));
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn only_a_log_that_is_synced_survives_a_power_cut() {
        let with = |n| Variables::of(&[("innodb_flush_log_at_trx_commit", n)]).facts(1).durability;
        assert_eq!(
            ["1", "3", "2", "0"].map(with),
            [Durability::Power, Durability::Power, Durability::Process, Durability::None]
        );
    }

    #[test]
    fn a_record_fits_into_one_packet() {
        let with = |packet, max| Variables::of(&[("max_allowed_packet", packet)]).facts(max).max_rest;
        assert_eq!(with("16777216", 16 << 20), (16 << 20) - (64 << 10));
        assert_eq!(with("67108864", 16 << 20), 16 << 20);
        assert_eq!(with("1024", 16 << 20), 0);
    }
}

//! Whom the gateway believes to be its Redis, and what it shows of itself.

use std::path::PathBuf;

use super::problem::Problem;
use super::read::{Report, Section};
use super::setting::Setting;
use super::store_url::{Server, StoreUrl};

/// `[store] tls`: files in PEM, for a Redis behind `rediss://`. The databases have theirs in their addresses.
#[derive(Clone, Debug)]
pub struct StoreTls {
    /// Who vouches for the server. Those whom the system trusts.
    pub authority: Option<Setting<PathBuf>>,
    /// This side's certificate with its chain, for a server that asks for one.
    pub certificate: Option<Setting<PathBuf>>,
    /// The key of it.
    pub key: Option<Setting<PathBuf>>,
}

impl StoreTls {
    pub(super) fn read(mut section: Section<'_>, report: &mut Report) -> Self {
        let tls = Self {
            authority: section.read("authority", report),
            certificate: section.read("certificate", report),
            key: section.read("key", report),
        };
        section.finish(report);
        tls
    }

    /// A file that nobody would read is a mistake: whoever names one wants to be sure of the server.
    pub(super) fn check(&self, url: &StoreUrl, report: &mut Report) {
        let named = [("authority", &self.authority), ("certificate", &self.certificate), ("key", &self.key)];
        for (name, file) in named {
            let Some(file) = file else { continue };
            let (what, why, fix) = match url {
                StoreUrl::Shared(url) if url.server() == Server::Redis && url.is_tls() => continue,
                StoreUrl::Shared(url) if url.server() == Server::Redis => (
                    "beside an address without TLS",
                    "nothing would be encrypted, and the server could be anybody",
                    "url = \"rediss://…\"",
                ),
                StoreUrl::Shared(url) if url.server() == Server::Postgres => (
                    "is for a Redis",
                    "a PostgreSQL has its files in its address",
                    "url = \"postgres://…?sslmode=verify-full&sslrootcert=/etc/ca.pem\"; sslcert and sslkey beside them",
                ),
                StoreUrl::Shared(_) => (
                    "is for a Redis",
                    "a MySQL has its files in its address",
                    "url = \"mysql://…?ssl-mode=VERIFY_IDENTITY&ssl-ca=/etc/ca.pem\"; ssl-cert and ssl-key beside them",
                ),
                StoreUrl::Memory | StoreUrl::Embedded(_) => {
                    ("is for a Redis", "a store of this process has no line that could be tapped", "leave it out")
                }
            };
            report.push(Problem::error(file.origin, format!("`store.tls.{name}` {what}")).why(why).fix(fix));
        }
        for ((name, file), (other, beside)) in [(named[1], named[2]), (named[2], named[1])] {
            if let (Some(file), None) = (file, beside) {
                report.push(
                    Problem::error(file.origin, format!("`store.tls.{name}` without `store.tls.{other}`"))
                        .why("a certificate proves nothing without its key")
                        .fix("tls = { certificate = \"semel.pem\", key = \"semel.key\" }"),
                );
            }
        }
    }
}

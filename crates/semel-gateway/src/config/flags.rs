//! What the command line says over the file.

/// The flags of `semel gateway` that stand over a key of the file, as they were given. The default is none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// `--upstream`: the service behind the gateway; replaces the only (or the default) upstream's address.
    pub upstream: Option<String>,
    /// `--listen`: where requests come in.
    pub listen: Option<String>,
    /// `--admin`: where health and metrics are.
    pub admin: Option<String>,
    /// `--store`: `memory`, `embedded` or a store's URL.
    pub store: Option<String>,
    /// `--secret-file`: the key of the identity digest.
    pub secret_file: Option<String>,
    /// `--data-dir`: the directory of the embedded store.
    pub data_dir: Option<String>,
    /// `--runtime`: `per_core` or `shared`.
    pub runtime: Option<String>,
    /// `--log-level`: how much is logged.
    pub log_level: Option<String>,
    /// `--log-format`: `text` or `json`.
    pub log_format: Option<String>,
}

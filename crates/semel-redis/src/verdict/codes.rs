/// Answers by which a server says that it did not carry out the command. Every script writes its record with one
/// command, and what comes after cannot fail: an error is never raised after the change.
pub(crate) const NOT_DONE: [&str; 18] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "DENIED",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
    "WRONGTYPE",
];

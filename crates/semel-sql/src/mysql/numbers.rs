//! Error numbers of MySQL 8 and MariaDB 10.6 and later. Each is said by a server in the tests.

use semel_core::store::{Did, StoreErrorKind};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    Duplicate,
    Busy,
    Again,
    Failed(Did, StoreErrorKind),
}

const REFUSED: Meaning = Meaning::Failed(Did::Nothing, StoreErrorKind::Unavailable);
pub(super) const FULL: Meaning = Meaning::Failed(Did::Nothing, StoreErrorKind::Full);
const READ_ONLY: Meaning = Meaning::Failed(Did::Nothing, StoreErrorKind::ReadOnly);
pub(super) const UNKNOWN: Meaning = Meaning::Failed(Did::Unknown, StoreErrorKind::Unavailable);

/// What they mean, and whether the connection can be used after them. All others are unknown, and leave it alone.
pub(super) const NUMBERS: &[(&[u16], Meaning, bool)] = &[
    // A key that is there already.
    (&[1022, 1062, 1586], Meaning::Duplicate, true),
    // Lock wait time-out: this statement was rolled back, and autocommit leaves nothing else.
    (&[1205], Meaning::Busy, true),
    // Deadlock; the row changed since the snapshot; the table changed since the statement was prepared; a replication group
    // settled it for another one.
    (&[1213, 1020, 1615, 3101], Meaning::Again, true),
    // A statement that this connection does not know: a proxy went on with another server.
    (&[1243], Meaning::Again, false),
    // No room: disk, table, row.
    (&[1021, 1114, 1118], FULL, true),
    // A packet that is larger than the server takes. It hangs up.
    (&[1153], FULL, false),
    // Read only: by option, by mode, by transaction; a demoted primary. Its connections lead to the wrong server.
    (&[1036, 1290, 1792, 1836], READ_ONLY, false),
    // No more connections: server, user, host; not allowed in.
    (&[1040, 1129, 1130, 1203, 1226, 1044, 1045, 1698], REFUSED, false),
    // Not allowed to, no such table or database, not what this program knows.
    (&[1046, 1049, 1054, 1064, 1142, 1143, 1146, 1227, 1370], REFUSED, true),
    // Values that do not fit; too many locks, transactions, statements; a binary log that cannot take it.
    (&[1264, 1366, 1406, 1690, 1206, 1461, 1637, 1665], REFUSED, true),
    // A Galera node that is not part of the cluster now.
    (&[1047], REFUSED, false),
    // Idle for too long: it was closed before the statement came.
    (&[4031], REFUSED, false),
    // Interrupted, killed, shut down, too slow, or lost between server and client: perhaps after it was done.
    (&[1053, 1080, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3169], UNKNOWN, false),
    (&[1317, 1969, 3024], UNKNOWN, true),
];

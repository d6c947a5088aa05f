//! SQLSTATEs, or the classes that they begin with. Each is said by a server in the tests.

/// What a code says of its statement; all but the last, that it was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Says {
    /// To be sent again.
    Again,
    /// The same, on another connection.
    AgainElsewhere,
    /// Somebody changes the row.
    Locked,
    /// Nothing that was prepared can be relied on.
    Plain,
    /// There is no room.
    Full,
    /// Not by this server, or not now.
    Elsewhere,
    /// The session ended in the middle of it.
    Unknown,
}

pub(super) const CODES: &[(&str, Says)] = &[
    ("40001", Says::Again),
    ("40P01", Says::Again),
    ("55P03", Says::Locked),
    ("26000", Says::Plain),
    ("42P05", Says::Plain),
    ("0A000", Says::AgainElsewhere),
    ("25006", Says::Elsewhere),
    ("53100", Says::Full),
    ("53200", Says::Full),
    ("53400", Says::Full),
    ("53300", Says::Elsewhere),
    ("57P03", Says::Elsewhere),
    ("3D000", Says::Elsewhere),
    ("28", Says::Elsewhere),
    ("08", Says::Unknown),
    ("57P01", Says::Unknown),
    ("57P02", Says::Unknown),
];

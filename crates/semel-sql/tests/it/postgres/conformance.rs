//! The conformance suite.

mod straight {
    semel_testkit::conformance!(crate::postgres::bed::Bed<false>);
}

/// Through PgBouncer in transaction mode.
mod pooled {
    semel_testkit::conformance!(crate::postgres::bed::Bed<true>);
}

//! Bugs that are seeded into what a store says to its server: the suite has to catch each.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
};

use super::{Bed, Stage, run};

/// A bug in a statement or a script. [`seeded_bugs!`](crate::seeded_bugs) makes one.
pub trait Bug: Send + Sync + 'static {
    /// Three words for the bed, which says what they are: as a rule which statement it is, what it says, and what it is to
    /// say instead.
    fn words() -> [String; 3];

    /// Set by the bed when something was said with the bug in it.
    fn acted() -> &'static AtomicBool;
}

/// Runs a case that has to fail on a bed with a bug, for the reason that the store is wrong.
///
/// # Panics
/// When the case passes; when nothing was said with the bug in it; when what was said does not run at all, which anything
/// would catch.
pub fn is_caught<B: Bed, G: Bug>(case: impl AsyncFnOnce(&Stage<B>)) {
    let words = catch_unwind(AssertUnwindSafe(|| run(case))).expect_err("the case did not catch it");
    let text = words.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| words.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(G::acted().load(Ordering::SeqCst), "nothing was said with the bug in it: {text}");
    assert!(!text.contains("StoreError"), "the server does not take it: {text}");
}

/// A test for each bug: its name, its [words](crate::conformance::Bug::words), and the case that has to catch it on a bed
/// that is generic over bugs.
#[macro_export]
macro_rules! seeded_bugs {
    ($bed:ident, $($name:ident: $words:expr, by $module:ident::$case:ident;)*) => {$(
        #[test]
        fn $name() {
            static ACTED: ::std::sync::atomic::AtomicBool = ::std::sync::atomic::AtomicBool::new(false);
            struct This;
            impl $crate::conformance::Bug for This {
                fn words() -> [String; 3] {
                    $words.map(Into::into)
                }
                fn acted() -> &'static ::std::sync::atomic::AtomicBool {
                    &ACTED
                }
            }
            use $crate::conformance::{cases, is_caught};
            is_caught::<$bed<This>, This>(cases::$module::$case::<$bed<This>>);
        }
    )*};
}

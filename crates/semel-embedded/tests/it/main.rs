//! The embedded store on real disks: who has the directory, what a crash leaves, what a full disk does.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conformance;
mod crash;
mod directory;
mod full_disk;
mod keys;
mod lost_journal;
mod room;
mod stored_format;
mod torn_journal;

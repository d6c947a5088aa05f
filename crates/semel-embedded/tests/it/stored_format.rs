//! A directory that version 3 of the format wrote is read, and this program still writes the same bytes. Versions 1 and 2,
//! which no release ever wrote, are refused.
//!
//! The directories in `fixture` were written by [`write`], with the zeros at the end of their segments left out: `v3` before
//! an outcome had a sum, `v3-sums` since. When the format changes, a directory of the new version comes beside them and these stay:
//! `SEMEL_WRITE_FIXTURE=DIR cargo test -p semel-embedded stored_format`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use semel_core::{
    env::{Env, Rng},
    fingerprint::Fingerprint,
    identity::Purpose,
    record::{Flags, Payload, Rest, StateCode},
    store::{NewToken, Releasing, Settlement, Store, StoreAdmin},
};
use semel_embedded::{EmbeddedStore, OpenError};
use semel_testkit::clock::ManualClock;

use crate::{
    keys::{HOUR, ask, body, claim, done, free, identity, meta, now, options, record},
    torn_journal::{copy_all, journal_of},
};

/// Of this program.
const OURS: &str = "v3-sums";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixture").join(name)
}

fn open(dir: &Path) -> EmbeddedStore {
    // The clock stands where it stood when the fixture was written, and the journal's key is the same.
    let env = Env { clock: Arc::new(ManualClock::new()), rng: Arc::new(Sevens), ..Env::system() };
    EmbeddedStore::open(dir, &env, &options()).unwrap()
}

struct Sevens;

impl Rng for Sevens {
    fn fill(&self, out: &mut [u8]) {
        out.fill(7);
    }
}

/// One record in every state. Key n is in state n; 5 is a token, 6 was removed.
fn write(dir: &Path) {
    let store = open(dir);
    drop(now(store.release(&free(&claim(&store, &ask(0, 7))))).unwrap());
    let _running = claim(&store, &ask(1, 7));
    drop(now(store.settle(&claim(&store, &ask(2, 7)), &done(b'b', 100))).unwrap());
    let words = Payload::Words("connection reset".into());
    let unknown = Settlement::Unknown { fingerprint: Fingerprint::NONE, rest: Rest::write(&meta(), &words), ttl: HOUR };
    drop(now(store.settle(&claim(&store, &ask(3, 7)), &unknown)).unwrap());
    let failing = claim(&store, &ask(4, 7));
    let rest = Rest::write(&meta(), &words);
    drop(now(store.release(&Releasing::Held { claim: &failing, counts: true, park: true, keep: HOUR, rest })).unwrap());
    let token = NewToken { identity: identity(5), ttl: HOUR, max_life: 2 * HOUR, rest: meta() };
    let _issued = now(store.issue(&token)).unwrap();
    drop(now(store.release(&free(&claim(&store, &ask(6, 7))))).unwrap());
    assert!(now(store.delete(&identity(6), StateCode::Free)).unwrap());
}

#[test]
fn a_directory_written_by_version_3_is_read() {
    for name in ["v3", OURS] {
        is_read(&fixture(name));
    }
}

fn is_read(fixture: &Path) {
    let dir = tempfile::tempdir().unwrap();
    copy_all(fixture, dir.path());
    let store = open(dir.path());
    let time = now(store.health()).unwrap();
    assert_eq!(time.records, Some(6));
    let states = [StateCode::Free, StateCode::Unknown, StateCode::Done, StateCode::Unknown, StateCode::Parked];
    for (n, state) in (0..).zip(states) {
        let record = record(&store, n).unwrap();
        assert_eq!(record.reads_as(time.now), state, "{n}");
        assert_eq!((record.owner, record.attempt), (ask(n, 7).owner(), 1), "{n}");
    }
    assert_eq!(body(&record(&store, 2).unwrap()).unwrap().as_ref(), [b'b'; 100]);
    let unknown = record(&store, 3).unwrap();
    assert_eq!(Rest::read(&unknown.rest).unwrap().payload, Payload::Words("connection reset".into()));
    let token = record(&store, 5).unwrap();
    assert!(token.state == StateCode::Free && token.flags.has(Flags::ISSUED) && token.fence.is_none());
    assert!(record(&store, 6).is_none());
    let proof = store.secret().unwrap().digest(Purpose::ApiKey, &[b"x"]);
    assert_eq!(format!("{proof:?}"), SECRET_PROOF);
    let again = claim(&store, &ask(0, 8));
    assert_eq!(again.attempt(), 2);
}

/// A digest that only the fixture's secret makes.
const SECRET_PROOF: &str = "e7cc2a7382099edf…";

#[test]
fn this_program_writes_the_bytes_of_version_3() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    if let Ok(into) = std::env::var("SEMEL_WRITE_FIXTURE") {
        copy_all(dir.path(), Path::new(&into));
    }
    for name in ["version", "manifest"] {
        assert!(fs::read(dir.path().join(name)).unwrap() == fs::read(fixture(OURS).join(name)).unwrap(), "{name}");
    }
    assert!(journal_of(dir.path()) == journal_of(&fixture(OURS)), "the journal's bytes have changed");
}

#[test]
fn a_directory_of_an_earlier_version_is_refused_with_what_to_do_and_left_as_it_was() {
    for (version, holds) in [("semel-embedded 1", "tables"), ("semel-embedded 2", "journal")] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("version"), format!("{version}\n")).unwrap();
        fs::create_dir(dir.path().join(holds)).unwrap();
        let e = EmbeddedStore::open(dir.path(), &Env::system(), &options()).unwrap_err();
        assert!(matches!(&e, OpenError::Version { found, known: 3, .. } if found == version), "{e:?}");
        assert!(e.to_string().contains("use the program that wrote it"), "{e}");
        assert!(!dir.path().join("manifest").exists());
    }
}

//! Who has the directory, and which directories are refused.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use semel_core::{
    env::Env,
    identity::{Purpose, Secret},
    record::StateCode,
    store::{Filter, Store, StoreAdmin},
};
use semel_embedded::{EmbeddedStore, OpenError, Options};

use crate::keys::{ask, claim, done, free, now, options, record};

fn open(dir: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(dir, &Env::system(), &options())
}

#[test]
fn what_was_answered_is_there_after_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    {
        let store = open(dir.path()).unwrap();
        for n in 0..50 {
            let claim = claim(&store, &ask(n, 0));
            match n % 3 {
                0 => drop(now(store.settle(&claim, &done(7, 100 * usize::try_from(n).unwrap()))).unwrap()),
                1 => drop(now(store.release(&free(&claim))).unwrap()),
                _ => {}
            }
        }
    }
    let store = open(dir.path()).unwrap();
    let time = now(store.health()).unwrap();
    assert_eq!(time.records, Some(50));
    for n in 0..50 {
        let record = record(&store, n).unwrap();
        let expected = [StateCode::Done, StateCode::Free, StateCode::Unknown][usize::try_from(n % 3).unwrap()];
        assert_eq!(record.reads_as(time.now), expected, "{n}");
    }
    let page = now(store.list(&Filter::default(), None, 100)).unwrap();
    assert_eq!((page.entries.len(), page.next), (50, None));
}

#[test]
fn a_second_opening_is_told_who_has_the_directory_until_that_one_ends() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let e = open(dir.path()).unwrap_err();
    let path = dir.path().canonicalize().unwrap();
    assert!(
        matches!(&e, OpenError::InUse { dir, process: Some(pid) } if *dir == path && *pid == std::process::id()),
        "{e:?}"
    );
    assert!(e.is_temporary());
    let text = e.to_string();
    assert!(text.contains(path.to_str().unwrap()) && text.contains("stop that one"), "{text}");
    drop(first);
    open(dir.path()).unwrap();
}

#[test]
fn a_directory_of_something_else_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    let e = open(dir.path()).unwrap_err();
    assert!(matches!(&e, OpenError::NotAStore { found, .. } if found == "letter.txt"), "{e:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn another_version_of_the_format_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).unwrap());
    for other in ["semel-embedded 2\n", "semel-embedded 0\n", "", "something"] {
        fs::write(dir.path().join("version"), other).unwrap();
        let e = open(dir.path()).unwrap_err();
        assert!(matches!(&e, OpenError::Version { found, known: 1, .. } if *found == other.trim()), "{e:?}");
        assert_eq!(fs::read_to_string(dir.path().join("version")).unwrap(), other);
    }
    fs::write(dir.path().join("version"), "semel-embedded 1\n").unwrap();
    open(dir.path()).unwrap();
}

#[test]
fn the_directory_keeps_a_secret_of_its_own_unless_one_is_configured() {
    let proof = |secret: &Secret| *secret.digest(Purpose::ApiKey, &[b"x"]).as_bytes();
    let dir = tempfile::tempdir().unwrap();
    let first = proof(open(dir.path()).unwrap().secret().unwrap());
    assert_eq!(proof(open(dir.path()).unwrap().secret().unwrap()), first);
    let mode = fs::metadata(dir.path().join("secret")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let other = tempfile::tempdir().unwrap();
    assert_ne!(proof(open(other.path()).unwrap().secret().unwrap()), first);
    let third = tempfile::tempdir().unwrap();
    let configured = Options { secret: Some(Secret::from_material(&[7; 32]).unwrap()), ..options() };
    let store = EmbeddedStore::open(third.path(), &Env::system(), &configured).unwrap();
    assert!(store.secret().is_none() && !third.path().join("secret").exists());
    fs::write(dir.path().join("secret"), "short").unwrap();
    let e = open(dir.path()).unwrap_err();
    assert!(matches!(&e, OpenError::Damaged { path, .. } if path.ends_with("secret")), "{e:?}");
}

#[test]
fn a_first_start_that_was_interrupted_anywhere_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lock"), "").unwrap();
    fs::write(dir.path().join("version.tmp"), "sem").unwrap();
    drop(open(dir.path()).unwrap());
    fs::rename(dir.path().join("tables"), dir.path().join("tables.new")).unwrap();
    fs::remove_file(dir.path().join("tables.new/version")).unwrap();
    let store = open(dir.path()).unwrap();
    let _running = claim(&store, &ask(1, 0));
    assert!(!dir.path().join("tables.new").exists());
}

#[test]
fn a_place_that_cannot_be_a_directory_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let e = open(&file.join("data")).unwrap_err();
    assert!(e.to_string().contains("file/data"), "{e}");
}

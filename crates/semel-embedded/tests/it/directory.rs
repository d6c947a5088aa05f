//! Who has the directory, and which directories are refused.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use semel_core::{
    env::Env,
    identity::{Purpose, Secret},
    record::StateCode,
    store::{Filter, Store, StoreAdmin, StoreErrorKind},
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
    for other in ["semel-embedded 4\n", "semel-embedded 2\n", "", "something"] {
        fs::write(dir.path().join("version"), other).unwrap();
        let e = open(dir.path()).unwrap_err();
        assert!(matches!(&e, OpenError::Version { found, known: 3, .. } if *found == other.trim()), "{e:?}");
        assert_eq!(fs::read_to_string(dir.path().join("version")).unwrap(), other);
    }
    fs::write(dir.path().join("version"), "semel-embedded 3\n").unwrap();
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

/// Each of these opened as an empty store would have, with not a word: every finished request could run again.
#[test]
fn a_store_whose_records_would_not_be_found_is_refused() {
    let whole = tempfile::tempdir().unwrap();
    let file = |name: &str| whole.path().join(name);
    let store = open(whole.path()).unwrap();
    drop(now(store.settle(&claim(&store, &ask(1, 0)), &done(7, 100))).unwrap());
    drop(store);
    let secret = fs::read(file("secret")).unwrap();

    let mut flipped = secret.clone();
    flipped[9] ^= 1;
    fs::write(file("secret"), flipped).unwrap();
    let e = open(whole.path()).unwrap_err();
    assert!(matches!(e, OpenError::OtherSecret { .. }) && e.to_string().contains("another secret"), "{e:?}");

    fs::remove_file(file("secret")).unwrap();
    let e = open(whole.path()).unwrap_err();
    assert!(matches!(&e, OpenError::Damaged { path, .. } if path.ends_with("secret")), "{e:?}");
    assert!(!file("secret").exists());

    let configured = |material: &[u8]| {
        let secret = Some(Secret::from_material(material).unwrap());
        EmbeddedStore::open(whole.path(), &Env::system(), &Options { secret, ..options() })
    };
    assert!(matches!(configured(&[7; 32]), Err(OpenError::OtherSecret { .. })));
    drop(configured(&secret).unwrap());
    fs::write(file("secret"), &secret).unwrap();

    let segment = file("journal/0000000001.log");
    fs::rename(&segment, file("aside")).unwrap();
    let e = open(whole.path()).unwrap_err();
    assert!(matches!(&e, OpenError::Damaged { path, .. } if path.ends_with("0000000001.log")), "{e:?}");
    fs::rename(file("aside"), segment).unwrap();

    fs::rename(file("journal"), file("aside")).unwrap();
    let e = open(whole.path()).unwrap_err();
    assert!(matches!(&e, OpenError::Damaged { path, .. } if path.ends_with("journal")), "{e:?}");
    fs::rename(file("aside"), file("journal")).unwrap();

    // Without it nobody knows which secret is the right one.
    fs::rename(file("manifest"), file("aside")).unwrap();
    for e in [open(whole.path()).unwrap_err(), configured(&[7; 32]).unwrap_err()] {
        assert!(matches!(&e, OpenError::Damaged { path, .. } if path.ends_with("manifest")), "{e:?}");
        assert!(e.to_string().contains("any backup of this directory"), "{e}");
    }
    for torn in [&[][..], &[0; 20_000], b"SML"] {
        fs::write(file("manifest"), torn).unwrap();
        let e = open(whole.path()).unwrap_err();
        assert!(matches!(&e, OpenError::Damaged { path, .. } if path.ends_with("manifest")), "{e:?}");
    }
    fs::rename(file("aside"), file("manifest")).unwrap();
    let store = open(whole.path()).unwrap();
    assert_eq!(record(&store, 1).unwrap().state, StateCode::Done);
}

/// Deleted or moved under a running store, the files live on without a name: grants that the next start knows nothing of.
#[test]
fn a_directory_that_was_taken_away_gets_no_more_grants() {
    let parent = tempfile::tempdir().unwrap();
    let (dir, aside) = (parent.path().join("data"), parent.path().join("aside"));
    let options = Options { space_check: Duration::ZERO, ..options() };
    let store = EmbeddedStore::open(&dir, &Env::system(), &options).unwrap();
    drop(now(store.settle(&claim(&store, &ask(1, 0)), &done(7, 100))).unwrap());
    fs::rename(&dir, &aside).unwrap();
    fs::create_dir(&dir).unwrap();
    let refused = now(store.claim(&ask(2, 0))).unwrap_err();
    assert!(refused.kind == StoreErrorKind::ReadOnly, "{refused:?}");
    assert!(!now(store.health()).unwrap().writable);
    assert_eq!(record(&store, 1).unwrap().state, StateCode::Done);
    drop(store);
    fs::remove_dir(&dir).unwrap();
    fs::rename(&aside, &dir).unwrap();
    assert_eq!(record(&open(&dir).unwrap(), 1).unwrap().state, StateCode::Done);
}

#[test]
fn a_first_start_that_was_interrupted_anywhere_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lock"), "").unwrap();
    fs::write(dir.path().join("version.tmp"), "sem").unwrap();
    let (journal, unfinished) = (dir.path().join("journal"), dir.path().join("journal.new"));
    // Before the manifest was there, and after.
    let manifest = dir.path().join("manifest");
    for has_manifest in [false, true] {
        let first = open(dir.path()).unwrap();
        let nothing_answered = fs::read(&manifest).unwrap();
        drop(first);
        fs::rename(&journal, &unfinished).unwrap();
        fs::write(unfinished.join("0000000001.log"), "SML").unwrap();
        if has_manifest {
            fs::write(&manifest, nothing_answered).unwrap();
        } else {
            fs::remove_file(&manifest).unwrap();
        }
        let store = open(dir.path()).unwrap();
        let _running = claim(&store, &ask(1, 0));
        assert!(!unfinished.exists());
        drop(store);
        fs::remove_dir_all(&journal).unwrap();
        fs::remove_file(&manifest).unwrap();
    }
}

#[test]
fn a_place_that_cannot_be_a_directory_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let e = open(&file.join("data")).unwrap_err();
    assert!(e.to_string().contains("file/data"), "{e}");
}

#[test]
fn a_place_that_cannot_be_a_directory_is_refused_with_the_cure() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("afile");
    fs::write(&file, "x").unwrap();
    for place in [file.clone(), file.join("below"), "/proc/nope".into()] {
        let refused = open(&place).unwrap_err().to_string();
        assert!(refused.contains("name another directory"), "{refused}");
    }
}

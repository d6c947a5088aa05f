//! The last batch of the journal cut or damaged at every byte: the store opens with all of history or all but that batch,
//! or says what is damaged. It never panics and never forgets what came before.

use std::{fs, path::Path};

use semel_core::{env::Env, record::StateCode, store::Store};
use semel_embedded::{EmbeddedStore, OpenError};

use crate::keys::{ask, body, claim, done, free, now, options, quick_dir, record};

/// A store's directory as it is on disk while it is open and idle, with the length of its journal before the last batch.
struct Image {
    dir: tempfile::TempDir,
    journal: Vec<u8>,
    before_last: usize,
}

/// The one segment of a small store.
pub(crate) const SEGMENT: &str = "journal/0000000001.log";

/// What is in it, with few of the zeros at its end.
pub(crate) fn journal_of(dir: &Path) -> Vec<u8> {
    without_zeros(fs::read(dir.join(SEGMENT)).unwrap())
}

/// Up to the last byte that is not zero, and a little more: a batch may end with zeros.
fn without_zeros(mut bytes: Vec<u8>) -> Vec<u8> {
    let len = bytes.iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
    bytes.truncate(len + 32);
    bytes
}

/// Says how far the journal is synced.
pub(crate) const MANIFEST: &str = "manifest";

/// Three batches that stay and one that is in question: the completion of key 3, of which no note says that it was synced.
fn image() -> Image {
    let dir = quick_dir();
    let store = EmbeddedStore::open(dir.path(), &Env::system(), &options()).unwrap();
    let first = claim(&store, &ask(1, 0));
    drop(now(store.settle(&first, &done(1, 50))).unwrap());
    let second = claim(&store, &ask(2, 0));
    drop(now(store.release(&free(&second))).unwrap());
    let third = claim(&store, &ask(3, 0));
    let noted = fs::read(dir.path().join(MANIFEST)).unwrap();
    drop(now(store.settle(&third, &done(3, 50))).unwrap());
    let mut journal = journal_of(dir.path());
    let before_last = journal.windows(4).rposition(|w| w == b"SMLB").unwrap();
    let len = u32::from_be_bytes(*journal[before_last + 4..].first_chunk().unwrap());
    journal.truncate(before_last + 64 + usize::try_from(len).unwrap());
    let copy = quick_dir();
    copy_all(dir.path(), copy.path());
    fs::write(copy.path().join(MANIFEST), noted).unwrap();
    Image { dir: copy, journal, before_last }
}

/// Copies a directory; its segments with few of the zeros at their end.
pub(crate) fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &name);
        } else {
            let mut bytes = fs::read(entry.path()).unwrap();
            if name.extension().is_some_and(|e| e == "log") {
                bytes = without_zeros(bytes);
            }
            fs::write(name, bytes).unwrap();
        }
    }
}

/// Opens a copy of the image with this journal: whether the last batch is there, or why it was refused.
fn open_with(image: &Image, journal: &[u8]) -> Result<bool, OpenError> {
    let dir = quick_dir();
    copy_all(image.dir.path(), dir.path());
    fs::write(dir.path().join(SEGMENT), journal).unwrap();
    let store = EmbeddedStore::open(dir.path(), &Env::system(), &options())?;
    assert_eq!(body(&record(&store, 1).unwrap()).unwrap().as_ref(), [1; 50]);
    assert_eq!(record(&store, 2).unwrap().state, StateCode::Free);
    let third = record(&store, 3).expect("its claim was synced");
    // It goes on from there.
    let again = claim(&store, &ask(4, 0));
    drop(now(store.settle(&again, &done(4, 1))).unwrap());
    match third.state {
        StateCode::Done => {
            assert_eq!(body(&third).unwrap().as_ref(), [3; 50]);
            Ok(true)
        }
        StateCode::InFlight => Ok(false),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_last_batch_cut_at_any_byte_is_gone_and_nothing_else_is() {
    let image = image();
    assert!(open_with(&image, &image.journal).unwrap());
    for cut in image.before_last..image.journal.len() {
        let journal = &image.journal[..cut];
        assert!(!open_with(&image, journal).unwrap(), "cut at {cut}");
        if cut % 4 == 0 {
            let padded = [journal, &[0; 10_000][..]].concat();
            assert!(!open_with(&image, &padded).unwrap(), "zeros from {cut}");
        }
    }
}

#[test]
fn a_last_batch_damaged_at_any_byte_is_gone_and_nothing_else_is() {
    let image = image();
    for at in image.before_last..image.journal.len() {
        let mut journal = image.journal.clone();
        journal[at] ^= 1 << (at % 8);
        assert!(!open_with(&image, &journal).unwrap(), "byte {at}");
    }
}

#[test]
fn damage_before_synced_batches_is_refused_by_name() {
    let image = image();
    let mut journal = image.journal.clone();
    journal[image.before_last - 40] ^= 1;
    let e = open_with(&image, &journal).unwrap_err();
    assert!(matches!(&e, OpenError::Damaged { path, .. } if path.ends_with(SEGMENT)), "{e}");
    assert!(e.to_string().contains("backup"), "{e}");
}

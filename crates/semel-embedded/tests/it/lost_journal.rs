//! A piece of the journal that had been synced and is gone: the store is refused, by name, and nothing is changed. A batch
//! that a crash cut short is none: see `torn_journal`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use semel_core::{
    env::Env,
    record::StateCode,
    store::{Store, StoreAdmin},
};
use semel_embedded::{EmbeddedStore, OpenError, Options};

use crate::{
    keys::{ask, claim, done, now, options, quick_dir, record},
    torn_journal::{SEGMENT, copy_all, journal_of},
};

/// Finished keys in a store of one segment.
const KEYS: u64 = 4;

fn open(dir: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(dir, &Env::system(), &options())
}

fn run(store: &EmbeddedStore, n: u64) {
    drop(now(store.settle(&claim(store, &ask(n, 0)), &done(7, 50))).unwrap());
}

/// A directory as a clean end leaves it, or as the end of the process does while nothing is under way.
fn directory(closed: bool) -> tempfile::TempDir {
    let (dir, copy) = (quick_dir(), quick_dir());
    let store = open(dir.path()).unwrap();
    (0..KEYS).for_each(|n| run(&store, n));
    if closed {
        drop(store);
    }
    copy_all(dir.path(), copy.path());
    copy
}

/// The refusal of a copy of `dir` whose only segment has these bytes; the copy is as it was.
fn refused(dir: &Path, journal: &[u8]) -> OpenError {
    let copy = quick_dir();
    copy_all(dir, copy.path());
    fs::write(copy.path().join(SEGMENT), journal).unwrap();
    let Err(e) = open(copy.path()) else { panic!("{} bytes open", journal.len()) };
    assert!(fs::read(copy.path().join(SEGMENT)).unwrap() == journal, "a refusal changes nothing");
    e
}

/// Where batches begin, the first one aside.
fn batches(journal: &[u8]) -> Vec<usize> {
    (0..journal.len()).filter(|at| journal[*at..].starts_with(b"SMLB")).skip(1).collect()
}

fn assert_names(e: &OpenError, file: &str) {
    let text = e.to_string();
    for word in [file, "backup", "accept-loss", "could run a second time"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn a_journal_that_lost_synced_batches_at_its_end_is_refused_wherever_it_was_cut() {
    for closed in [true, false] {
        let dir = directory(closed);
        let journal = journal_of(dir.path());
        let batches = batches(&journal);
        assert_eq!(batches.len() as u64, 2 * KEYS - 1 + u64::from(closed));
        for at in batches {
            assert_names(&refused(dir.path(), &journal[..at]), SEGMENT);
            assert_names(&refused(dir.path(), &journal[..at + 30]), SEGMENT);
            let mut zeroed = journal.clone();
            zeroed[at..].fill(0);
            assert_names(&refused(dir.path(), &zeroed), SEGMENT);
        }
    }
}

#[test]
fn a_synced_batch_that_was_damaged_is_not_taken_for_a_torn_one() {
    for closed in [true, false] {
        let dir = directory(closed);
        let journal = journal_of(dir.path());
        let last = *batches(&journal).last().unwrap();
        for at in (last..last + 64).step_by(7) {
            let mut damaged = journal.clone();
            damaged[at] ^= 1;
            assert_names(&refused(dir.path(), &damaged), SEGMENT);
        }
    }
}

/// A store with several segments, closed, and its newest one.
fn several() -> (tempfile::TempDir, PathBuf) {
    let dir = quick_dir();
    let store = small(dir.path()).unwrap();
    (0..40).for_each(|n| run(&store, n));
    drop(store);
    let newest = segments(dir.path()).pop().unwrap();
    (dir, newest)
}

fn small(dir: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(dir, &Env::system(), &Options { segment: 4 << 10, ..options() })
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dir.join("journal")).unwrap().map(|e| e.unwrap().path());
    let mut logs: Vec<_> = names.filter(|p| p.extension().is_some_and(|e| e == "log")).collect();
    logs.sort();
    logs
}

#[test]
fn the_newest_segment_removed_emptied_or_without_a_head_is_refused_by_name() {
    let (dir, newest) = several();
    let name = newest.file_name().unwrap().to_str().unwrap().to_owned();
    let whole = fs::read(&newest).unwrap();
    fs::remove_file(&newest).unwrap();
    assert_names(&small(dir.path()).unwrap_err(), &name);
    for rest in [&[][..], &[0; 5_000], &whole[..20], &whole[..40]] {
        fs::write(&newest, rest).unwrap();
        assert_names(&small(dir.path()).unwrap_err(), &name);
        assert!(fs::read(&newest).unwrap() == rest);
    }
    fs::write(&newest, whole).unwrap();
    small(dir.path()).unwrap();
}

/// Its notes were read from the summary, and its keys got 503 until they ended.
#[test]
fn a_full_segment_that_is_shorter_than_its_summary_says_is_refused_by_name() {
    let (dir, _) = several();
    // What is full has its summary once the store was open for a moment.
    let store = small(dir.path()).unwrap();
    let first = segments(dir.path()).remove(0);
    for _ in 0..1_000 {
        if first.with_extension("sum").exists() {
            break;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
    drop(store);
    assert!(first.with_extension("sum").exists());
    let whole = fs::read(&first).unwrap();
    let end = whole.iter().rposition(|b| *b != 0).unwrap();
    for cut in [0, 100, end / 2, end] {
        fs::write(&first, &whole[..cut]).unwrap();
        let e = small(dir.path()).unwrap_err();
        assert!(matches!(&e, OpenError::Damaged { path, .. } if path.ends_with(first.file_name().unwrap())), "{e}");
    }
    fs::write(&first, whole).unwrap();
    small(dir.path()).unwrap();
}

#[test]
fn a_loss_is_accepted_by_the_words_of_its_refusal_and_no_other_is() {
    let dir = directory(true);
    let journal = journal_of(dir.path());
    let batches = batches(&journal);
    let cut = |at: usize| fs::write(dir.path().join(SEGMENT), &journal[..at]).unwrap();
    let accept = dir.path().join("accept-loss");
    // Key 2 was claimed and not finished; key 3 is gone.
    cut(batches[4]);
    let e = open(dir.path()).unwrap_err();
    let OpenError::Lost { words, .. } = &e else { panic!("{e:?}") };
    assert!(e.to_string().contains(&format!("`{words}`")), "{e}");
    fs::write(&accept, "after batch 4\n").unwrap();
    assert!(open(dir.path()).is_err(), "that is another loss");
    fs::write(&accept, format!("{words}\n")).unwrap();
    let store = open(dir.path()).unwrap();
    assert!(!accept.exists(), "it is for one time");
    let lines = now(store.audited(10)).unwrap();
    assert!(lines.len() == 1 && lines[0].contains(words.as_str()), "{lines:?}");
    let states = [Some(StateCode::Done), Some(StateCode::Done), Some(StateCode::InFlight), None];
    for (n, state) in (0..).zip(states) {
        assert_eq!(record(&store, n).map(|r| r.state), state, "{n}");
    }
    run(&store, 3);
    drop(store);
    drop(open(dir.path()).unwrap());
    cut(batches[4]);
    assert!(open(dir.path()).is_err(), "it was for the other loss");
}

/// The words that accepted one loss are not left lying about for the next.
#[test]
fn words_that_accept_nothing_are_taken_away() {
    let dir = directory(true);
    let accept = dir.path().join("accept-loss");
    fs::write(&accept, "after batch 4").unwrap();
    drop(open(dir.path()).unwrap());
    assert!(!accept.exists());
}

#[test]
fn a_lost_segment_is_accepted_and_its_number_is_used_again() {
    let (dir, newest) = several();
    fs::remove_file(&newest).unwrap();
    let OpenError::Lost { words, .. } = small(dir.path()).unwrap_err() else { panic!("it is a loss") };
    fs::write(dir.path().join("accept-loss"), words).unwrap();
    let store = small(dir.path()).unwrap();
    (100..140).for_each(|n| run(&store, n));
    drop(store);
    let store = small(dir.path()).unwrap();
    assert!((0..20).chain(100..140).all(|n| record(&store, n).unwrap().state == StateCode::Done));
}

/// What is called `journal.new` was taken for the journal of a first start that was interrupted: an empty store took its
/// place, and every key ran again.
#[test]
fn a_journal_that_was_answered_from_is_missed_though_an_unfinished_one_is_there() {
    for renamed in [true, false] {
        let dir = directory(true);
        let (journal, unfinished) = (dir.path().join("journal"), dir.path().join("journal.new"));
        let aside = if renamed { unfinished.clone() } else { dir.path().join("aside") };
        fs::rename(&journal, &aside).unwrap();
        if !renamed {
            fs::create_dir(&unfinished).unwrap();
        }
        let e = open(dir.path()).unwrap_err();
        assert!(matches!(&e, OpenError::Lost { path, .. } if path.ends_with("journal")), "{e:?}");
        assert_names(&e, "journal");
        assert!(!journal.exists() && unfinished.exists() && aside.exists(), "a refusal changes nothing");
        fs::rename(&aside, &journal).unwrap();
        assert_eq!(record(&open(dir.path()).unwrap(), 1).unwrap().state, StateCode::Done);
    }
}

#[test]
fn the_loss_of_a_whole_journal_is_accepted_by_its_words() {
    let dir = directory(true);
    fs::rename(dir.path().join("journal"), dir.path().join("journal.new")).unwrap();
    let OpenError::Lost { words, accept, .. } = open(dir.path()).unwrap_err() else { panic!("it is a loss") };
    fs::write(&accept, words).unwrap();
    let store = open(dir.path()).unwrap();
    assert!(!accept.exists() && record(&store, 1).is_none());
    assert_eq!(now(store.audited(10)).unwrap().len(), 1);
    run(&store, 1);
    drop(store);
    assert_eq!(record(&open(dir.path()).unwrap(), 1).unwrap().state, StateCode::Done);
}

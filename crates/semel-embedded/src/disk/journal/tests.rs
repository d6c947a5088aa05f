//! The journal with small segments, tidied up when the test says so.

mod lost;

use std::{cell::RefCell, collections::BTreeMap};

use semel_core::{
    Fence, Owner,
    fingerprint::Fingerprint,
    record::{Flags, Record, StateCode, VERSION},
};

use super::*;
use crate::share::{SHARES, first_of, share_of};

const SMALL: Sizes = Sizes { segment: 4_096, ahead: 1_024, moves: 256 };

const KEY: [u8; 32] = [5; 32];

fn digest(n: u64) -> Digest {
    let mut digest = [0; 32];
    // Spread over the shards, and the last half as good as the first.
    digest[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    digest[8..16].copy_from_slice(&n.to_be_bytes());
    digest[24..].copy_from_slice(&n.to_be_bytes());
    digest
}

fn record(state: StateCode, ends: i64, rest: &[u8]) -> Record {
    Record {
        version: VERSION,
        state,
        flags: Flags::NONE,
        fingerprint: Fingerprint::NONE,
        owner: Owner::from_bytes([7; 16]),
        fence: Fence::new(9),
        attempt: 1,
        lease_until: StoreTime::default(),
        expires_at: StoreTime::from_micros(ends),
        rest: Bytes::copy_from_slice(rest),
    }
}

fn done(ends: i64, rest: &[u8]) -> Record {
    record(StateCode::Done, ends, rest)
}

fn at(micros: i64) -> StoreTime {
    StoreTime::from_micros(micros)
}

/// A journal in a directory of its own, and the number of its last batch.
struct Bench {
    dir: tempfile::TempDir,
    journal: RefCell<Option<(Journal, u64)>>,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Journal::create(&dir.path().join("journal"), KEY).unwrap();
        Manifest::create(&dir.path().join("manifest"), KEY, [6; 32]).unwrap();
        let bench = Self { dir, journal: RefCell::default() };
        bench.reopen().unwrap();
        bench
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    fn reopen(&self) -> Result<Opened, OpenError> {
        self.reopen_and(false)
    }

    fn reopen_and(&self, accept_a_loss: bool) -> Result<Opened, OpenError> {
        drop(self.journal.borrow_mut().take());
        let manifest = Manifest::open(self.dir.path().join("manifest"))?;
        let (journal, opened) = Journal::open_with(&self.path(), manifest, SMALL, &|_| Ok(accept_a_loss))?;
        *self.journal.borrow_mut() = Some((journal, opened.mark.batch));
        Ok(opened)
    }

    fn ask<T>(&self, question: impl FnOnce(&Journal) -> T) -> T {
        question(&self.journal.borrow().as_ref().unwrap().0)
    }

    /// One batch.
    fn write(&self, changes: &[(u64, Option<Record>)]) {
        let mut journal = self.journal.borrow_mut();
        let (journal, batch) = journal.as_mut().unwrap();
        *batch += 1;
        let change = |(n, to): &(u64, Option<Record>)| Change { digest: digest(*n), to: to.clone(), raw: None };
        let changes: Vec<_> = changes.iter().map(change).collect();
        let changes: Vec<_> = changes.iter().collect();
        journal.write(&changes, Mark { time: at(1), batch: *batch, synced: *batch - 1 }).unwrap();
    }

    fn put(&self, n: u64, record: Record) {
        self.write(&[(n, Some(record))]);
    }

    fn sync(&self) {
        self.ask(|j| j.sync().unwrap());
    }

    fn tidy(&self) {
        self.ask(|j| j.inner.tidy().unwrap());
    }

    /// Writes, syncs and tidies up until nothing changes any more.
    fn settle_down(&self) {
        for _ in 0..10_000 {
            self.tidy();
            if !self.ask(Disk::wants_write) {
                return;
            }
            self.write(&[]);
            self.sync();
        }
        panic!("it goes on for ever");
    }

    fn rest_of(&self, n: u64) -> Option<Vec<u8>> {
        let bytes = self.ask(|j| j.record(&digest(n)).unwrap())?;
        Some(Record::decode(&bytes).rest.to_vec())
    }

    fn numbers(&self) -> Vec<u32> {
        self.ask(|j| j.inner.segments.read().keys().copied().collect())
    }

    /// All files, as the end of the process would leave them.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let journal = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path());
        let all = journal.chain([self.dir.path().join("manifest")]);
        all.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }

    /// Makes the files what they were.
    fn put_back(&self, files: &[(PathBuf, Vec<u8>)]) {
        drop(self.journal.borrow_mut().take());
        for entry in fs::read_dir(self.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        files.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }

    fn file(&self, number: u32) -> PathBuf {
        segment::path_of(&self.path(), number)
    }

    /// What the segments say of themselves, against what the index says.
    fn check_counts(&self) {
        self.ask(|j| {
            let mut live: BTreeMap<u32, u64> = BTreeMap::new();
            for share in 0..SHARES {
                let from = short(&first_of(share).unwrap());
                for (_, place) in j.inner.index.from(&from, usize::MAX).0 {
                    *live.entry(place.segment).or_default() += u64::from(place.len);
                }
            }
            for (number, segment) in &*j.inner.segments.read() {
                assert_eq!(segment.live(), live.remove(number).unwrap_or(0), "segment {number}");
            }
            assert!(live.is_empty(), "entries in segments that are gone: {live:?}");
        });
    }
}

#[test]
fn what_is_written_is_there_until_it_is_replaced_or_removed_and_after_a_reopen() {
    let bench = Bench::new();
    bench.write(&[(1, Some(done(100, b"one"))), (2, Some(done(100, b"two"))), (1, Some(done(100, b"uno")))]);
    bench.write(&[(3, Some(done(100, b"three"))), (2, None)]);
    for _ in 0..2 {
        assert_eq!(bench.rest_of(1).unwrap(), b"uno");
        assert_eq!(bench.rest_of(2), None);
        assert_eq!(bench.rest_of(3).unwrap(), b"three");
        assert_eq!(bench.ask(Disk::len), 2);
        bench.check_counts();
        bench.reopen().unwrap();
    }
}

/// What is written and not synced is lost in a power cut, and nothing else: whatever segments, summaries and moves there were.
#[test]
fn a_power_cut_leaves_exactly_what_was_synced() {
    for seed in 1..=20_u64 {
        let bench = Bench::new();
        let mut random = Random(seed);
        let mut model: BTreeMap<u64, (i64, Vec<u8>)> = BTreeMap::new();
        let end = |b: &Bench| {
            b.ask(|j| {
                let tail = j.inner.tail.lock();
                (tail.segment.number, tail.at)
            })
        };
        let mut synced = (model.clone(), end(&bench));
        let (mut now, mut cuts) = (1_000_i64, 0);
        for _ in 0..400 {
            match random.below(20) {
                0..13 => {
                    let before = (model.clone(), end(&bench).0);
                    let (n, long) = (random.below(40), random.below(6) == 0);
                    let ends = now + if long { 1_000_000 } else { i64::try_from(random.below(200)).unwrap() };
                    let rest = vec![u8::try_from(n).unwrap(); usize::try_from(random.below(300)).unwrap()];
                    if random.below(6) == 0 {
                        model.remove(&n);
                        bench.write(&[(n, None)]);
                    } else {
                        model.insert(n, (ends, rest.clone()));
                        bench.put(n, done(ends, &rest));
                    }
                    let (number, _) = end(&bench);
                    if number != before.1 {
                        // All that came before was synced for it.
                        synced = (before.0, (number, SegmentHead::LEN as u64));
                    }
                }
                13..15 => {
                    bench.sync();
                    synced = (model.clone(), end(&bench));
                }
                15..18 => bench.tidy(),
                18 => {
                    now += i64::try_from(random.below(150)).unwrap();
                    bench.ask(|j| j.purge(at(now), 100).unwrap());
                }
                _ => {
                    cuts += 1;
                    drop(bench.journal.borrow_mut().take());
                    let (before, (number, len)) = &synced;
                    let file = fs::OpenOptions::new().write(true).open(bench.file(*number)).unwrap();
                    file.set_len(*len).unwrap();
                    bench.reopen().unwrap();
                    model.clone_from(before);
                    synced = (model.clone(), end(&bench));
                    while bench.ask(|j| j.purge(at(now), 100).unwrap()) > 0 {}
                    model.retain(|_, (ends, _)| *ends > now);
                    for n in 0..40 {
                        let should = model.get(&n).map(|(_, rest)| rest.clone());
                        assert_eq!(bench.rest_of(n), should, "seed {seed}, key {n}");
                    }
                    bench.check_counts();
                }
            }
        }
        assert!(cuts > 5 && bench.numbers()[0] > 1, "seed {seed} shows nothing");
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Everything at once against a map: replaced, removed, ended, moved, reopened, in segments of a few entries each.
#[test]
fn a_journal_is_a_map_whatever_happens_to_its_segments() {
    for seed in 1..=20_u64 {
        let bench = Bench::new();
        let mut model: BTreeMap<u64, (i64, Vec<u8>)> = BTreeMap::new();
        let mut random = Random(seed);
        let mut next = |bound| random.below(bound);
        let (mut now, mut moved, mut freed) = (1_000_i64, false, false);
        for step in 0..600 {
            match next(20) {
                0..12 => {
                    let batch: Vec<_> = (0..=next(5))
                        .map(|_| {
                            // Some live long, most do not.
                            let ends = now + if next(8) == 0 { 1_000_000 } else { i64::try_from(next(300)).unwrap() };
                            let rest = vec![u8::try_from(next(256)).unwrap(); usize::try_from(next(300)).unwrap()];
                            let n = next(60);
                            model.insert(n, (ends, rest.clone()));
                            (n, Some(done(ends, &rest)))
                        })
                        .collect();
                    bench.write(&batch);
                }
                12..14 => {
                    let n = next(60);
                    model.remove(&n);
                    bench.write(&[(n, None)]);
                }
                14..16 => bench.sync(),
                16..18 => bench.tidy(),
                18 => {
                    now += i64::try_from(next(200)).unwrap();
                    let ended = model.values().filter(|(ends, _)| *ends <= now).count();
                    let max = usize::try_from(next(20)).unwrap();
                    let gone = bench.ask(|j| j.purge(at(now), max).unwrap());
                    assert_eq!(gone, max.min(ended), "seed {seed}, step {step}");
                    bench.ask(|j| model.retain(|n, _| j.inner.index.get(&short(&digest(*n))).is_some()));
                }
                _ => {
                    bench.reopen().unwrap();
                    // What ended may be back until it is purged again.
                    while bench.ask(|j| j.purge(at(now), 100).unwrap()) > 0 {}
                    model.retain(|_, (ends, _)| *ends > now);
                }
            }
            moved |= bench.ask(|j| j.inner.has_moves());
            freed |= bench.numbers()[0] > 1;
            if step % 20 == 19 {
                bench.check_counts();
                for n in 0..60 {
                    let should = model.get(&n).map(|(_, rest)| rest.clone());
                    assert_eq!(bench.rest_of(n), should, "seed {seed}, step {step}, key {n}");
                }
            }
        }
        assert!(moved && freed, "seed {seed} shows nothing");
    }
}

#[test]
fn a_segment_goes_when_nothing_in_it_counts_and_only_after_a_synced_batch_says_so() {
    let bench = Bench::new();
    for n in 0..60 {
        bench.put(n, done(100, &[7; 100]));
    }
    bench.sync();
    assert!(bench.numbers().len() > 3);
    let first = bench.numbers()[0];
    assert_eq!(bench.ask(|j| j.purge(at(100), 1_000).unwrap()), 60);
    bench.tidy();
    assert!(bench.file(first).exists());
    bench.write(&[]);
    bench.tidy();
    assert!(bench.file(first).exists(), "a power cut now would leave a journal that needs it");
    bench.sync();
    bench.tidy();
    assert_eq!(bench.numbers().len(), 1);
    assert!(!bench.file(first).exists() && !bench.file(first).with_extension("sum").exists());
    assert_eq!(bench.reopen().unwrap().mark.batch, 61);
}

#[test]
fn what_lives_long_moves_so_that_the_journal_stays_within_twice_what_counts_and_a_little() {
    let bench = Bench::new();
    for n in 0..3_000_u64 {
        // One in twenty stays.
        let ends = if n % 20 == 0 { 1_000_000 } else { i64::try_from(n).unwrap() };
        bench.put(n, done(ends, &[7; 60]));
        if n % 50 == 0 {
            bench.sync();
            bench.ask(|j| j.purge(at(i64::try_from(n).unwrap()), 1_000).unwrap());
            bench.settle_down();
        }
    }
    bench.ask(|j| j.purge(at(10_000), 10_000).unwrap());
    bench.settle_down();
    let entry = (layout::ENTRY_HEAD + semel_core::record::HEADER_LEN + 60) as u64;
    assert_eq!(bench.ask(Disk::len), 150);
    let most = 2 * 150 * entry + (tidy::SLACK + 3) * SMALL.segment + SMALL.ahead;
    assert!(bench.ask(Disk::size) <= most, "{} of at most {most}", bench.ask(Disk::size));
    bench.check_counts();
    bench.reopen().unwrap();
    for n in (0..3_000).step_by(20) {
        assert!(bench.rest_of(n).is_some(), "{n}");
    }
}

/// A summary that left out what a later segment overrules would forget a synced claim when the power goes before that
/// later segment is synced.
#[test]
fn what_an_unsynced_segment_overrules_is_back_after_a_power_cut() {
    let bench = Bench::new();
    bench.put(1, record(StateCode::InFlight, 1_000, b"claim"));
    bench.sync();
    let mut n = 100;
    while bench.numbers().len() == 1 {
        bench.put(n, done(1_000, &[7; 300]));
        n += 1;
    }
    bench.put(1, done(1_000, b"outcome"));
    bench.tidy();
    let newest = bench.file(2);
    drop(bench.journal.borrow_mut().take());
    // The head was synced before the first batch came.
    let file = fs::OpenOptions::new().write(true).open(&newest).unwrap();
    file.set_len(SegmentHead::LEN as u64).unwrap();
    let opened = bench.reopen().unwrap();
    assert_eq!(bench.rest_of(1).unwrap(), b"claim");
    assert!(opened.unresolved.iter().any(|(d, _)| *d == digest(1)));
}

#[test]
fn an_open_finds_what_is_unresolved_wherever_it_is() {
    let bench = Bench::new();
    for n in 0..200 {
        let state = [StateCode::InFlight, StateCode::Unknown, StateCode::Done, StateCode::Free][n as usize % 4];
        bench.put(n, record(state, 1_000, &[7; 50]));
    }
    // Some of it was settled since.
    for n in (0..200).step_by(8) {
        bench.put(n, done(1_000, b""));
    }
    for tidy in [false, true] {
        if tidy {
            bench.tidy();
        }
        let mut found: Vec<_> = bench.reopen().unwrap().unresolved.into_iter().map(|(d, _)| d).collect();
        found.sort_unstable();
        let mut expected: Vec<_> = (0..200).filter(|n| n % 4 < 2 && n % 8 != 0).map(digest).collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_summary_that_is_missing_or_damaged_is_made_again_from_its_segment() {
    let bench = Bench::new();
    for n in 0..60 {
        bench.put(n, done(1_000, &[7; 100]));
    }
    bench.write(&[(3, None)]);
    bench.tidy();
    let (first, second) = (bench.file(1).with_extension("sum"), bench.file(2).with_extension("sum"));
    fs::remove_file(&first).unwrap();
    let whole = fs::read(&second).unwrap();
    for byte in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[byte] ^= 1;
        fs::write(&second, damaged).unwrap();
        bench.reopen().unwrap();
        assert_eq!(bench.ask(Disk::len), 59, "byte {byte}");
    }
    assert!(bench.rest_of(0).is_some() && bench.rest_of(3).is_none());
    bench.tidy();
    assert!(fs::read(&second).unwrap() == whole && first.exists());
}

#[test]
fn a_segment_that_is_missing_short_or_another_is_refused_by_name() {
    let bench = Bench::new();
    for n in 0..60 {
        bench.put(n, done(1_000, &[7; 100]));
    }
    drop(bench.journal.borrow_mut().take());
    let refused = |file: &Path| {
        let e = bench.reopen().map(drop).unwrap_err();
        assert!(matches!(&e, OpenError::Damaged { path, .. } if path == file), "{e}");
    };
    let second = bench.file(2);
    let whole = fs::read(&second).unwrap();
    fs::remove_file(&second).unwrap();
    refused(&second);
    fs::write(&second, &whole[..whole.len() - 2_000]).unwrap();
    refused(&second);
    fs::copy(bench.file(3), &second).unwrap();
    refused(&second);
    fs::write(&second, whole).unwrap();
    bench.reopen().unwrap();
    assert_eq!(bench.ask(Disk::len), 60);
}

#[test]
fn a_segment_that_was_only_begun_is_begun_again() {
    let bench = Bench::new();
    bench.put(1, done(1_000, b"one"));
    bench.sync();
    for torn in [&[0; 0][..], &[0; 100], b"SMLJ"] {
        fs::write(bench.file(2), torn).unwrap();
        bench.reopen().unwrap();
        assert_eq!(bench.rest_of(1).unwrap(), b"one");
    }
}

#[test]
fn damage_in_a_record_is_told_and_is_no_absence() {
    let bench = Bench::new();
    bench.put(1, done(1_000, b"something"));
    bench.sync();
    let mut bytes = fs::read(bench.file(1)).unwrap();
    let at = bytes.windows(9).position(|w| w == b"something").unwrap();
    bytes[at] ^= 1;
    fs::write(bench.file(1), bytes).unwrap();
    let e = bench.ask(|j| j.record(&digest(1)).unwrap_err());
    assert!(e.to_string().contains("damaged"), "{e}");
}

/// What follows a torn batch may be whole, and must not come to stand behind a batch that is written in its place.
#[test]
fn a_whole_batch_behind_a_torn_one_never_comes_back() {
    let bench = Bench::new();
    bench.put(1, done(1_000, b"one"));
    bench.sync();
    let torn_at = bench.ask(|j| j.inner.tail.lock().at);
    // As `durability = process` writes: nobody syncs in between.
    let write = |n: u64, batch: u64| {
        let change = Change { digest: digest(n), to: Some(done(1_000, b"abc")), raw: None };
        bench.ask(|j| j.write(&[&change], Mark { time: at(1), batch, synced: 1 }).unwrap());
    };
    write(2, 2);
    write(3, 3);
    drop(bench.journal.borrow_mut().take());
    let mut bytes = fs::read(bench.file(1)).unwrap();
    bytes[usize::try_from(torn_at).unwrap() + 70] ^= 1;
    fs::write(bench.file(1), bytes).unwrap();
    bench.reopen().unwrap();
    assert_eq!((bench.rest_of(2), bench.rest_of(3)), (None, None));
    bench.put(4, done(1_000, b"abc"));
    bench.reopen().unwrap();
    assert!(bench.rest_of(3).is_none() && bench.rest_of(4).is_some());
}

#[test]
fn records_come_in_the_order_of_their_digests_and_share_by_share() {
    let bench = Bench::new();
    for n in 0..500 {
        bench.put(n, done(1_000, b""));
    }
    let mut seen = Vec::new();
    for share in 0..SHARES {
        let mut from = first_of(share).unwrap();
        loop {
            let (records, more) = bench.ask(|j| j.records_from(&from, 3).unwrap());
            assert!(records.len() <= 3 && records.iter().all(|(d, _)| share_of(d) == share));
            seen.extend(records.iter().map(|(d, _)| *d));
            if !more {
                break;
            }
            from = *seen.last().unwrap();
            from[16] = 1;
        }
    }
    assert!(seen.len() == 500 && seen.is_sorted());
}

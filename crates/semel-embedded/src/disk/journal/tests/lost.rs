//! What the manifest says against what is there: every crash opens, no loss does.

use super::*;

/// A power cut leaves the journal as it was synced, and one of the notes that were made until then: with each of them all
/// that was answered is there. A journal that is older than a note has lost something, and is refused.
#[test]
fn at_each_sync_the_journal_opens_with_every_earlier_note_and_with_no_later_one() {
    let bench = Bench::new();
    let manifest = bench.dir.path().join("manifest");
    let mut synced = vec![bench.files()];
    for n in 0..30 {
        bench.put(n, done(1_000, &[7; 300]));
        bench.sync();
        if n % 7 == 0 {
            bench.tidy();
        }
        synced.push(bench.files());
    }
    assert!(bench.numbers().len() > 3);
    let note = |at: usize| fs::write(&manifest, &synced[at].last().unwrap().1).unwrap();
    for (now, files) in synced.iter().enumerate() {
        for noted in 0..synced.len() {
            bench.put_back(files);
            note(noted);
            if noted <= now {
                bench.reopen().unwrap();
                assert_eq!(bench.ask(Disk::len), now as u64, "synced {now}, noted {noted}");
                // It goes on from there, and what it does is noted as well.
                bench.put(100, done(1_000, b""));
                bench.sync();
                bench.reopen().unwrap();
                assert_eq!(bench.ask(Disk::len), now as u64 + 1, "synced {now}, noted {noted}");
            } else {
                let e = bench.reopen().map(drop).unwrap_err();
                assert!(matches!(e, OpenError::Lost { .. }), "synced {now}, noted {noted}: {e}");
            }
        }
    }
}

/// A batch that was written and not synced may be there in part: with every note that there can be it is a torn one.
#[test]
fn a_batch_that_no_note_speaks_of_may_end_at_any_byte() {
    let bench = Bench::new();
    for n in 0..9 {
        bench.put(n, done(1_000, &[7; 300]));
        bench.sync();
    }
    let (before, end) = (bench.files(), |b: &Bench| b.ask(|j| usize::try_from(j.inner.tail.lock().at).unwrap()));
    let (from, newest) = (end(&bench), bench.file(*bench.numbers().last().unwrap()));
    bench.put(9, done(1_000, &[7; 300]));
    assert_eq!(bench.numbers().last(), Some(&segment_of(&newest)), "it begins no segment");
    let (whole, to) = (fs::read(&newest).unwrap(), end(&bench));
    for cut in from..to {
        bench.put_back(&before);
        fs::write(&newest, &whole[..cut]).unwrap();
        bench.reopen().unwrap();
        assert_eq!(bench.ask(Disk::len), 9, "{cut}");
    }
}

fn segment_of(file: &Path) -> u32 {
    file.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

/// What an open answers from has to be on the disk, whatever the crash before it left unsynced.
#[test]
fn what_an_open_finds_is_noted_as_synced() {
    let bench = Bench::new();
    bench.put(1, done(1_000, b"one"));
    bench.reopen().unwrap();
    drop(bench.journal.borrow_mut().take());
    fs::OpenOptions::new().write(true).open(bench.file(1)).unwrap().set_len(SegmentHead::LEN as u64).unwrap();
    assert!(matches!(bench.reopen().map(drop), Err(OpenError::Lost { .. })));
}

#[test]
fn one_of_the_two_notes_may_be_torn() {
    let bench = Bench::new();
    let manifest = bench.dir.path().join("manifest");
    for n in 0..4 {
        bench.put(n, done(1_000, b""));
        bench.sync();
        let files = bench.files();
        for at in [4_096, 8_192] {
            bench.put_back(&files);
            let mut torn = fs::read(&manifest).unwrap();
            torn[at + 3..at + 20].fill(0xff);
            fs::write(&manifest, &torn).unwrap();
            bench.reopen().unwrap();
            assert_eq!(bench.ask(Disk::len), n + 1);
            torn[4_096 + 3] ^= 1;
            torn[8_192 + 3] ^= 1;
            fs::write(&manifest, &torn).unwrap();
            let e = bench.reopen().map(drop).unwrap_err();
            assert!(matches!(&e, OpenError::Damaged { path, .. } if *path == manifest), "{e}");
        }
        bench.put_back(&files);
        bench.reopen().unwrap();
    }
}

/// Under another directory's manifest every batch would read as torn, and be cut off.
#[test]
fn a_journal_under_another_manifest_is_refused_and_left_as_it_was() {
    let bench = Bench::new();
    let manifest = bench.dir.path().join("manifest");
    for n in 0..20 {
        bench.put(n, done(1_000, &[7; 300]));
    }
    let files = bench.files();
    for segments in [1, bench.numbers().len()] {
        let logs = files.iter().filter(|(path, _)| path.extension().is_some());
        let some: Vec<_> = logs.filter(|(path, _)| segment_of(path) as usize <= segments).cloned().collect();
        bench.put_back(&some);
        fs::remove_file(&manifest).unwrap();
        Manifest::create(&manifest, [4; 32], [6; 32]).unwrap();
        let e = bench.reopen().map(drop).unwrap_err();
        assert!(matches!(&e, OpenError::Damaged { path, .. } if *path == bench.file(1)), "{e}");
        assert!(some.iter().all(|(path, bytes)| fs::read(path).unwrap() == *bytes));
    }
}

/// Without a note of it that survives a power cut, a segment that is gone would be missed by nobody.
#[test]
fn that_a_segment_was_begun_is_synced_before_its_first_batch_is() {
    let bench = Bench::new();
    for n in 0..40 {
        let before = bench.numbers().len();
        bench.put(n, done(1_000, &[7; 300]));
        if bench.numbers().len() > before {
            let number = *bench.numbers().last().unwrap();
            let noted = bench.ask(|j| (j.inner.manifest.reached().segment, j.inner.manifest.is_unsynced()));
            assert_eq!(noted, (number, false));
        }
        bench.sync();
        assert!(bench.ask(|j| j.inner.manifest.is_unsynced()));
    }
    assert!(bench.numbers().len() > 3);
}

#[test]
fn a_note_is_synced_by_and_by_though_nothing_more_is_written() {
    let bench = Bench::new();
    drop(bench.journal.borrow_mut().take());
    let manifest = Manifest::open(bench.dir.path().join("manifest")).unwrap();
    let (journal, _) = Journal::open(&bench.path(), manifest, SMALL.segment, &|_| Ok(false)).unwrap();
    let change = Change { digest: digest(1), to: Some(done(1_000, b"")), raw: None };
    journal.write(&[&change], Mark { time: at(1), batch: 1, synced: 0 }).unwrap();
    journal.sync().unwrap();
    for _ in 0..6_000 {
        if !journal.inner.manifest.is_unsynced() {
            return;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    panic!("nobody syncs it");
}

/// Which segments are needed is said by the last batch. Where that is lost, an earlier one asks for segments that are gone
/// for good, and the store would open never again.
#[test]
fn segments_that_a_lost_batch_gave_up_are_not_asked_for_once_the_loss_is_accepted() {
    let bench = Bench::new();
    let put = |n: u64| bench.put(n, done(100, &[7; 300]));
    while bench.numbers().len() < 3 {
        put(1);
    }
    bench.put(500, done(1_000_000, b"stays"));
    let at_end = || bench.ask(|j| j.inner.tail.lock().at + 500 > SMALL.segment);
    (2..100).take_while(|_| !at_end()).for_each(put);
    bench.ask(|j| j.purge(at(100), 1_000).unwrap());
    bench.put(600, done(1_000_000, &[7; 500]));
    bench.sync();
    bench.tidy();
    assert_eq!(bench.numbers(), [3, 4]);
    drop(bench.journal.borrow_mut().take());
    fs::remove_file(bench.file(4)).unwrap();
    assert!(matches!(bench.reopen().map(drop), Err(OpenError::Lost { .. })));
    bench.reopen_and(true).unwrap();
    for _ in 0..2 {
        assert!(bench.rest_of(500).is_some() && bench.rest_of(600).is_none());
        bench.reopen().unwrap();
    }
}

/// A client's body is stored as it came. One that looked like the head of a later, synced batch made a torn batch before it
/// read as damage, so that a store did not open after a crash.
#[test]
fn nothing_that_a_client_sends_looks_like_a_batch() {
    let forged = |key: [u8; 32], place: u32| {
        let mut batch = vec![0; BatchHead::LEN];
        BatchHead::put(&mut batch, Mark { time: at(1), batch: 1_000, synced: 999 }, 1, 1, 0);
        BatchHead::seal(&mut batch, &layout::Seal::new(key), place);
        batch
    };
    // Where it comes to stand: behind the heads of the segment, the batch, the entry and the record.
    let at = SegmentHead::LEN + BatchHead::LEN + layout::ENTRY_HEAD + semel_core::record::HEADER_LEN;
    let at = u32::try_from(at).unwrap();
    let opens = |body: &[u8]| {
        let bench = Bench::new();
        bench.put(1, done(1_000, body));
        drop(bench.journal.borrow_mut().take());
        let mut bytes = fs::read(bench.file(1)).unwrap();
        let (body_at, len) = (usize::try_from(at).unwrap(), body.len());
        assert!(bytes[body_at..body_at + len] == *body);
        bytes[SegmentHead::LEN + 20] ^= 1;
        fs::write(bench.file(1), bytes).unwrap();
        bench.reopen().is_ok()
    };
    assert!(opens(b"an ordinary body"));
    assert!(opens(&forged([0; 32], at)));
    assert!(opens(&forged(KEY, 40)), "a batch that really was there, at another place");
    let mut unkeyed = forged(KEY, at);
    let sum = xxhash_rust::xxh3::xxh3_64(&unkeyed[..56]);
    unkeyed[56..].copy_from_slice(&sum.to_be_bytes());
    assert!(opens(&unkeyed));
    assert!(!opens(&forged(KEY, at)), "with the directory's key it would be one");
}

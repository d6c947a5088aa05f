//! A disk that becomes full, for real: a small file system of its own, mounted for the test.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use semel_core::{
    env::Env,
    record::{Flags, StateCode},
    store::{Claim, Did, Settled, Store, StoreErrorKind},
};
use semel_embedded::{EmbeddedStore, Options};
use semel_testkit::clock::ManualClock;

use crate::keys::{HOUR, ask, claim, done, now, record};

const MIB: u64 = 1 << 20;

/// A file system in memory, unmounted at the end.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    fn mount(size: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={size},mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "semel-test"]).arg(dir.path()).status();
        let mounted = mounted.expect("the command `mount` can be run");
        assert!(
            mounted.success(),
            "mounting a tmpfs failed: this test needs the right to mount (run it as root, in a container with \
             CAP_SYS_ADMIN)"
        );
        Self { dir }
    }

    fn ballast(&self) -> PathBuf {
        self.dir.path().join("ballast")
    }

    fn free(&self) -> u64 {
        let fs = rustix::fs::statvfs(self.dir.path()).unwrap();
        fs.f_bavail * fs.f_frsize
    }

    /// Fills it until about `left` bytes are free.
    fn fill(&self, left: u64) {
        let mut file = File::options().append(true).create(true).open(self.ballast()).unwrap();
        while self.free() > left {
            let n = (self.free() - left).min(MIB);
            if file.write_all(&vec![1; usize::try_from(n).unwrap()]).is_err() {
                break;
            }
        }
    }

    fn clear(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.dir.path()).status());
    }
}

fn options() -> Options {
    Options { reserve: 4 * MIB, headroom: 8 * MIB, space_check: Duration::ZERO, ..Options::default() }
}

/// A store in segments of a mebibyte, with ten of them full of records that live for an hour.
fn of_an_hour(disk: &SmallDisk, clock: &ManualClock) -> EmbeddedStore {
    let env = Env { clock: Arc::new(clock.clone()), ..Env::system() };
    let options = Options { segment: MIB, ..options() };
    let store = EmbeddedStore::open(&disk.dir.path().join("data"), &env, &options).unwrap();
    (0..40).for_each(|n| settle(&store, &claim(&store, &ask(n, 0)), 300_000));
    assert!(segments(disk) > 10);
    store
}

fn segments(disk: &SmallDisk) -> usize {
    let names = fs::read_dir(disk.dir.path().join("data/journal")).unwrap().map(|e| e.unwrap().path());
    names.filter(|p| p.extension().is_some_and(|e| e == "log")).count()
}

/// Calls nothing until all segments but the newest are gone.
fn gives_room_back(disk: &SmallDisk) {
    let given = (0..2_000).any(|_| {
        std::thread::park_timeout(Duration::from_millis(5));
        segments(disk) == 1
    });
    assert!(given, "{} segments are left", segments(disk));
}

fn open(disk: &SmallDisk) -> EmbeddedStore {
    EmbeddedStore::open(&disk.dir.path().join("data"), &Env::system(), &options()).unwrap()
}

fn settle(store: &EmbeddedStore, claim: &Claim, body: usize) {
    let Settled::Ok { .. } = now(store.settle(claim, &done(7, body))).unwrap() else { panic!("it was lost") };
}

/// A claim is refused as full, at the latest after the writer has looked.
fn refuses_claims(store: &EmbeddedStore, first: u64) {
    for n in first..first + 3 {
        let Err(e) = now(store.claim(&ask(n, 0))) else { continue };
        assert_eq!((e.did, e.kind), (Did::Nothing, StoreErrorKind::Full), "{e:?}");
        assert!(e.retry_after.is_some());
        return;
    }
    panic!("claims are still taken");
}

/// A claim is taken, at the latest after the writer has looked a few times.
fn takes_claims(store: &EmbeddedStore, first: u64) {
    let taken = (0..200).any(|n| {
        std::thread::park_timeout(Duration::from_millis(5));
        now(store.claim(&ask(first + n, 0))).is_ok()
    });
    assert!(taken, "claims are still refused");
}

fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn a_full_disk_refuses_claims_lets_running_work_settle_and_comes_back() {
    let disk = SmallDisk::mount(64 * MIB);
    let store = open(&disk);
    let reserve = disk.dir.path().join("data/reserve");
    assert!(allocated(&reserve) >= 4 * MIB);
    let running: Vec<_> = (0..20).map(|n| claim(&store, &ask(n, 0))).collect();

    disk.fill(6 * MIB);
    refuses_claims(&store, 100);
    assert_eq!(record(&store, 0).unwrap().state, StateCode::InFlight);
    settle(&store, &running[0], 50_000);
    assert!(record(&store, 0).unwrap().flags.has(Flags::BODY_KEPT));
    assert!(allocated(&reserve) >= 4 * MIB, "the reserve is for worse times");

    // Something else takes everything.
    disk.fill(0);
    for running in &running[1..] {
        settle(&store, running, 50_000);
    }
    assert_eq!(allocated(&reserve), 0);
    let last = record(&store, 19).unwrap();
    assert!(last.state == StateCode::Done && !last.flags.has(Flags::BODY_KEPT), "large bodies are not kept now");
    refuses_claims(&store, 200);
    let health = now(store.health()).unwrap();
    assert!(!health.writable && health.trouble.contains("space"), "{health:?}");

    disk.clear();
    takes_claims(&store, 300);
    assert!(allocated(&reserve) >= 4 * MIB);
    assert!(now(store.health()).unwrap().writable);
    drop(store);
    let store = open(&disk);
    for n in 0..20 {
        assert_eq!(record(&store, n).unwrap().state, StateCode::Done, "{n}");
    }
}

/// A disk that something else filled between two looks at it let the next write fail, and the store was closed for good:
/// what ran could not settle.
#[test]
fn a_disk_that_is_full_from_one_moment_to_the_next_closes_nothing() {
    let disk = SmallDisk::mount(64 * MIB);
    let seldom = Options { space_check: Duration::from_secs(3_600), ..options() };
    let store = EmbeddedStore::open(&disk.dir.path().join("data"), &Env::system(), &seldom).unwrap();
    let running: Vec<_> = (0..20).map(|n| claim(&store, &ask(n, 0))).collect();
    disk.fill(0);
    for running in &running {
        settle(&store, running, 50_000);
    }
    refuses_claims(&store, 100);
    assert_eq!(record(&store, 19).unwrap().state, StateCode::Done);
}

#[test]
fn a_full_disk_without_a_reserve_ends_writing_and_not_reading() {
    let disk = SmallDisk::mount(16 * MIB);
    let careless = Options { reserve: 0, headroom: 0, ..options() };
    let dir = disk.dir.path().join("data");
    let store = EmbeddedStore::open(&dir, &Env::system(), &careless).unwrap();
    let mut granted = Vec::new();
    let failed = loop {
        let n = granted.len() as u64;
        match now(store.claim(&ask(n, 0))) {
            Ok(semel_core::store::Claimed::Granted { claim, .. }) => {
                granted.push(claim);
                if let Err(e) = now(store.settle(granted.last().unwrap(), &done(7, 300_000))) {
                    break e;
                }
            }
            Ok(other) => panic!("{other:?}"),
            Err(e) => break e,
        }
        assert!(granted.len() < 1_000);
    };
    assert_eq!(failed.kind, StoreErrorKind::ReadOnly);
    assert_eq!(record(&store, 0).unwrap().state, StateCode::Done);
    store.close();
    drop(store);
    // Room comes, and the next start finds what was answered.
    let larger = Command::new("mount").args(["-o", "remount,size=64m"]).arg(disk.dir.path()).status().unwrap();
    assert!(larger.success());
    let store = EmbeddedStore::open(&dir, &Env::system(), &careless).unwrap();
    for (n, claim) in granted.iter().enumerate() {
        let found = record(&store, n as u64).unwrap();
        assert_eq!(found.fence, Some(claim.fence()));
        assert!(n + 1 == granted.len() || found.state == StateCode::Done, "{n}");
    }
}

#[test]
fn a_start_on_a_full_disk_answers_what_it_has() {
    let disk = SmallDisk::mount(64 * MIB);
    let store = open(&disk);
    let done_before = claim(&store, &ask(1, 0));
    settle(&store, &done_before, 10);
    let running = claim(&store, &ask(2, 0));
    drop(store);
    disk.fill(MIB / 2);
    let store = open(&disk);
    assert_eq!(record(&store, 1).unwrap().state, StateCode::Done);
    refuses_claims(&store, 100);
    settle(&store, &running, 10);
}

/// Refused claims make no batches, so nothing took notice of the records that had ended: the refusal lasted until the
/// sweeper came, and then for as long as it took one batch to follow another.
#[test]
fn a_refusal_for_want_of_room_ends_when_records_have_ended_though_nobody_calls() {
    for left in [6 * MIB, 0] {
        let (disk, clock) = (SmallDisk::mount(64 * MIB), ManualClock::new());
        let store = of_an_hour(&disk, &clock);
        let running = claim(&store, &ask(99, 0));
        disk.fill(left);
        // Small, and written into blocks that are there.
        settle(&store, &running, 10);
        refuses_claims(&store, 100);
        assert!(segments(&disk) > 10, "nothing has ended yet");
        clock.advance(2 * HOUR);
        gives_room_back(&disk);
        takes_claims(&store, 200);
        assert!(allocated(&disk.dir.path().join("data/reserve")) >= 4 * MIB);
    }
}

#[test]
fn a_start_on_a_disk_full_of_records_that_ended_gives_them_back() {
    let (disk, clock) = (SmallDisk::mount(64 * MIB), ManualClock::new());
    let store = of_an_hour(&disk, &clock);
    drop(store);
    disk.fill(0);
    clock.advance(2 * HOUR);
    let env = Env { clock: Arc::new(clock), ..Env::system() };
    let store = EmbeddedStore::open(&disk.dir.path().join("data"), &env, &options()).unwrap();
    gives_room_back(&disk);
    takes_claims(&store, 200);
}

#[test]
fn records_that_ended_go_before_a_claim_is_refused_for_want_of_room() {
    let (disk, clock) = (SmallDisk::mount(64 * MIB), ManualClock::new());
    let store = of_an_hour(&disk, &clock);
    disk.fill(11 * MIB);
    clock.advance(2 * HOUR);
    let _granted = claim(&store, &ask(100, 0));
    gives_room_back(&disk);
}

/// Up to four segments more than twice what counts may lie around. Where room was short as well: a few small records with
/// an unknown outcome, one in each, held them for days, and every new key was refused.
#[test]
fn a_few_records_that_live_on_hold_no_segments_while_room_is_short() {
    let (disk, clock) = (SmallDisk::mount(64 * MIB), ManualClock::new());
    let env = Env { clock: Arc::new(clock.clone()), ..Env::system() };
    let dir = disk.dir.path().join("data");
    let store = EmbeddedStore::open(&dir, &env, &Options { segment: 4 * MIB, ..options() }).unwrap();
    let _running: Vec<_> = (0..5)
        .map(|n| {
            (0..12).for_each(|i| settle(&store, &claim(&store, &ask(1_000 + n * 12 + i, 0)), 300_000));
            claim(&store, &ask(n, 0))
        })
        .collect();
    assert_eq!(segments(&disk), 5);
    disk.fill(6 * MIB);
    refuses_claims(&store, 100);
    clock.advance(HOUR + HOUR / 2);
    takes_claims(&store, 200);
    drop(store);
    let store = EmbeddedStore::open(&dir, &env, &options()).unwrap();
    for n in 0..5 {
        assert_eq!(record(&store, n).unwrap().state, StateCode::InFlight, "{n}");
    }
}

/// Room is given back by segments, and the newest one never was: a journal of a single one, with nothing in it that counts,
/// had every new key refused for good.
#[test]
fn a_newest_segment_full_of_ended_records_is_given_back_while_room_is_short() {
    for (restarted, lives) in [(false, false), (true, false), (false, true)] {
        let (disk, clock) = (SmallDisk::mount(64 * MIB), ManualClock::new());
        let env = Env { clock: Arc::new(clock.clone()), ..Env::system() };
        let open = || EmbeddedStore::open(&disk.dir.path().join("data"), &env, &options()).unwrap();
        let mut store = open();
        let _running = lives.then(|| claim(&store, &ask(99, 0)));
        (0..40).for_each(|n| settle(&store, &claim(&store, &ask(n, 0)), 300_000));
        assert_eq!(segments(&disk), 1);
        disk.fill(6 * MIB);
        refuses_claims(&store, 100);
        clock.advance(HOUR + HOUR / 2);
        if restarted {
            drop(store);
            store = open();
        }
        takes_claims(&store, 200);
        gives_room_back(&disk);
        assert!(!disk.dir.path().join("data/journal/0000000001.log").exists());
        drop(store);
        let store = open();
        assert_eq!(record(&store, 99).map(|r| r.state), lives.then_some(StateCode::InFlight));
    }
}

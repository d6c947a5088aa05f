//! Killed at any moment, hundreds of times: what was answered is there, and nothing is granted twice.
//!
//! A child process claims, settles and releases as fast as it can and says so through a pipe: what it is about to do, and
//! what was answered. The parent kills it, opens the directory, and holds what it finds against what was said.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};

use semel_core::{
    env::Env,
    record::{Record, StateCode},
    store::{Claimed, Store},
};
use semel_embedded::{EmbeddedStore, Options, Power};

use crate::keys::{ask, body, done, free, now, options, quick_dir, record};

const DIR: &str = "SEMEL_CRASH_DIR";
const FIRST_KEY: &str = "SEMEL_CRASH_FIRST_KEY";

/// Keys of one round; the next begins half as many later, so that it asks for some of the earlier ones again.
const KEYS: u64 = 400;
const WORKERS: u64 = 6;
/// Rounds on one directory; what is in its journal is read twice in each.
const ROUNDS: u64 = 10;
/// A child is killed when it has said up to so many lines; a grant makes one to three of them.
const MOST_LINES: u64 = 300;
/// Directories of a test; `SEMEL_CRASH_DIRS` sets another number.
const DIRS: u64 = 10;

const FIRST_SEGMENT: &str = "journal/0000000001.log";

/// What is known of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Granted, and nothing else was begun.
    Running(u64),
    /// Its completion was begun.
    Completing(u64),
    /// It was completed.
    Completed(u64),
    /// Its release was begun.
    Releasing(u64),
    /// It was released.
    Released(u64),
}

impl Known {
    const fn fence(self) -> u64 {
        match self {
            Self::Running(f) | Self::Completing(f) | Self::Completed(f) | Self::Releasing(f) | Self::Released(f) => f,
        }
    }
}

/// What the stores of a test are opened with.
#[derive(Clone, Copy)]
struct Kind {
    durability: Power,
    segment: u64,
    /// The test, as its own child is told to run it.
    test: &'static str,
}

const POWER: Kind = Kind {
    durability: Power::Power,
    segment: 64 << 20,
    test: "crash::killed_at_any_moment_with_power_durability_nothing_answered_is_lost",
};
const PROCESS: Kind = Kind {
    durability: Power::Process,
    test: "crash::killed_at_any_moment_with_process_durability_nothing_answered_is_lost",
    ..POWER
};
/// Segments of a few entries: they are begun, summarised, emptied and removed all the time.
const SMALL_SEGMENTS: Kind =
    Kind { segment: 2 << 10, test: "crash::killed_at_any_moment_between_segments_nothing_answered_is_lost", ..POWER };

#[test]
fn killed_at_any_moment_with_power_durability_nothing_answered_is_lost() {
    rounds(0, POWER);
}

#[test]
fn killed_at_any_moment_with_process_durability_nothing_answered_is_lost() {
    rounds(1, PROCESS);
}

#[test]
fn killed_at_any_moment_between_segments_nothing_answered_is_lost() {
    rounds(2, SMALL_SEGMENTS);
}

fn rounds(seed: u64, kind: Kind) {
    // The same test is the child, where its parent says so.
    if let Ok(dir) = std::env::var(DIR) {
        return work_until_killed(Path::new(&dir), kind);
    }
    let dirs = std::env::var("SEMEL_CRASH_DIRS").map_or(DIRS, |n| n.parse().unwrap());
    let (mut grants, mut given_up) = (0, 0);
    for n in 0..dirs {
        let dir = quick_dir();
        grants += rounds_on_one_directory(dir.path(), n * 3 + seed, kind);
        given_up += u32::from(!dir.path().join(FIRST_SEGMENT).exists());
    }
    // Not luck: each child is killed when it has said so much.
    assert!(grants >= dirs * ROUNDS * MOST_LINES / 10, "only {grants} grants");
    assert_eq!(u64::from(given_up), if kind.segment < POWER.segment { dirs } else { 0 }, "segments were given up");
}

/// Rounds on one directory; where segments are small, until the first one was given up.
fn rounds_on_one_directory(dir: &Path, seed: u64, kind: Kind) -> u64 {
    let mut known = HashMap::new();
    let mut random = Random(seed);
    let (mut grants, mut round) = (0, 0);
    while round < ROUNDS || (kind.segment < POWER.segment && dir.join(FIRST_SEGMENT).exists() && round < 10 * ROUNDS) {
        let mut child = start(dir, round * KEYS / 2, kind);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok).filter_map(|l| l.strip_prefix("op ").map(str::to_owned));
        assert_eq!(lines.next().as_deref(), Some("ready"), "round {round}");
        // What it has said by then, and what it does while that is read, differ with every machine and every run.
        let enough = random.next() % MOST_LINES;
        let mut said = 0;
        if enough == 0 {
            child.kill().unwrap();
        }
        for line in lines {
            said += 1;
            if said == enough {
                child.kill().unwrap();
            }
            grants += u64::from(line.starts_with("granted"));
            learn(&mut known, &line);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(said >= enough, "round {round}: the child ended by itself after {said} lines of {enough}");
        let store = open(dir, kind);
        for (key, known) in &known {
            let found = record(&store, *key);
            check(*key, *known, found.as_ref()).unwrap_or_else(|why| panic!("round {round}, key {key}: {why}"));
        }
        round += 1;
    }
    grants
}

/// Nothing is granted that was not free, and no fence comes twice.
fn learn(known: &mut HashMap<u64, Known>, line: &str) {
    let words: Vec<_> = line.split(' ').collect();
    let [what, key, fence] = words[..] else { panic!("{line}") };
    let (key, fence): (u64, u64) = (key.parse().unwrap(), fence.parse().unwrap());
    let before = known.get(&key).copied();
    let after = match what {
        "granted" => {
            let may = matches!(before, None | Some(Known::Released(_) | Known::Releasing(_)));
            assert!(may, "key {key} was granted again, it was {before:?}");
            assert!(before.is_none_or(|b| b.fence() < fence), "key {key}: fence {fence} after {before:?}");
            Known::Running(fence)
        }
        "completing" => Known::Completing(fence),
        "completed" => Known::Completed(fence),
        "releasing" => Known::Releasing(fence),
        // Another worker may have been granted it, and have said so, before this one came to speak.
        "released" if before != Some(Known::Releasing(fence)) => return,
        "released" => Known::Released(fence),
        other => panic!("{other}"),
    };
    known.insert(key, after);
}

fn check(key: u64, known: Known, found: Option<&Record>) -> Result<(), String> {
    let Some(found) = found else { return Err(format!("{known:?} is not there")) };
    let fence = found.fence.map_or(0, |f| f.get());
    let same = fence == known.fence();
    // A claim whose answer the kill cut off may have come after a release; it can have gone no further unsaid.
    let later = fence > known.fence();
    let right = match (known, found.state) {
        (Known::Releasing(_), StateCode::InFlight) => same || later,
        (Known::Running(_) | Known::Completing(_), StateCode::InFlight) => same,
        (Known::Completing(_) | Known::Completed(_), StateCode::Done) => {
            same && body(found).is_some_and(|b| *b == [byte(key, fence); 64])
        }
        (Known::Releasing(_) | Known::Released(_), StateCode::Free) => same,
        (Known::Released(_), StateCode::InFlight) => later,
        _ => false,
    };
    if right { Ok(()) } else { Err(format!("{known:?} is {:?} with fence {fence}", found.state)) }
}

/// The byte that a completion's body is made of.
fn byte(key: u64, fence: u64) -> u8 {
    u8::try_from((key ^ fence) % 251).unwrap()
}

fn open(dir: &Path, Kind { durability, segment, .. }: Kind) -> EmbeddedStore {
    EmbeddedStore::open(dir, &Env::system(), &Options { durability, segment, ..options() }).unwrap()
}

fn start(dir: &Path, first_key: u64, kind: Kind) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", kind.test, "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .env(FIRST_KEY, first_key.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The child's side.
fn work_until_killed(dir: &Path, kind: Kind) {
    let first: u64 = std::env::var(FIRST_KEY).unwrap().parse().unwrap();
    let store = open(dir, kind);
    say("ready");
    // Bounded, should the parent die: about a minute of work.
    let left = AtomicU64::new(200_000);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (store, left) = (&store, &left);
            scope.spawn(move || work(store, first, worker, left));
        }
    });
}

fn work(store: &EmbeddedStore, first: u64, worker: u64, left: &AtomicU64) {
    let mut random = Random(first * 31 + worker + 1);
    while left.fetch_sub(1, Ordering::Relaxed) > 1 {
        let key = first + random.next() % KEYS;
        let owner = random.next();
        let ask = ask(key, owner);
        let Ok(Claimed::Granted { claim, .. }) = now(store.claim(&ask)) else { continue };
        let fence = claim.fence().get();
        say(&format!("granted {key} {fence}"));
        match random.next() % 8 {
            0..3 => {
                say(&format!("completing {key} {fence}"));
                if now(store.settle(&claim, &done(byte(key, fence), 64))).is_ok() {
                    say(&format!("completed {key} {fence}"));
                }
            }
            3..7 => {
                say(&format!("releasing {key} {fence}"));
                if now(store.release(&free(&claim))).is_ok() {
                    say(&format!("released {key} {fence}"));
                }
            }
            _ => {}
        }
    }
}

/// One line, in one write, so that lines of several threads do not mix. The test harness has begun the line it is on.
fn say(what: &str) {
    // The parent is gone: so is the reason to go on.
    if std::io::stdout().lock().write_all(format!("\nop {what}\n").as_bytes()).is_err() {
        std::process::abort();
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

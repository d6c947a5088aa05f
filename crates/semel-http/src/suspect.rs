//! Same intent, new key: requests of one caller that are equal in all but the key.
//!
//! A button that makes a new key with each click gets past every key. So a rule can remember, in memory and for a while,
//! what its requests asked, and say of a second one with another key that it looks like the first. It is looked at where a
//! request is about to run, with the grant at hand: a copy of something recorded is answered before that, and is none.

use std::{collections::HashMap, fmt, mem::take, time::Duration};

use parking_lot::Mutex;
use semel_core::{
    env::Tick,
    fingerprint::Fingerprint,
    identity::{Identity, ScopeTag},
    judge::Caller,
};

/// What becomes of a request that is equal in all but the key to one that ran, or runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Suspect {
    /// It is told to observers and runs: two equal orders within a minute can both be meant.
    Count,
    /// It is told to observers, refused as `duplicate`, and not run; its key stays free.
    Reject,
}

/// The most that one generation remembers: as much as fits into a table before it doubles.
const MOST: usize = 28_672;

/// What a request asks, and for whom.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Asked {
    whose: Whose,
    what: [u8; 16],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Whose {
    Scope(ScopeTag),
    Credentials([u8; 16]),
}

impl Asked {
    /// `None` where one caller cannot be told from another: equal requests may be two people's.
    pub(crate) fn of(scope: ScopeTag, caller: &Caller, fingerprint: &Fingerprint) -> Option<Self> {
        let whose = match caller.credentials {
            _ if scope != ScopeTag::SHARED => Whose::Scope(scope),
            Some(credentials) => Whose::Credentials(credentials),
            None => return None,
        };
        let (what, _) = fingerprint.digest().split_first_chunk()?;
        Some(Self { whose, what: *what })
    }
}

/// What a rule remembers of its requests: two generations of at most [`MOST`], a few megabytes in all. Where more come within
/// the window, the older half is forgotten early, and what equals it runs uncounted.
pub(crate) struct Suspects {
    pub(crate) what: Suspect,
    pub(crate) window: Duration,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    newer: HashMap<Asked, Entry>,
    older: HashMap<Asked, Entry>,
    /// When the newer ones become the older ones.
    turn: Tick,
}

struct Entry {
    /// The identity that asked it: the first, or the last whose run left something behind.
    by: u64,
    /// Runs that have not ended. The window begins at their end.
    running: u32,
    until: Tick,
}

impl Suspects {
    pub(crate) fn new(what: Suspect, window: Duration) -> Self {
        Self { what, window, seen: Mutex::default() }
    }

    /// `identity` is about to run. What is left of the window, where another key has asked the same; it does not begin then
    /// unless it is merely counted.
    pub(crate) fn begin(&self, asked: Asked, identity: &Identity, now: Tick) -> Option<Duration> {
        let by = short(identity);
        let mut seen = self.seen.lock();
        seen.turn(now, self.window);
        if let Some(entry) = seen.get(&asked)
            && (entry.running > 0 || now < entry.until)
        {
            let left = if entry.running > 0 { self.window } else { entry.until.since(now) };
            let is_other = entry.by != by;
            if !is_other || self.what == Suspect::Count {
                entry.running += 1;
            }
            return is_other.then_some(left);
        }
        seen.older.remove(&asked);
        seen.newer.insert(asked, Entry { by, running: 1, until: now });
        None
    }

    /// A run that was begun has ended. One that left nothing behind is no reason to suspect the next.
    pub(crate) fn end(&self, asked: Asked, identity: &Identity, now: Tick, left_nothing: bool) {
        let mut seen = self.seen.lock();
        seen.turn(now, self.window);
        // Among the newer ones it outlives its window.
        let before = seen.newer.remove(&asked).or_else(|| seen.older.remove(&asked));
        let mut entry = before.unwrap_or_else(|| Entry { by: short(identity), running: 1, until: now });
        entry.running = entry.running.saturating_sub(1);
        if !left_nothing {
            entry.by = short(identity);
            entry.until = now + self.window;
        }
        if entry.running > 0 || now < entry.until {
            seen.newer.insert(asked, entry);
        }
    }
}

impl Seen {
    fn get(&mut self, asked: &Asked) -> Option<&mut Entry> {
        match self.newer.get_mut(asked) {
            Some(entry) => Some(entry),
            None => self.older.get_mut(asked),
        }
    }

    fn turn(&mut self, now: Tick, window: Duration) {
        if now < self.turn && self.newer.len() < MOST {
            return;
        }
        let gone = std::mem::replace(&mut self.older, take(&mut self.newer));
        // What still runs is taken along, but for so many that there is no room for others.
        self.newer.extend(gone.into_iter().filter(|(_, entry)| entry.running > 0).take(MOST / 2));
        self.turn = now + window;
    }
}

impl fmt::Debug for Suspects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suspects").field("what", &self.what).field("window", &self.window).finish_non_exhaustive()
    }
}

fn short(identity: &Identity) -> u64 {
    identity.digest().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use semel_core::{
        fingerprint::{Hasher, Version},
        identity::{Display, Key, Kind, Namespace, Principal, PrincipalKind, Scope, Secret},
    };

    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn secret() -> Secret {
        Secret::from_material(b"0123456789abcdef").unwrap()
    }

    fn key(key: u64) -> Identity {
        let namespace = Namespace::http("orders").unwrap();
        Identity::new(&secret(), Kind::Key, namespace, &Scope::shared(), &Key::new(&key, Display::Masked))
    }

    fn asks(scope: &Scope, credentials: Option<u8>, body: u64) -> Option<Asked> {
        let question =
            Hasher::new(&secret(), Version { algorithm: 1, parameters: 0 }).part(&body.to_be_bytes()).finish();
        let caller = Caller { credentials: credentials.map(|byte| [byte; 16]), request: None };
        Asked::of(scope.tag(), &caller, &question)
    }

    fn asked(body: u64) -> Asked {
        asks(&Scope::shared(), Some(1), body).unwrap()
    }

    fn at(seconds: u64) -> Tick {
        Tick::from_nanos(1_000_000_000 * seconds)
    }

    #[test]
    fn one_caller_is_told_from_another_or_nothing_is_compared() {
        let user = |name: &'static str| Scope::of(Principal::new(PrincipalKind::Header, name));
        let alice = asks(&user("alice"), None, 1);
        assert!(alice.is_some());
        assert_eq!(alice, asks(&user("alice"), None, 1));
        assert_ne!(alice, asks(&user("bob"), None, 1));
        assert_ne!(alice, asks(&user("alice"), None, 2));
        assert_ne!(asks(&Scope::shared(), Some(1), 1), asks(&Scope::shared(), Some(2), 1));
        assert_eq!(asks(&Scope::shared(), None, 1), None, "it may be two people's");
    }

    #[test]
    fn the_window_begins_at_the_end_of_the_run() {
        let suspects = Suspects::new(Suspect::Reject, WINDOW);
        assert_eq!(suspects.begin(asked(1), &key(1), at(0)), None);
        assert_eq!(suspects.begin(asked(2), &key(2), at(0)), None, "another question");
        assert_eq!(suspects.begin(asked(1), &key(3), at(500)), Some(WINDOW), "the first still runs");
        suspects.end(asked(1), &key(1), at(600), false);
        assert_eq!(suspects.begin(asked(1), &key(3), at(620)), Some(Duration::from_secs(40)));
        assert_eq!(suspects.begin(asked(1), &key(1), at(620)), None, "its own key is no other");
        suspects.end(asked(1), &key(1), at(630), true);
        assert_eq!(suspects.begin(asked(1), &key(3), at(659)), Some(Duration::from_secs(1)));
        assert_eq!(suspects.begin(asked(1), &key(3), at(660)), None);
    }

    #[test]
    fn a_run_that_left_nothing_behind_makes_no_suspect() {
        for what in [Suspect::Count, Suspect::Reject] {
            let suspects = Suspects::new(what, WINDOW);
            assert_eq!(suspects.begin(asked(1), &key(1), at(0)), None);
            suspects.end(asked(1), &key(1), at(1), true);
            assert_eq!(suspects.begin(asked(1), &key(2), at(2)), None, "{what:?}");
        }
    }

    #[test]
    fn what_is_counted_runs_and_prolongs_the_window() {
        let suspects = Suspects::new(Suspect::Count, WINDOW);
        assert_eq!(suspects.begin(asked(1), &key(1), at(0)), None);
        assert_eq!(suspects.begin(asked(1), &key(2), at(1)), Some(WINDOW));
        suspects.end(asked(1), &key(1), at(2), false);
        assert!(suspects.begin(asked(1), &key(3), at(100)).is_some(), "the second still runs");
        suspects.end(asked(1), &key(2), at(101), false);
        suspects.end(asked(1), &key(3), at(102), true);
        assert!(suspects.begin(asked(1), &key(4), at(160)).is_some());
    }

    #[test]
    fn what_runs_is_remembered_over_many_windows() {
        let suspects = Suspects::new(Suspect::Reject, WINDOW);
        assert_eq!(suspects.begin(asked(0), &key(0), at(0)), None);
        for n in 1..=10 {
            assert_eq!(suspects.begin(asked(n), &key(n), at(61 * n)), None);
            suspects.end(asked(n), &key(n), at(61 * n), false);
        }
        assert!(suspects.begin(asked(0), &key(1), at(620)).is_some());
        suspects.end(asked(0), &key(0), at(620), false);
        assert!(suspects.begin(asked(0), &key(1), at(679)).is_some());
    }

    /// Questions that cost nothing to make.
    fn many(count: usize) -> impl Iterator<Item = Asked> {
        (0..count as u128).map(|n| Asked { whose: Whose::Credentials([1; 16]), what: n.to_be_bytes() })
    }

    #[test]
    fn memory_is_bounded_and_the_newest_are_kept() {
        let (suspects, one, other) = (Suspects::new(Suspect::Reject, WINDOW), key(1), key(2));
        let mut newest = None;
        for asked in many(4 * MOST) {
            assert_eq!(suspects.begin(asked, &one, at(0)), None);
            suspects.end(asked, &one, at(0), false);
            newest = Some(asked);
        }
        {
            let seen = suspects.seen.lock();
            assert!(seen.newer.len() <= MOST && seen.older.len() <= MOST);
            // A table that doubled for the last few would take twice as much.
            assert!(seen.newer.capacity() <= MOST && seen.older.capacity() <= MOST);
            assert!(size_of::<(Asked, Entry)>() <= 72, "{}", size_of::<(Asked, Entry)>());
        }
        assert!(suspects.begin(newest.unwrap(), &other, at(1)).is_some());
        assert_eq!(suspects.begin(many(1).next().unwrap(), &other, at(1)), None, "forgotten early");
    }

    #[test]
    fn room_is_bounded_while_everything_runs() {
        let (suspects, one) = (Suspects::new(Suspect::Reject, WINDOW), key(1));
        for asked in many(4 * MOST) {
            assert_eq!(suspects.begin(asked, &one, at(0)), None);
        }
        for asked in many(4 * MOST) {
            suspects.end(asked, &one, at(0), false);
        }
        let seen = suspects.seen.lock();
        assert!(seen.newer.len() <= MOST && seen.older.len() <= MOST);
    }
}

//! Claims without a script, and outcomes that are reckoned: what they cost, and what makes them right.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use semel_core::{
    StoreTime,
    env::{BoxFuture, Clock, Env, Tick},
    judge::{Caller, Judgement, judge},
    record::{Flags, Record, StateCode},
    store::{
        Ask, AskFor, Claim, Claimed, Did, Extended, Filter, Issued, NewToken, Releasing, Settled, Settlement, Store,
        StoreAdmin, StoreError,
    },
};
use semel_redis::{Options, RedisStore};
use semel_testkit::servers::{
    proxy::{Proxy, Request, Rule, Speaks, Then},
    redis::{Redis, Setup, is_modern},
};

use crate::{
    beds::{connect, move_back},
    questions::{LEASE, TTL, about, about_as, an_owner, done, fingerprint, granted, id, rest, stands},
};

/// A clock that somebody else turns.
struct Turned {
    clock: Arc<dyn Clock>,
    by: Arc<Turn>,
}

/// By how many milliseconds a clock was turned; it begins where it can be turned back.
struct Turn(AtomicU64);

const START: u64 = 100_000_000;

impl Turn {
    fn to(&self, millis: i64) {
        self.0.store(START.saturating_add_signed(millis), Ordering::SeqCst);
    }
}

impl Clock for Turned {
    fn now(&self) -> Tick {
        self.clock.now() + Duration::from_millis(self.by.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, tick: Tick) -> BoxFuture {
        let turned = self.by.0.load(Ordering::SeqCst) * 1_000_000;
        self.clock.sleep_until(Tick::from_nanos(tick.as_nanos().saturating_sub(turned)))
    }

    fn wall(&self) -> SystemTime {
        self.clock.wall()
    }
}

/// A server, a store that has been told its clock, and the clock of the store's machine.
struct Scene {
    server: Redis,
    store: RedisStore,
    clock: Arc<Turn>,
    way: Proxy,
    /// A store of another machine, for looks and for other owners.
    other: RedisStore,
}

impl Scene {
    async fn start() -> Self {
        let server = Redis::start(&Setup::new()).await;
        let way = Proxy::speaking(Speaks::Redis, server.address().parse().expect("it is an address")).await;
        let mut env = Env::system();
        let clock = Arc::new(Turn(AtomicU64::new(START)));
        env.clock = Arc::new(Turned { clock: env.clock, by: Arc::clone(&clock) });
        let mut options = Options::default();
        options.response_timeout = Duration::from_millis(300);
        let url = format!("redis://{}", way.address());
        let store = RedisStore::connect(&url, &env, options).await.expect("it opens");
        let other = connect(&server.url(), "semel").await;
        Self { server, store, clock, way, other }
    }

    async fn now(&self) -> StoreTime {
        self.other.health().await.expect("the store works").now
    }

    /// The record of the `n`-th key.
    async fn record(&self, n: u64) -> Option<Record> {
        self.other.get(&id(n)).await.expect("the store works").record
    }

    async fn the_record(&self, n: u64) -> Record {
        self.record(n).await.expect("it is there")
    }

    /// Whether nobody sees anything.
    async fn is_nothing(&self, n: u64) -> bool {
        let page = self.other.list(&Filter::default(), None, 10).await.expect("the store works");
        self.record(n).await.is_none() && page.entries.is_empty()
    }

    /// For how many milliseconds the `n`-th key stays; `None` where it is gone.
    async fn stays(&self, n: u64) -> Option<i64> {
        self.server.ask(&["PTTL", &format!("semel:{}", id(n))]).await.number().filter(|millis| *millis >= 0)
    }

    /// The server is brought what was held up, and has answered.
    async fn let_go(&self, command: &str) {
        let before = self.server.calls(command).await;
        self.way.let_go();
        for _ in 0..1_000 {
            if self.server.calls(command).await > before {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no {command} came");
    }
}

fn fate(ask: &Ask) -> Releasing<'_> {
    Releasing::Fate { identity: &ask.identity, owner: ask.owner(), keep: TTL, rest: rest() }
}

/// The grant of an answer, or of what it found of its own.
#[track_caller]
fn own(ask: &Ask, answer: Result<Claimed, StoreError>) -> Claim {
    match answer {
        Ok(Claimed::Granted { claim, .. }) => claim,
        Ok(Claimed::Found { record, now }) => match judge(ask, record.as_ref(), now, &Caller::default()) {
            Judgement::Again { claim, .. } => claim,
            other => panic!("it is its own: {other:?}"),
        },
        other => panic!("it stands: {other:?}"),
    }
}

fn done_for(ttl: Duration) -> Settlement {
    Settlement::Done { fingerprint: fingerprint(), rest: rest(), body_kept: false, ttl }
}

fn later(time: StoreTime, millis: i64) -> StoreTime {
    StoreTime::from_micros(time.as_micros() + millis * 1_000)
}

fn is_set(request: &Request<'_>) -> bool {
    request.bytes.windows(3).any(|bytes| bytes == b"SET") && brings_a_claim(request)
}

fn is_script(request: &Request<'_>) -> bool {
    request.bytes.windows(4).any(|bytes| bytes == b"EVAL") && brings_a_claim(request)
}

fn brings_a_claim(request: &Request<'_>) -> bool {
    request.bytes.windows(5).any(|bytes| bytes == b"SML\x01\x01")
}

#[tokio::test]
async fn a_claim_and_a_duplicate_need_no_script() {
    if !is_modern() {
        return a_server_before_7_gets_scripts().await;
    }
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    let count = async || [server.calls("evalsha").await, server.calls("set").await];
    let before = count().await;
    let claim = granted(store.claim(&about(1)).await);
    assert!(matches!(store.claim(&about(1)).await, Ok(Claimed::Found { record: Some(_), .. })));
    assert_eq!(count().await, [before[0], before[1] + 2]);
    stands(store.settle(&claim, &done()).await);
    assert!(matches!(store.claim(&about(1)).await, Ok(Claimed::Found { record: Some(_), .. })));
    assert_eq!(count().await, [before[0] + 1, before[1] + 4]);
}

/// It has no `SET` that says what it found.
async fn a_server_before_7_gets_scripts() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    // The first one may have to send it in full.
    granted(store.claim(&about(0)).await);
    let before = server.calls("evalsha").await + server.calls("eval").await;
    granted(store.claim(&about(1)).await);
    assert_eq!(server.calls("evalsha").await + server.calls("eval").await, before + 1);
}

#[tokio::test]
async fn the_lease_in_the_record_ends_with_what_is_left_of_it() {
    let scene = Scene::start().await;
    for (n, off) in [(1, -500), (2, 0), (3, 500)] {
        scene.clock.to(0);
        granted(scene.store.claim(&about(10 + n)).await);
        scene.clock.to(off);
        let said = scene.store.claim(&about(n)).await;
        let Ok(Claimed::Granted { claim, left, now, .. }) = said else { panic!("it is granted: {said:?}") };
        let record = scene.the_record(n).await;
        assert!(record.belongs_to(claim.owner(), claim.fence()) && record.state == StateCode::InFlight);
        assert!(now + left <= record.lease_until && left <= LEASE, "{off}: {left:?}");
        if is_modern() {
            let reckoned = record.lease_until.as_micros() - (now + LEASE).as_micros();
            assert!((reckoned - off * 1_000).abs() < 400_000, "{off}: {reckoned}");
        }
    }
}

/// The clock of this machine was behind by half a second, say: it seemed to be in time.
#[tokio::test]
async fn a_claim_that_came_too_late_is_taken_away() {
    let scene = Scene::start().await;
    granted(scene.store.claim(&about(10)).await);
    scene.server.tell(&["DEL", &format!("semel:{}", id(10))]).await;
    scene.clock.to(-800);
    let mut ask = about(1);
    ask.set_not_after(later(scene.now().await, -400));
    let sets = scene.server.calls("set").await;
    assert!(matches!(scene.store.claim(&ask).await, Ok(Claimed::Late { .. })));
    if is_modern() {
        assert!(scene.server.calls("set").await > sets, "it was written");
    }
    assert!(scene.is_nothing(1).await);
    // The same owner, in time; and after that somebody else finds it.
    ask.set_not_after(StoreTime::MAX);
    let claim = granted(scene.store.claim(&ask).await);
    assert!(matches!(scene.other.claim(&about(1)).await, Ok(Claimed::Found { .. })));
    stands(scene.store.settle(&claim, &done()).await);
}

#[tokio::test]
async fn a_claim_that_is_late_by_what_is_known_here_is_not_written() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    let mut ask = about(1);
    ask.set_not_after(later(store.health().await.expect("the store works").now, -10_000));
    let sets = server.calls("set").await;
    assert!(matches!(store.claim(&ask).await, Ok(Claimed::Late { .. })));
    assert_eq!(server.calls("set").await, sets);
}

/// The server's clock was moved since the last answer, say. The script has the server's times.
#[tokio::test]
async fn a_claim_whose_reckoning_is_off_gets_the_times_of_the_server() {
    let scene = Scene::start().await;
    for (n, off) in [(1, 7_200_000), (2, -7_200_000), (3, 3_000), (4, -3_000)] {
        scene.clock.to(0);
        granted(scene.store.claim(&about(10 + n)).await);
        scene.clock.to(off);
        let before = scene.now().await;
        let said = scene.store.claim(&about(n)).await;
        let Ok(Claimed::Granted { claim, left, unresolved: false, .. }) = said else {
            panic!("{off}: it is granted: {said:?}")
        };
        let after = scene.now().await;
        let fence = StoreTime::from_micros(i64::try_from(claim.fence().get()).expect("it is a time"));
        assert!(before <= fence && fence <= after && left == LEASE, "{off}: {fence:?}");
        let record = scene.the_record(n).await;
        assert!(record.belongs_to(claim.owner(), claim.fence()) && record.lease_until == fence + LEASE, "{off}");
        assert_eq!((record.attempt, claim.attempt()), (1, 1));
        stands(scene.store.settle(&claim, &done()).await);
    }
}

/// A claim that stays on its way while its claimant gives it up, takes it back, and somebody else claims.
#[tokio::test]
async fn what_was_taken_back_changes_nothing_when_it_comes() {
    if !is_modern() {
        return;
    }
    let scene = Scene::start().await;
    let ask = about(1);
    let held = scene.way.rule(Rule::when(is_set).hold_request());
    let error = scene.store.claim(&ask).await.expect_err("nobody answers");
    assert_eq!((error.did, held.count()), (Did::Unknown, 1));
    stands(scene.other.release(&fate(&ask)).await);
    assert!(scene.is_nothing(1).await, "what is left is nobody's record");
    scene.let_go("set").await;
    assert!(scene.is_nothing(1).await, "it found something, and changed nothing");
    // A purge a minute later leaves what it found, too.
    move_back(scene.server.port(), "semel", LEASE).await;
    assert_eq!(scene.other.purge(100).await.expect("the store works").removed, 0);
    assert!(scene.stays(1).await.is_some());
    let claim = granted(scene.other.claim(&about(1)).await);
    stands(scene.other.settle(&claim, &done()).await);
}

/// Whatever is there when a claim is taken back, and whatever becomes of it: something is there for a quarter of an hour.
#[tokio::test]
async fn where_a_claim_was_taken_back_something_stays() {
    let scene = Scene::start().await;
    // A quarter of an hour, and not for as long as a claim's outcome would have been unknown.
    let long = |millis: Option<i64>| millis.is_some_and(|millis| millis > 840_000 && millis < 902_000);
    let store = &scene.other;
    let soon = Duration::from_millis(1);
    // Nothing was there; then comes another, and is over at once.
    stands(store.release(&fate(&about(1))).await);
    assert!(long(scene.stays(1).await));
    let claim = granted(store.claim(&about(1)).await);
    stands(store.settle(&claim, &done_for(soon)).await);
    assert!(long(scene.stays(1).await), "{:?}", scene.stays(1).await);
    // Its own is there.
    let ask = about(2);
    granted(store.claim(&ask).await);
    let keep = soon;
    let short = Releasing::Fate { identity: &ask.identity, owner: ask.owner(), keep, rest: rest() };
    stands(store.release(&short).await);
    assert!(long(scene.stays(2).await), "{:?}", scene.stays(2).await);
    // Another's is there, and is done and gone soon after.
    let claim = granted(store.claim(&about(3)).await);
    assert!(matches!(store.release(&fate(&about(3))).await, Ok(Settled::Lost(_))));
    stands(store.settle(&claim, &done_for(soon)).await);
    assert!(long(scene.stays(3).await), "{:?}", scene.stays(3).await);
    // What is there is over, and its key would go in a moment.
    let claim = granted(store.claim(&about(4)).await);
    stands(store.settle(&claim, &done_for(soon)).await);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!long(scene.stays(4).await));
    stands(store.release(&fate(&about(4))).await);
    assert!(long(scene.stays(4).await), "{:?}", scene.stays(4).await);
    // A purge leaves a key in the place of each, and so does a person who deletes one, for those who look without a script.
    assert_eq!(store.purge(100).await.expect("the store works").removed, 4);
    for n in 1..=4 {
        assert!(scene.record(n).await.is_none() && long(scene.stays(n).await), "{n}: {:?}", scene.stays(n).await);
    }
    let claim = granted(store.claim(&about(4)).await);
    stands(store.settle(&claim, &done()).await);
    // Also where its fence is long past.
    let (key, old) = (format!("semel:{}", id(4)), 1_u64.to_be_bytes());
    scene.server.ask_bytes(&[b"SETRANGE", key.as_bytes(), b"24", &old]).await;
    assert!(store.delete(&id(4), StateCode::Done).await.expect("the store works"));
    assert!(scene.record(4).await.is_none() && long(scene.stays(4).await));
    // What would stay longer stays as long as it would have.
    let claim = granted(store.claim(&about(5)).await);
    stands(store.settle(&claim, &done()).await);
    assert!(matches!(store.release(&fate(&about(5))).await, Ok(Settled::Lost(_))));
    assert!(scene.stays(5).await.is_some_and(|millis| millis > 3_000_000));
}

/// A record whose end nobody told is told of once, also where a claim was taken back beside it.
#[tokio::test]
async fn the_end_of_what_was_barred_is_told() {
    let scene = Scene::start().await;
    granted(scene.other.claim(&about(1)).await);
    assert!(matches!(scene.other.release(&fate(&about(1))).await, Ok(Settled::Lost(_))));
    move_back(scene.server.port(), "semel", 11 * LEASE + TTL).await;
    let purged = scene.other.purge(100).await.expect("the store works");
    assert_eq!((purged.removed, purged.unresolved), (1, vec![id(1)]));
    assert!(scene.stays(1).await.is_some_and(|millis| millis < 902_000));
    let purged = scene.other.purge(100).await.expect("the store works");
    assert_eq!((purged.removed, purged.unresolved), (0, vec![]));
}

/// Its claimant ended while the claim was on its way, and nobody takes it back. That he never worked nobody can tell for certain:
/// a key that moves between servers keeps what it had left, which makes it seem to have come late.
#[tokio::test]
async fn what_came_after_its_claimant_left_reads_as_if_he_had_died_at_work() {
    if !is_modern() {
        return;
    }
    let scene = Scene::start().await;
    let ask = || Ask::new(an_owner(), AskFor { lease: Duration::from_millis(1_200), ..about_as(1) });
    let held = scene.way.rule(Rule::when(is_set).hold_request());
    let error = scene.store.claim(&ask()).await.expect_err("nobody answers");
    assert_eq!((error.did, held.count()), (Did::Unknown, 1));
    tokio::time::sleep(Duration::from_millis(800)).await;
    scene.let_go("set").await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let said = scene.other.claim(&ask()).await;
    let Ok(Claimed::Found { record: Some(record), now }) = said else { panic!("it stands: {said:?}") };
    assert_eq!(record.reads_as(now), StateCode::Unknown);
}

/// It was reckoned by a clock that the server has no more: a fence an hour ahead would stand in the way of those to come.
#[tokio::test]
async fn what_is_taken_back_leaves_no_fence_that_nobody_was_given() {
    if !is_modern() {
        return;
    }
    let scene = Scene::start().await;
    granted(scene.store.claim(&about(10)).await);
    scene.clock.to(3_600_000);
    let ask = about(1);
    scene.way.rule(Rule::when(is_set).lose_reply(Then::Close));
    scene.store.claim(&ask).await.expect_err("its answer is lost");
    stands(scene.other.release(&fate(&ask)).await);
    let claim = granted(scene.other.claim(&about(1)).await);
    let fence = StoreTime::from_micros(i64::try_from(claim.fence().get()).expect("it is a time"));
    assert!(fence <= scene.now().await, "{fence:?}");
}

/// The server's clock can have been set since: an outcome that was reckoned would be over at once, or too late.
#[tokio::test]
async fn nothing_is_reckoned_by_what_the_server_said_more_than_a_moment_ago() {
    if !is_modern() {
        return;
    }
    let scene = Scene::start().await;
    let asked = async || scene.server.calls("time").await;
    for n in 0..3 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let before = asked().await;
        let claim = granted(scene.store.claim(&about(n)).await);
        assert_eq!(asked().await, before + 1, "with the claim");
        tokio::time::sleep(Duration::from_millis(150)).await;
        stands(scene.store.settle(&claim, &done()).await);
        assert_eq!(asked().await, before + 2, "by the script");
    }
}

#[tokio::test]
async fn a_token_is_issued_and_extended_where_a_claim_was_taken_back() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    stands(store.release(&fate(&about(1))).await);
    let soon = Duration::from_secs(1);
    let token = NewToken { identity: id(1), ttl: soon, max_life: 2 * soon, rest: rest() };
    assert!(matches!(store.issue(&token).await, Ok(Issued::Issued { .. })));
    assert!(matches!(store.extend(&id(1), 2 * soon).await, Ok(Extended::Until(_))));
    let stays = server.ask(&["PTTL", &format!("semel:{}", id(1))]).await.number();
    assert!(stays.is_some_and(|millis| millis > 840_000), "{stays:?}");
}

/// The flags of the store are nobody else's.
#[tokio::test]
async fn nobody_sees_how_a_claim_was_made() {
    let scene = Scene::start().await;
    let taking = Ask::new(an_owner(), AskFor { takeover: true, ..about_as(2) });
    for (ask, flags) in [(about(1), Flags::NONE), (taking, Flags::TAKEOVER)] {
        granted(scene.store.claim(&ask).await);
        assert!(matches!(scene.other.release(&fate(&about(1))).await, Ok(Settled::Lost(_))));
        assert!(
            matches!(scene.store.claim(&about(1)).await, Ok(Claimed::Found { record: Some(r), .. }) if r.flags == Flags::NONE)
        );
        assert_eq!(
            scene.other.get(&ask.identity).await.expect("the store works").record.expect("it is there").flags,
            flags
        );
    }
    let page = scene.other.list(&Filter::default(), None, 10).await.expect("the store works");
    assert!(page.entries.iter().all(|entry| entry.record.flags.without(Flags::TAKEOVER) == Flags::NONE));
}

#[tokio::test]
async fn a_repeat_after_a_lost_reply_finds_its_own_claim() {
    if !is_modern() {
        return;
    }
    let scene = Scene::start().await;
    let ask = about(1);
    let lost = scene.way.rule(Rule::when(is_set).lose_reply(Then::Close));
    let error = scene.store.claim(&ask).await.expect_err("its answer is lost");
    assert_eq!((error.did, lost.count()), (Did::Unknown, 1));
    let before = scene.the_record(1).await;
    for _ in 0..2 {
        let claim = own(&ask, scene.store.claim(&ask).await);
        assert_eq!((Some(claim.fence()), claim.attempt()), (before.fence, 1));
        assert_eq!(scene.the_record(1).await.encode(), before.encode());
    }
    let claim = own(&ask, scene.store.claim(&ask).await);
    stands(scene.store.settle(&claim, &done()).await);
}

/// By what was reckoned it was over before it was there.
#[tokio::test]
async fn a_lease_that_is_over_as_it_is_written_is_given_whole() {
    let scene = Scene::start().await;
    granted(scene.store.claim(&about(10)).await);
    scene.clock.to(-500);
    let lease = Duration::from_millis(200);
    let said = scene.store.claim(&Ask::new(an_owner(), AskFor { lease, ..about_as(1) })).await;
    let Ok(Claimed::Granted { claim, left, now, .. }) = said else { panic!("it is granted: {said:?}") };
    assert_eq!((left, scene.the_record(1).await.lease_until), (lease, now + lease));
    stands(scene.store.settle(&claim, &done()).await);
}

/// Nobody looked how far its reckoning was off when it was written.
#[tokio::test]
async fn a_repeat_of_a_claim_whose_reckoning_was_off_is_granted_anew() {
    if !is_modern() {
        return;
    }
    let scene = Scene::start().await;
    for (n, off) in [(1, 3_000), (2, -3_000)] {
        scene.clock.to(0);
        granted(scene.store.claim(&about(10 + n)).await);
        scene.clock.to(off);
        let ask = about(n);
        scene.way.rule(Rule::when(is_set).lose_reply(Then::Close));
        scene.store.claim(&ask).await.expect_err("its answer is lost");
        let before = scene.now().await;
        let said = scene.store.claim(&ask).await;
        let Ok(Claimed::Granted { claim, left, now, unresolved: false }) = said else { panic!("{off}: {said:?}") };
        let fence = StoreTime::from_micros(i64::try_from(claim.fence().get()).expect("it is a time"));
        assert!(before <= fence && fence <= now && (claim.attempt(), left) == (1, LEASE), "{off}: {fence:?}");
        assert!(scene.the_record(n).await.belongs_to(ask.owner(), claim.fence()));
        stands(scene.store.settle(&claim, &done()).await);
    }
}

/// What was to take a late claim away was held up itself, and the repeat was granted meanwhile: once that took away the record
/// of running work, and it ran twice.
#[tokio::test]
async fn what_takes_a_late_claim_away_takes_nothing_that_was_granted() {
    if !is_modern() {
        return;
    }
    let scene = Scene::start().await;
    granted(scene.store.claim(&about(10)).await);
    // Late and found again soon; late and stamped anew; off by so much that it is stamped anew; late, lost, and claimed once more.
    for (n, turned, late, is_lost) in
        [(1, -400, true, false), (2, -900, true, false), (3, 3_000, false, false), (4, -400, true, true)]
    {
        scene.clock.to(turned);
        let mut ask = about(n);
        ask.set_not_after(if late { later(scene.now().await, -200) } else { StoreTime::MAX });
        let held = scene.way.rule(Rule::when(is_script).hold_request());
        let error = scene.store.claim(&ask).await.expect_err("nobody answers");
        assert_eq!((error.did, held.count()), (Did::Unknown, 1), "{n}");
        if is_lost {
            scene.server.tell(&["DEL", &format!("semel:{}", id(n))]).await;
        }
        scene.clock.to(0);
        ask.set_not_after(StoreTime::MAX);
        let claim = own(&ask, scene.store.claim(&ask).await);
        let before = scene.the_record(n).await;
        assert!(before.belongs_to(ask.owner(), claim.fence()));
        scene.let_go("evalsha").await;
        assert_eq!(scene.the_record(n).await.encode(), before.encode(), "{n}");
        stands(scene.store.settle(&claim, &done()).await);
    }
}

/// Its owner asked again, as one does who was told that the record is not there; what he has stands.
#[tokio::test]
async fn what_was_granted_is_not_taken_away_by_a_late_repeat() {
    if !is_modern() {
        return;
    }
    let scene = Scene::start().await;
    // The server has the script from now on.
    let first = about(2);
    granted(scene.store.claim(&first).await);
    own(&first, scene.store.claim(&first).await);
    let ask = about(1);
    let claim = granted(scene.store.claim(&ask).await);
    let (before, mut again) = (scene.the_record(1).await, ask.clone());
    again.set_not_after(later(scene.now().await, 200));
    let held = scene.way.rule(Rule::when(is_script).hold_request());
    let error = scene.store.claim(&again).await.expect_err("nobody answers");
    assert_eq!((error.did, held.count()), (Did::Unknown, 1));
    scene.let_go("evalsha").await;
    assert_eq!(scene.the_record(1).await.encode(), before.encode());
    assert!(matches!(scene.store.claim(&again).await, Ok(Claimed::Late { .. })));
    assert_eq!(scene.the_record(1).await.encode(), before.encode());
    stands(scene.store.settle(&claim, &done()).await);
}

/// It goes by the script of another, say, since the connection is another one: it is given to its owner, stamped anew.
#[tokio::test]
async fn a_script_that_finds_what_its_owner_wrote_without_one_gives_it() {
    if !is_modern() {
        return;
    }
    let scene = Scene::start().await;
    let ask = about(1);
    scene.way.rule(Rule::when(is_set).lose_reply(Then::Close));
    scene.store.claim(&ask).await.expect_err("its answer is lost");
    let before = scene.the_record(1).await;
    // By what is known here it is late; the server's clock says that it is not.
    scene.clock.to(0);
    granted(scene.store.claim(&about(2)).await);
    scene.clock.to(600);
    let mut again = ask.clone();
    again.set_not_after(later(scene.now().await, 300));
    let sets = scene.server.calls("set").await;
    let claim = own(&again, scene.store.claim(&again).await);
    assert_eq!(
        (Some(claim.fence()), scene.server.calls("set").await),
        (before.fence, sets + 1),
        "the script tries one"
    );
    stands(scene.store.settle(&claim, &done()).await);
}

/// A second ahead is as far as a reckoning may be: the record's fence is not past yet where the record goes.
#[tokio::test]
async fn a_fence_ahead_of_the_clock_outlives_its_record() {
    let scene = Scene::start().await;
    let shorter = Duration::from_millis(1);
    let purged = async |n: u64| {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(scene.other.purge(100).await.expect("the store works").removed, 1, "{n}");
    };
    for n in [1, 2, 3] {
        scene.clock.to(0);
        let taught = granted(scene.store.claim(&about(10 + n)).await);
        stands(scene.store.settle(&taught, &done()).await);
        scene.clock.to(900);
        let first = granted(scene.store.claim(&about(n)).await);
        scene.clock.to(0);
        match n {
            1 | 3 => {
                stands(scene.store.settle(&first, &done()).await);
                assert!(scene.other.delete(&id(n), StateCode::Done).await.expect("the store works"));
            }
            _ => {
                stands(scene.store.settle(&first, &done_for(shorter)).await);
                purged(n).await;
            }
        }
        assert!(scene.record(n).await.is_none());
        if n == 3 {
            let token = NewToken { identity: id(n), ttl: TTL, max_life: TTL, rest: rest() };
            assert!(matches!(scene.other.issue(&token).await, Ok(Issued::Issued { .. })), "nothing is there");
        }
        let second = granted(scene.other.claim(&about(n)).await);
        assert!(second.fence() > first.fence(), "{:?} after {:?}", second.fence(), first.fence());
    }
}

#[tokio::test]
async fn at_the_memory_limit_duplicates_are_answered_and_claims_refused() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    let claim = granted(store.claim(&about(1)).await);
    server.tell(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert!(matches!(store.claim(&about(1)).await, Ok(Claimed::Found { record: Some(_), .. })));
    let error = store.claim(&about(2)).await.expect_err("there is no room");
    assert_eq!((error.did, error.is_full()), (Did::Nothing, true), "{error}");
    server.tell(&["CONFIG", "SET", "maxmemory", "0"]).await;
    stands(store.settle(&claim, &done()).await);
}

/// Nothing asks for the time then.
#[tokio::test]
async fn a_claim_and_an_outcome_are_reckoned_as_a_rule() {
    if !is_modern() {
        return;
    }
    let scene = Scene::start().await;
    let (mut reckoned, mut claimed) = (0, 0);
    for n in 0..50 {
        let asked = scene.server.calls("time").await;
        let claim = granted(scene.store.claim(&about(n)).await);
        claimed += u32::from(scene.server.calls("time").await == asked);
        let (before, asked) = (scene.now().await, scene.server.calls("time").await);
        stands(scene.store.settle(&claim, &done()).await);
        reckoned += u32::from(scene.server.calls("time").await == asked);
        let record = scene.the_record(n).await;
        assert!(record.expires_at >= before + TTL, "{n}: {:?} and {before:?}", record.expires_at);
        let stays = scene.stays(n).await.expect("it ends");
        assert!(u128::try_from(stays).is_ok_and(|stays| stays <= TTL.as_millis() + 2_000), "{n}: {stays}");
    }
    assert!(reckoned > 0 && claimed > 0, "{reckoned} outcomes, {claimed} claims");
}

/// His clock or the server's was set since the claim.
#[tokio::test]
async fn an_outcome_lives_as_long_as_it_should_whatever_its_bringer_reckons() {
    const HOURS: i64 = 7_200_000;
    let scene = Scene::start().await;
    for (n, told_at, settled_at) in [(1, HOURS, 0), (2, 600, 0), (3, 0, 600), (4, 0, HOURS)] {
        scene.clock.to(told_at);
        let claim = granted(scene.store.claim(&about(n)).await);
        granted(scene.store.claim(&about(10 + n)).await);
        scene.clock.to(settled_at);
        let before = scene.now().await;
        stands(scene.store.settle(&claim, &done()).await);
        let expires_at = scene.the_record(n).await.expires_at;
        assert!(
            expires_at >= before + TTL && expires_at <= scene.now().await + TTL,
            "{n}: {expires_at:?} and {before:?}"
        );
    }
}

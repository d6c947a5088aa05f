//! `semel keys` as a user meets it, on the embedded store of a gateway that has stopped; under `stores` on those that gateways
//! share.

mod large;
mod stores;

use std::path::Path;
use std::time::Duration;

use semel_core::engine::{Answer, Call, Engine, Ran, Verdict};
use semel_core::env::Env;
use semel_core::fingerprint::Fingerprint;
use semel_core::identity::{Display, Identity, Key, Kind, Namespace, Scope};
use semel_core::policy::{NEVER, Policy};
use semel_core::record::{Format, Outcome};
use semel_gateway::config::{Bytes, Flags, StoreConfig};
use semel_gateway::stores::Opened;
use tempfile::TempDir;

use crate::semel::{Ended, command, run_command};

/// A directory with one finished record, one unknown and one that was released.
struct Seeded {
    dir: TempDir,
    done: Identity,
    unknown: Identity,
    free: Identity,
}

async fn opened(dir: &TempDir) -> Opened {
    let data = dir.path().join("semel-data");
    open_by(&Flags { data_dir: Some(data.display().to_string()), ..Flags::default() }).await
}

async fn store_of(url: &str) -> Opened {
    open_by(&Flags { store: Some(url.to_owned()), ..Flags::default() }).await
}

async fn open_by(flags: &Flags) -> Opened {
    let config = StoreConfig::from_parts(None, flags).expect("enough for a store");
    semel_gateway::stores::open(&config.store, None, Bytes(0), &Env::system()).await.expect("the store opens")
}

fn receipt() -> Outcome {
    Outcome::new(Format::JSON, b"".as_slice(), b"\"secret receipt\"".as_slice())
}

/// Runs something that ends so, and is kept so long.
async fn record(
    engine: &Engine,
    (namespace, kind): (Namespace, Kind),
    key: &str,
    verdict: Verdict,
    ttl: Duration,
) -> Identity {
    let key = Key::new(key, Display::Masked);
    let id = Identity::new(engine.secret(), kind, namespace, &Scope::shared(), &key);
    let policy = Policy::key().named("submit").ttl(ttl).unknown_ttl(ttl).build().expect("a policy");
    let call = Call::new(id, Fingerprint::NONE, policy).shown(key.shown());
    let answer = engine.run(call, move |_| async { Ran { value: (), verdict } }).await;
    assert!(matches!(answer, Answer::Executed { .. }), "{answer:?}");
    id
}

async fn semel_keys(dir: &Path, args: &[&str]) -> Ended {
    let mut command = command(&[&["keys"], args].concat());
    command.current_dir(dir).env("USER", "ada").stdin(std::process::Stdio::null());
    run_command(command).await
}

async fn settle(engine: &Engine, key: &str, verdict: Verdict) -> Identity {
    settle_under("submit", engine, key, verdict).await
}

async fn settle_under(rule: &str, engine: &Engine, key: &str, verdict: Verdict) -> Identity {
    let key = Key::new(key, Display::Masked);
    let namespace = Namespace::http("gateway").expect("a name");
    let id = Identity::new(engine.secret(), Kind::Key, namespace, &Scope::shared(), &key);
    let policy = Policy::key().named(rule).unknown_ttl(NEVER).build().expect("a policy");
    let call = Call::new(id, Fingerprint::NONE, policy).shown(key.shown());
    let answer = engine.run(call, move |_| async { Ran { value: (), verdict } }).await;
    assert!(matches!(answer, Answer::Executed { .. }), "{answer:?}");
    id
}

impl Seeded {
    async fn new() -> Self {
        Self::with("submit", "the connection broke").await
    }

    async fn with(rule: &str, last: &str) -> Self {
        let dir = TempDir::new().expect("a directory");
        let store = opened(&dir).await;
        let engine = Engine::builder(store.store.clone(), store.secret.clone()).build();
        let done = settle_under(rule, &engine, "order-4711", Verdict::Keep(receipt())).await;
        let last = Some(last.into());
        let unknown = settle_under(rule, &engine, "order-4712", Verdict::Unknown { last }).await;
        let free = settle_under(rule, &engine, "order-4713", Verdict::Release { counts: true, answer: None }).await;
        store.close();
        Self { dir, done, unknown, free }
    }

    async fn keys(&self, args: &[&str]) -> Ended {
        semel_keys(self.dir.path(), args).await
    }
}

fn digits(identity: &Identity) -> String {
    identity.prefix().to_string()
}

#[tokio::test]
async fn a_list_shows_each_record_once_and_no_key_in_clear() {
    let seeded = Seeded::new().await;
    let ended = seeded.keys(&["list"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, "3 records\n"), "{ended:?}");
    for (identity, state) in [(&seeded.done, "done"), (&seeded.unknown, "unknown"), (&seeded.free, "free")] {
        let line = ended.out.lines().find(|line| line.contains(&digits(identity))).expect("it is listed");
        assert!(line.starts_with(state) && line.contains("submit"), "{line}");
    }
    assert!(!ended.out.contains("order-4711") && !ended.out.contains("receipt"), "{}", ended.out);
}

#[tokio::test]
async fn a_list_can_be_narrowed_and_is_json_a_line_on_request() {
    let seeded = Seeded::new().await;
    let ended = seeded.keys(&["list", "--state", "unknown", "--json"]).await;
    assert_eq!((ended.code, ended.out.lines().count()), (0, 1), "{ended:?}");
    let json = ended.json();
    assert_eq!(json["identity"], seeded.unknown.to_string());
    assert_eq!((json["state"].as_str(), json["last_error"].as_str()), (Some("unknown"), Some("the connection broke")));
    let none = seeded.keys(&["list", "--rule", "another"]).await;
    assert_eq!((none.code, none.out.as_str(), none.err.as_str()), (0, "", "no records\n"));
    let short = seeded.keys(&["list", "--limit", "2"]).await;
    assert!(short.err.contains("2 shown, there are more"), "{short:?}");
}

#[tokio::test]
async fn a_record_is_found_by_its_first_digits_and_told_in_words() {
    let seeded = Seeded::new().await;
    let ended = seeded.keys(&["show", &digits(&seeded.unknown)]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    for words in ["nobody can tell whether it took place", "last error  the connection broke", "attempt     1"] {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
    let all = seeded.unknown.to_string();
    let all = all.rsplit(':').next().expect("digits");
    assert!(ended.out.starts_with(&format!("identity    {all}\n")), "{}", ended.out);
    let whole = seeded.keys(&["show", &seeded.done.to_string(), "--json"]).await;
    assert_eq!(whole.json()["outcome"]["body_kept"], true, "{whole:?}");
    let missing = seeded.keys(&["show", "00000000000000"]).await;
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("no record's identity begins with"), "{}", missing.err);
    let words = seeded.keys(&["show", "order-4711"]).await;
    assert!(words.code == 2 && words.err.contains("is no identity"), "{words:?}");
}

#[tokio::test]
async fn an_unknown_that_took_place_is_settled_and_audited() {
    let seeded = Seeded::new().await;
    let unknown = digits(&seeded.unknown);
    let ended = seeded.keys(&["resolve", &unknown, "--completed", "--yes", "--reason", "seen in the ledger"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.err.contains("settled, under fence "), "{}", ended.err);
    let shown = seeded.keys(&["show", &unknown]).await;
    assert!(shown.out.contains("done: copies are told that it is done, without the answer"), "{}", shown.out);
    // One line for one deed: nobody's terminal ends anywhere here.
    let audit = seeded.keys(&["audit"]).await.out;
    assert_eq!(audit.lines().count(), 1, "{audit}");
    assert!(audit.contains("ada@") && audit.contains("(seen in the ledger)"), "{audit}");
    assert!(audit.contains(&format!("resolve-completed {unknown}, which was unknown")), "{audit}");
    let again = seeded.keys(&["resolve", &unknown, "--failed", "--yes"]).await;
    assert!(again.code == 2 && again.err.contains("it is done"), "{again:?}");
}

#[tokio::test]
async fn an_unknown_that_did_not_take_place_runs_again() {
    let seeded = Seeded::new().await;
    let ended = seeded.keys(&["resolve", &digits(&seeded.unknown), "--failed", "--yes"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let store = opened(&seeded.dir).await;
    let engine = Engine::builder(store.store.clone(), store.secret.clone()).build();
    let outcome = Outcome::new(Format::JSON, b"".as_slice(), b"1".as_slice());
    assert_eq!(settle(&engine, "order-4712", Verdict::Keep(outcome)).await, seeded.unknown);
    store.close();
}

#[tokio::test]
async fn nothing_is_changed_that_nobody_confirmed() {
    let seeded = Seeded::new().await;
    let ended = seeded.keys(&["delete", &digits(&seeded.done)]).await;
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.err.contains("nobody is here to answer: add --yes"), "{}", ended.err);
    assert!(seeded.keys(&["audit"]).await.err.contains("nobody changed anything by hand"));
    let ended = seeded.keys(&["delete", &digits(&seeded.done), "-y"]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(seeded.keys(&["list"]).await.err, "2 records\n");
}

/// A deed without its line in the audit is one that nobody can ask about.
#[tokio::test]
async fn a_deletion_and_a_purge_are_audited_before_they_are_done() {
    let seeded = Seeded::new().await;
    let done = digits(&seeded.done);
    assert_eq!(seeded.keys(&["delete", &done, "--yes", "--reason", "a test order"]).await.code, 0);
    assert_eq!(seeded.keys(&["purge", "--yes", "--reason", "nightly"]).await.code, 0);
    let audit = seeded.keys(&["audit"]).await.out;
    let lines: Vec<_> = audit.lines().collect();
    let [purged, deleted] = lines[..] else { panic!("two deeds: {audit}") };
    assert!(purged.contains("ada@") && purged.ends_with(" purge (nightly)"), "{audit}");
    assert!(
        deleted.contains("ada@") && deleted.ends_with(&format!(" delete {done}, which was done (a test order)")),
        "{audit}"
    );
    // A line that cannot be kept is a deed that is not done.
    let kept = seeded.dir.path().join("semel-data").join("audit.log");
    std::fs::remove_file(&kept).expect("it is there");
    std::fs::create_dir(&kept).expect("a folder in its place");
    for args in [&["delete", &digits(&seeded.free), "--yes"][..], &["purge", "--yes"]] {
        let ended = seeded.keys(args).await;
        assert_eq!(ended.code, 3, "{ended:?}");
        assert!(ended.err.contains("nothing was done: the store cannot keep the audit's line"), "{ended:?}");
    }
    assert_eq!(seeded.keys(&["show", &digits(&seeded.free)]).await.code, 0);
}

#[tokio::test]
async fn an_unknown_outcome_is_not_simply_deleted() {
    let seeded = Seeded::new().await;
    let ended = seeded.keys(&["delete", &digits(&seeded.unknown), "--yes"]).await;
    assert!(ended.code == 2 && ended.err.contains("semel keys resolve"), "{ended:?}");
}

/// Whoever writes a reason, or answers a request, writes to the terminal of whoever reads it.
#[tokio::test]
async fn what_people_and_clients_wrote_cannot_steer_a_terminal() {
    let seeded = Seeded::with("submit", "an upstream's\u{1b}[2J\u{202e} words").await;
    let reason = "\u{1b}]0;owned\u{7}seen\r\nforged line\u{9b}31m\u{202e}";
    let shown = seeded.keys(&["show", &digits(&seeded.unknown)]).await.out;
    assert!(shown.contains("an upstream's\\u{1b}[2J\\u{202e} words"), "{shown}");
    let ended = seeded.keys(&["resolve", &digits(&seeded.unknown), "--completed", "--yes", "--reason", reason]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let steers = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!ended.err.contains(steers), "{:?}", ended.err);
    for args in [&["audit"][..], &["list"], &["stats"], &["show", &digits(&seeded.done)]] {
        let ended = seeded.keys(args).await;
        assert!(ended.code == 0 && !ended.out.contains(steers), "{ended:?}");
    }
    let audit = seeded.keys(&["audit"]).await.out;
    assert!(audit.contains("\\u{1b}]0;owned\\u{7}seen\\r\\nforged"), "{audit}");
}

#[tokio::test]
async fn a_record_that_is_kept_until_somebody_settles_it_says_so() {
    let seeded = Seeded::new().await;
    let list = seeded.keys(&["list", "--state", "unknown"]).await;
    // Beside it stands an identity, which has any digits.
    let ends = list.out.lines().nth(1).and_then(|line| line.split_whitespace().nth(2));
    assert_eq!(ends, Some("never"), "{}", list.out);
    let shown = seeded.keys(&["show", &digits(&seeded.unknown)]).await;
    assert!(shown.out.contains("ends in     never: it is kept until somebody settles it"), "{}", shown.out);
    assert!(shown.out.contains("until you settle it with `semel keys resolve`\n"), "{}", shown.out);
}

/// It said that copies are refused until somebody settles it, and two lines on that it ends by itself.
#[tokio::test]
async fn an_unknown_that_ends_by_itself_says_what_comes_then() {
    let dir = TempDir::new().expect("a directory");
    let store = opened(&dir).await;
    let engine = Engine::builder(store.store.clone(), store.secret.clone()).build();
    let namespace = Namespace::http("gateway").expect("a name");
    let last = Some("the connection broke".into());
    let hour = Duration::from_secs(3_600);
    let id = record(&engine, (namespace, Kind::Key), "order-1", Verdict::Unknown { last }, hour).await;
    store.close();
    let shown = semel_keys(dir.path(), &["show", &digits(&id)]).await.out;
    assert!(shown.contains("`semel keys resolve`, or until it ends: then the next one runs\n"), "{shown}");
    assert!(!shown.contains("never"), "{shown}");
}

#[tokio::test]
async fn a_list_that_no_terminal_shows_is_cut_nowhere() {
    let rule = "a-rule-whose-name-is-longer-than-half-of-a-terminal-is-wide";
    let seeded = Seeded::with(rule, "").await;
    let list = seeded.keys(&["list"]).await;
    assert_eq!(list.out.matches(rule).count(), 3, "{}", list.out);
    let stats = seeded.keys(&["stats"]).await;
    assert!(stats.out.contains(rule), "{}", stats.out);
}

#[tokio::test]
async fn stats_count_by_what_is_asked_for() {
    let seeded = Seeded::new().await;
    let ended = seeded.keys(&["stats", "--by", "state", "--json"]).await;
    let json = ended.json();
    assert_eq!([&json["done"]["records"], &json["unknown"]["records"], &json["free"]["records"]], [1, 1, 1]);
    let words = seeded.keys(&["stats"]).await;
    assert!(words.out.starts_with("RULE     RECORDS      SIZE  ENDS IN\nsubmit         3"), "{}", words.out);
}

#[tokio::test]
async fn metrics_that_never_end_are_a_usage_error() {
    let seeded = Seeded::new().await;
    let ended = seeded.keys(&["stats", "--gateway", "/dev/zero"]).await;
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.err.contains("/dev/zero: it has more than 16777216 bytes"), "{ended:?}");
}

#[tokio::test]
async fn a_reason_as_long_as_a_book_is_a_usage_error() {
    let seeded = Seeded::new().await;
    let ended = seeded.keys(&["purge", "--yes", "--reason", &"ä".repeat(501)]).await;
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.err.contains("it has 1002 bytes, and may have 1000"), "{ended:?}");
    let ended = seeded.keys(&["purge", "--yes", "--reason", &"ä".repeat(500)]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
}

/// What is kept far longer than its copies come takes room for nobody.
#[tokio::test]
async fn stats_mark_a_rule_whose_records_outlive_their_copies_tenfold() {
    let seeded = Seeded::new().await;
    let file = seeded.dir.path().join("metrics.txt");
    let metrics = |bound: &str| {
        format!(
            "semel_requests_total{{rule=\"submit\",outcome=\"fresh\"}} 200\nsemel_records_asked_again{{rule=\"submit\"}} 10\n\
             semel_copy_gap_seconds_bucket{{rule=\"submit\",le=\"{bound}\"}} 12\n"
        )
    };
    std::fs::write(&file, metrics("0")).expect("a file");
    let ended = seeded.keys(&["stats", "--gateway", "metrics.txt", "--json"]).await;
    let json = ended.json();
    assert_eq!(
        (&json["submit"]["never_asked_again"], &json["submit"]["outlived"]),
        (&0.95.into(), &1.into()),
        "{json}"
    );
    let words = seeded.keys(&["stats", "--gateway", "metrics.txt"]).await.out;
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("submit: 95.0 % of the records were never asked for again"), "{words}");
    assert!(words.contains("MARK: 1 record outlives that tenfold: a ttl of"), "{words}");
    std::fs::write(&file, metrics("86400")).expect("a file");
    let words = seeded.keys(&["stats", "--gateway", "metrics.txt"]).await.out;
    assert!(!words.contains("MARK"), "{words}");
    let other = seeded.keys(&["stats", "--by", "state", "--gateway", "metrics.txt"]).await;
    assert!(other.code == 2 && other.err.contains("take --by rule"), "{other:?}");
}

#[tokio::test]
async fn an_export_has_every_record_and_no_body() {
    let seeded = Seeded::new().await;
    let ended = seeded.keys(&["export"]).await;
    assert_eq!((ended.code, ended.out.lines().count()), (0, 3), "{ended:?}");
    assert!(!ended.out.contains("receipt") && !ended.out.contains("order-4711"));
}

#[tokio::test]
async fn a_store_that_is_not_there_or_out_of_reach_is_told() {
    let seeded = Seeded::new().await;
    let ended = seeded.keys(&["list", "--data-dir", "nowhere"]).await;
    assert!(ended.code == 2 && ended.err.contains("there is no store in nowhere"), "{ended:?}");
    assert!(!seeded.dir.path().join("nowhere").exists(), "looking made a store");
    let ended = seeded.keys(&["list", "--store", "memory"]).await;
    assert!(ended.code == 2 && ended.err.contains("in the gateway's own process"), "{ended:?}");
    let store = opened(&seeded.dir).await;
    let ended = seeded.keys(&["list"]).await;
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.err.contains("another process"), "{}", ended.err);
    store.close();
}

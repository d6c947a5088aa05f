//! A user of the server's ACL who may do what the documentation names and nothing else; and scripts as servers before
//! 7.0 get them, since a server that does not tell its version gets these.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use semel_core::{
    env::Env,
    identity::Identity,
    store::{Did, Grade, StoreAdmin, StoreError, StoreErrorKind},
};
use semel_redis::{ConnectError, Options, RedisStore};
use semel_testkit::{
    conformance::{Bed, Shift, Shifted, check_against_the_model},
    servers::redis::{Redis, Setup},
};

use crate::beds::{self, connect, move_back, plant};

const PAGE: &str = include_str!("../../src/redis.md");

/// The rules for the user, as the documentation has them.
pub(crate) fn documented() -> String {
    let (_, after) = PAGE.split_once("```text\n~").expect("the page names what a user needs");
    let (rules, _) = after.split_once("```").expect("the block ends");
    let words = rules.split_whitespace().filter(|word| word.starts_with(['&', '+']));
    let (keys, _) = after.split_once(' ').expect("the keys come first");
    format!("~{keys} {}", words.collect::<Vec<_>>().join(" "))
}

struct Restricted<const HELLO: bool> {
    server: Redis,
    shift: Shift,
}

impl<const HELLO: bool> Bed for Restricted<HELLO> {
    // Who is not told the version has scripts for claims, and those look at the clock.
    const RECKONED_WITHIN: Duration = if HELLO { beds::RECKONED_WITHIN } else { Duration::ZERO };
    const SEQUENCES: u32 = 96;

    async fn start() -> Self {
        let setup = Setup::new().set("user", &format!("app on >s3cret@ resetchannels {}", documented()));
        // No rule of a user's keeps it from asking: `HELLO` is for everybody.
        let setup = if HELLO { setup } else { setup.set("rename-command", "HELLO HALLO") };
        Self { server: Redis::start(&setup).await, shift: Shift::default() }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        let url = format!("redis://app:s3cret%40@{}", self.server.address());
        Arc::new(Shifted::new(connect(&url, "semel").await, self.shift.clone()))
    }

    async fn advance(&self, by: Duration) {
        move_back(self.server.port(), "semel", by).await;
        self.shift.advance(by);
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        let bytes = bytes.map(|bytes| self.shift.stored(bytes));
        assert!(plant(self.server.port(), &format!("semel:{id}"), bytes).await);
    }
}

#[test]
fn what_the_documentation_names_is_enough() {
    check_against_the_model::<Restricted<true>>();
}

#[test]
fn scripts_of_servers_before_7_answer_as_the_reference_model_does() {
    check_against_the_model::<Restricted<false>>();
}

/// Waiting copies and people's changes went untold, and nobody said so.
#[tokio::test]
async fn a_user_without_the_channel_is_warned_with_the_cure() {
    let rules = documented().replace("&semel:wake", "");
    let server = Redis::start(&Setup::new().set("user", &format!("app on >s3cret resetchannels {rules}"))).await;
    let store = connect(&format!("redis://app:s3cret@{}", server.address()), "semel").await;
    let warned = async || {
        let findings = store.inspect().await.expect("the server answers");
        findings.into_iter().find(|f| f.grade == Grade::Warning && f.what.contains("channel semel:wake"))
    };
    let finding = warned().await.expect("it is told");
    let cure = finding.cure.split_once("SETUSER … ").expect("it says what to type").1;
    let command: Vec<_> = ["ACL", "SETUSER", "app"].into_iter().chain(cure.split(' ')).collect();
    server.tell(&command).await;
    assert!(warned().await.is_none(), "the cure cures");
}

#[tokio::test]
async fn a_user_without_rights_is_told_which() {
    let server = Redis::start(&Setup::new().set("user", "few on >s3cret ~semel:* +get +ping +hello")).await;
    for (url, said, cure) in [
        (format!("redis://few:s3cret@{}", server.address()), "no permissions", "+evalsha"),
        (format!("redis://{}/4096", server.address()), "out of range", "databases"),
    ] {
        let error = RedisStore::connect(&url, &Env::system(), Options::default()).await.expect_err("it may not");
        assert!(error.to_string().contains(said), "{error}");
        assert!(error.cure().is_some_and(|told| told.contains(cure)), "{error:?}");
    }
    assert!(documented().split(' ').all(|right| error_rights().contains(right)), "{}", error_rights());
}

/// The rights that the error names.
fn error_rights() -> String {
    let error = StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, "NOPERM");
    ConnectError::Unavailable(error).cure().expect("it has one").to_owned()
}

#[tokio::test]
async fn a_user_who_may_not_look_is_told_so() {
    let rules = documented().replace("+info", "").replace("+config|get", "");
    let setup = Setup::new().set("user", &format!("app on >s3cret resetchannels {rules}"));
    let server = Redis::start(&setup).await;
    let store = connect(&format!("redis://app:s3cret@{}", server.address()), "semel").await;
    let findings = store.inspect().await.expect("the server answers");
    let warned = findings.iter().find(|finding| finding.grade == Grade::Warning);
    assert!(warned.is_some_and(|finding| finding.cure.contains("+info")), "{findings:?}");
}

//! What calls take on a table of some size, told with `--no-capture`.

use semel_core::{
    env::Env,
    store::{Ask, Claimed, Filter, Settlement, StoreAdmin},
};

const CALLS: u32 = 500;

/// Times claims, duplicates, completions, pages and purges of `batch` records, one after the other.
#[expect(clippy::print_stderr, reason = "figures, shown with --no-capture")]
pub(crate) async fn figures(store: &impl StoreAdmin, ask: impl Fn(u64) -> Ask, done: &Settlement, batch: usize) {
    let now = || Env::system().clock.now();
    let tell = |what: &str, began, calls: u32| eprintln!("{what}: {:?}", now().since(began) / calls);
    let asks: Vec<_> = (0..u64::from(CALLS)).map(|n| ask(10_000 + n)).collect();
    let began = now();
    let mut claims = Vec::new();
    for ask in &asks {
        let Claimed::Granted { claim, .. } = store.claim(ask).await.unwrap() else { panic!("it is fresh") };
        claims.push(claim);
    }
    tell("fresh claim", began, CALLS);
    let began = now();
    for ask in &asks {
        let _ = store.claim(ask).await.unwrap();
    }
    tell("duplicate", began, CALLS);
    let began = now();
    for claim in &claims {
        let _ = store.settle(claim, done).await.unwrap();
    }
    tell("completion", began, CALLS);
    let began = now();
    let mut after = None;
    for _ in 0..20 {
        after = store.list(&Filter::default(), after.as_ref(), 100).await.unwrap().next;
    }
    tell("page of 100", began, 20);
    let began = now();
    let mut removed = 0;
    for _ in 0..3 {
        removed += store.purge(batch).await.unwrap().removed;
    }
    tell(&format!("purge of {batch} ({removed} removed)"), began, 3);
}

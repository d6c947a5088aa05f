//! The store: how its server is set up, its clock, and one real run on it.

use std::time::{Duration, SystemTime};

use semel_core::engine::{Answer, Call, Engine, Ran, Verdict};
use semel_core::env::{Env, Rng as _, SystemRng};
use semel_core::fingerprint::Fingerprint;
use semel_core::identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret};
use semel_core::policy::Policy;
use semel_core::record::{Format, Outcome, StateCode};
use semel_core::store::Durability;
use semel_gateway::config::{Bytes, Config, StoreUrl};
use semel_gateway::stores::{self, Opened};

use super::finding::{Checked, Level};

/// A store's clock may differ by so much without a word.
pub(super) const OFFSET: Duration = Duration::from_secs(2);

/// A run of claim, completion and replay on a server should not take longer.
const SLOW: Duration = Duration::from_millis(50);

/// Looks at the store; the secret that its records are made with, where it could be opened.
pub(super) async fn look(config: &Config, found: &mut Vec<Checked>) -> Option<Secret> {
    if let StoreUrl::Embedded(dir) = &*config.store.url
        && !dir.exists()
    {
        // Looking must not make one.
        found.push(Checked::new(
            Level::Note,
            "store",
            format!("{} is not there yet: the gateway makes it at its first start", dir.display()),
        ));
        found.extend(stores::place(&config.store).iter().map(Checked::of_store));
        return None;
    }
    match stores::open(&config.store, config.secret_file.as_ref(), Bytes(0), &Env::system()).await {
        Ok(opened) => {
            found.extend(opened.findings_for(config).iter().map(Checked::of_store));
            health(config, &opened, found).await;
            run(&opened, found).await;
            opened.close();
            return Some(opened.secret);
        }
        Err(error) => {
            let checked = match error.holder() {
                Some(process) => {
                    found.extend(stores::place(&config.store).iter().map(Checked::of_store));
                    let pid = process.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
                    Checked::new(Level::Note, "store", format!("the gateway{pid} has it open"))
                        .why("an embedded store belongs to one process, so nothing was tried on it")
                        .fix("/readyz on the gateway's admin address says how it is")
                        .untried()
                }
                None => Checked::new(Level::Error, "store", error.what())
                    .why("the gateway would not start")
                    .fix(error.cure().unwrap_or_default()),
            };
            found.push(checked);
        }
    }
    None
}

async fn health(config: &Config, opened: &Opened, found: &mut Vec<Checked>) {
    let facts = opened.store.facts();
    let survives = match facts.durability {
        Durability::None => "keeps nothing beyond a restart",
        Durability::Process => "keeps what it acknowledged over a restart, not over a power cut",
        _ => "keeps what it acknowledged over a power cut",
    };
    found.push(Checked::new(Level::Fine, "store", format!("the {} store answers and {survives}", facts.name)));
    match opened.store.health().await {
        Ok(health) if health.writable => {
            if matches!(*config.store.url, StoreUrl::Shared(_)) {
                let here = Env::system().clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                found.push(offset(Duration::from_micros(u64::try_from(health.now.as_micros()).unwrap_or(0)), here));
            }
        }
        Ok(health) => found.push(
            Checked::new(Level::Error, "store", format!("takes no new keys: {}", health.trouble))
                .why("requests with new keys get 503"),
        ),
        Err(error) => found.push(Checked::new(Level::Error, "store", error.to_string())),
    }
}

/// Leases are decided by the store's clock alone; but logs and certificates are not.
fn offset(store: Duration, here: Duration) -> Checked {
    let apart = here.abs_diff(store);
    let level = if apart > OFFSET { Level::Warning } else { Level::Fine };
    let checked =
        Checked::new(level, "store", format!("its clock and this machine's are {} ms apart", apart.as_millis()));
    match level {
        Level::Warning => checked
            .why("leases and expiry go by the store's clock alone, so nothing runs twice; a clock that leaps ends keys early")
            .fix("keep both machines on time with NTP"),
        _ => checked,
    }
}

/// One claim, completion and replay under a key of its own.
async fn run(opened: &Opened, found: &mut Vec<Checked>) {
    let clock = Env::system().clock;
    let began = clock.now();
    let said = attempt(opened).await;
    let took = clock.now().since(began);
    found.push(match said {
        Ok(()) if took <= SLOW => {
            Checked::new(Level::Fine, "store", format!("claim, completion and replay work, in {:.1} ms", millis(took)))
        }
        Ok(()) => Checked::new(
            Level::Warning,
            "store",
            format!("claim, completion and replay work, but took {:.1} ms", millis(took)),
        )
        .why("every guarded request waits for two round trips to the store")
        .fix("bring gateway and store closer together"),
        Err(why) => Checked::new(Level::Error, "store", format!("a try of claim, completion and replay failed: {why}")),
    });
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

async fn attempt(opened: &Opened) -> Result<(), String> {
    let engine = Engine::builder(opened.store.clone(), opened.secret.clone()).build();
    let mut nonce = [0; 16];
    SystemRng.fill(&mut nonce);
    let nonce = const_hex::encode(nonce);
    let key = Key::new(nonce.as_str(), Display::Masked);
    let namespace = Namespace::once("semel.doctor").map_err(|error| error.to_string())?;
    let id = Identity::new(engine.secret(), Kind::Key, namespace, &Scope::shared(), &key);
    let policy =
        Policy::key().named("doctor").ttl(Duration::from_mins(1)).build().map_err(|error| error.to_string())?;
    let call = Call::new(id, Fingerprint::NONE, policy).shown(key.shown());
    let work = async move |_run| {
        let outcome = Outcome::new(Format::JSON, b"".as_slice(), b"true".as_slice());
        Ran { value: (), verdict: Verdict::Keep(outcome) }
    };
    match engine.run(call.clone(), work).await {
        Answer::Executed { .. } => {}
        other => return Err(format!("the first request was not run: {other:?}")),
    }
    match engine.run(call, work).await {
        Answer::Replayed { .. } => {}
        other => return Err(format!("its copy got no replay: {other:?}")),
    }
    match opened.store.delete(&id, StateCode::Done).await {
        Ok(true) => Ok(()),
        Ok(false) => Err("the record of the try was gone before it was deleted".to_owned()),
        Err(error) => Err(format!("the record of the try could not be deleted: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each store and of a clock on either side. (No server's clock but PostgreSQL's and MariaDB's can be moved.)
    #[test]
    fn clocks_that_are_apart_are_a_warning_with_its_cure() {
        let here = Duration::from_secs(1_000);
        for (apart, level) in
            [(0, Level::Fine), (2_000, Level::Fine), (2_001, Level::Warning), (900_000, Level::Warning)]
        {
            let apart = Duration::from_millis(apart);
            for store in [here + apart, here - apart] {
                let checked = offset(store, here);
                assert_eq!((checked.level, checked.fix.is_empty()), (level, level == Level::Fine), "{checked:?}");
                assert!(checked.what.ends_with(&format!("are {} ms apart", apart.as_millis())), "{checked:?}");
            }
        }
    }
}

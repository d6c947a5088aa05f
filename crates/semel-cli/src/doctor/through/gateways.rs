//! What many copies of one request show of the gateways behind the way.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use semel_gateway::config::Config;
use semel_gateway::probe::{Report, Took, Wish};

use super::ask::{Asker, Place, Reply};
use super::way::no_gateway;
use crate::doctor::finding::{Checked, Level};
use crate::doctor::store::OFFSET;
use crate::exit::Failure;

/// Copies per address, each on a connection of its own: a balancer spreads them over what stands behind it.
const COPIES: usize = 24;

/// One gateway, as its reports show it.
struct Gateway {
    version: String,
    store: String,
    rules: String,
    /// How far its clock is from this machine's, and from its store's.
    clock: Duration,
    store_clock: Option<Duration>,
    ran: usize,
}

pub(super) async fn look(
    asker: &Asker,
    places: &[Place],
    config: &Config,
    found: &mut Vec<Checked>,
) -> Result<(), Failure> {
    let probe = asker.probe(Wish::Answer)?;
    let began = asker.now();
    let mut replies = Vec::new();
    for (place, copies) in places.iter().zip(all(asker, places, &probe).await) {
        replies.extend(copies.into_iter().map(|reply| (place.shown.as_str(), reply)));
    }
    let (sent, ended) = (replies.len(), asker.now());
    let mut gateways: BTreeMap<String, Gateway> = BTreeMap::new();
    let (mut refused, mut lost) = (Vec::new(), Vec::new());
    for (url, reply) in &replies {
        match reply {
            Reply::Report(report, _) => {
                let gateway =
                    gateways.entry(report.instance.clone()).or_insert_with(|| Gateway::of(report, began, ended));
                match &report.took {
                    Took::Ran => gateway.ran += 1,
                    Took::Copy { .. } => {}
                    Took::Refused(why) => refused.push(why.as_str()),
                }
            }
            other => lost.push(no_gateway(url, other)),
        }
    }
    if let Some(first) = lost.first() {
        let what = format!("{} of {sent} copies got no gateway's report: {}", lost.len(), first.what);
        found.push(Checked { what, ..first.clone() });
    }
    effects(sent, &gateways, &refused, found);
    differences(&gateways, config, found);
    Ok(())
}

/// Copies of one probe to all places at once.
async fn all(asker: &Asker, places: &[Place], probe: &super::ask::Probe) -> Vec<Vec<Reply>> {
    futures_util::future::join_all(places.iter().map(|place| asker.copies(place, probe, COPIES))).await
}

impl Gateway {
    fn of(report: &Report, began: SystemTime, ended: SystemTime) -> Self {
        let clock = Duration::from_millis(report.clock_ms);
        let is_shared = !matches!(report.store.name.as_str(), "memory" | "embedded");
        Self {
            version: report.version.clone(),
            store: report.store.name.clone(),
            rules: report.rules.clone(),
            clock: apart(clock, began, ended),
            store_clock: report
                .store
                .clock_ms
                .filter(|_| is_shared)
                .map(|ms| Duration::from_millis(ms).abs_diff(clock)),
            ran: 0,
        }
    }
}

/// How far a clock is from a time between two moments of this machine's; zero within.
fn apart(clock: Duration, began: SystemTime, ended: SystemTime) -> Duration {
    let since = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since(began).saturating_sub(clock).max(clock.saturating_sub(since(ended)))
}

fn effects(sent: usize, gateways: &BTreeMap<String, Gateway>, refused: &[&str], found: &mut Vec<Checked>) {
    let ran: usize = gateways.values().map(|gateway| gateway.ran).sum();
    let through = match gateways.len() {
        1 => "one gateway".to_owned(),
        n => format!("{n} gateways"),
    };
    match ran {
        1 => found.push(Checked::new(
            Level::Fine,
            "through",
            format!("{sent} copies of one request through {through} had one effect"),
        )),
        0 if refused.is_empty() => {}
        0 => {
            let what = format!("none of {sent} copies ran: {}", refused[0]);
            found.push(Checked::new(Level::Error, "through", what).why("requests with new keys get the same"));
            return;
        }
        _ => {
            let where_: Vec<String> = gateways
                .iter()
                .filter(|(_, gateway)| gateway.ran > 0)
                .map(|(instance, gateway)| {
                    format!("{} on its {} store", &instance[..instance.len().min(8)], gateway.store)
                })
                .collect();
            found.push(
                Checked::new(
                    Level::Error,
                    "through",
                    format!("{sent} copies of one request ran {ran} times: {}", where_.join(", ")),
                )
                .why("these gateways do not see each other's keys: what is sent twice runs twice")
                .fix("give all gateways of a service one shared store, with the same namespace and prefix"),
            );
        }
    }
    if let Some(why) = refused.first() {
        let what = format!("{} of {sent} copies were refused: {why}", refused.len());
        found.push(Checked::new(Level::Warning, "through", what).why("real requests get the same"));
    }
    if gateways.len() == 1 {
        found.push(
            Checked::new(Level::Note, "through", "all copies came to one gateway")
                .fix("where there are more, name the address of each: --through may be given several times"),
        );
    }
}

fn differences(gateways: &BTreeMap<String, Gateway>, config: &Config, found: &mut Vec<Checked>) {
    let names = |keep: &dyn Fn(&Gateway) -> bool| {
        let names = gateways.iter().filter(|(_, gateway)| keep(gateway));
        names.map(|(instance, _)| &instance[..instance.len().min(8)]).collect::<Vec<_>>().join(", ")
    };
    let Some(first) = gateways.values().next() else { return };
    if gateways.values().any(|gateway| gateway.rules != first.rules) {
        found.push(
            Checked::new(Level::Error, "through", "the gateways have different rules")
                .why("what one guards the other may let pass, and a key that one reads the other may not")
                .fix("start all gateways with the same file"),
        );
    } else if first.rules != config.rules_digest() {
        found.push(
            Checked::new(Level::Warning, "through", "the gateways have other rules than this configuration")
                .why("what was said about the configuration here is not about them")
                .fix("restart the gateways with this file, or name theirs"),
        );
    }
    if gateways.values().any(|gateway| gateway.version != first.version) {
        let versions: Vec<&str> = gateways.values().map(|gateway| gateway.version.as_str()).collect();
        found.push(
            Checked::new(
                Level::Warning,
                "through",
                format!("the gateways are of different versions: {}", versions.join(", ")),
            )
            .fix("bring all to one version"),
        );
    }
    let late = names(&|gateway| gateway.clock > OFFSET || gateway.store_clock.is_some_and(|apart| apart > OFFSET));
    let most = gateways
        .values()
        .map(|gateway| gateway.clock.max(gateway.store_clock.unwrap_or_default()))
        .max()
        .unwrap_or_default();
    if late.is_empty() {
        found.push(Checked::new(
            Level::Fine,
            "through",
            "the clocks of this machine, the gateways and their store agree",
        ));
    } else {
        found.push(
            Checked::new(
                Level::Warning,
                "through",
                format!("clocks are up to {} ms apart: gateway {late}", most.as_millis()),
            )
            .why("leases and expiry go by the store's clock alone; logs and certificates do not")
            .fix("keep all machines on time with NTP"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(ran: usize, rules: &str, clock: Duration) -> Gateway {
        Gateway { version: "1".into(), store: "memory".into(), rules: rules.into(), clock, store_clock: None, ran }
    }

    fn said(gateways: [(&str, Gateway); 2]) -> Vec<(Level, String)> {
        let gateways = gateways.into_iter().map(|(name, gateway)| (name.to_owned(), gateway)).collect();
        let config = Config::from_parts(
            None,
            &semel_gateway::config::Flags { upstream: Some("http://127.0.0.1:1".into()), ..Default::default() },
        )
        .unwrap();
        let mut found = Vec::new();
        effects(48, &gateways, &[], &mut found);
        differences(&gateways, &config, &mut found);
        found.into_iter().map(|checked| (checked.level, checked.what)).collect()
    }

    #[test]
    fn what_differs_between_gateways_is_told() {
        let now = Duration::ZERO;
        let said = said([("aaaaaaaa1", gateway(1, "x", now)), ("bbbbbbbb2", gateway(1, "y", Duration::from_secs(3)))]);
        assert_eq!(
            said[0].1,
            "48 copies of one request ran 2 times: aaaaaaaa on its memory store, bbbbbbbb on its memory store"
        );
        assert_eq!(said[1], (Level::Error, "the gateways have different rules".into()));
        assert_eq!(said[2], (Level::Warning, "clocks are up to 3000 ms apart: gateway bbbbbbbb".into()));
    }

    #[test]
    fn a_clock_within_the_time_of_asking_is_right() {
        let at = |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s);
        let of = |s| apart(Duration::from_secs(s), at(10), at(12));
        assert_eq!([of(7), of(10), of(11), of(12), of(17)], [3, 0, 0, 0, 5].map(Duration::from_secs));
    }
}

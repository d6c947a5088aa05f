//! How rules are asked for again, as the gateways counted it since their start: read off their metrics.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use semel_gateway::named;

use crate::exit::Failure;
use crate::prove::load::{self, Request};
use crate::prove::{Place, Target, Trust};

/// No gateway's metrics are larger.
const MOST: u64 = 16 << 20;

/// Longest wait for a gateway's metrics, which ask its store.
const LIMIT: Duration = Duration::from_secs(10);

/// What gateways counted of one rule.
#[derive(Clone, Default, Debug)]
pub(super) struct Asked {
    /// Requests that ran and were recorded.
    pub(super) fresh: f64,
    /// Records that were asked for again.
    pub(super) again: f64,
    /// Copies by the upper bound of their gap in seconds, cumulative, over all gateways.
    gaps: Vec<(f64, f64)>,
}

impl Asked {
    /// The time within which 99.9 per cent of the copies came; `None` where none came, or some later than the last bound.
    pub(super) fn gap(&self) -> Option<Duration> {
        let copies = self.copies();
        let (bound, _) = self.gaps.iter().find(|(_, below)| copies > 0.0 && *below >= copies * 0.999)?;
        Duration::try_from_secs_f64(*bound).ok()
    }

    pub(super) fn copies(&self) -> f64 {
        self.gaps.iter().map(|(_, below)| *below).fold(0.0, f64::max)
    }

    /// The share of the records that nobody asked for again, within 0 and 1; `None` where nothing ran.
    pub(super) fn never(&self) -> Option<f64> {
        (self.fresh > 0.0).then(|| (1.0 - self.again / self.fresh).clamp(0.0, 1.0))
    }
}

/// By rule, over all the gateways that are named: admin addresses, or files with their metrics.
pub(super) async fn read(gateways: &[String], trust: &Trust) -> Result<BTreeMap<String, Asked>, Failure> {
    let mut rules = BTreeMap::new();
    for gateway in gateways {
        let text = match gateway.contains("://") {
            true => fetch(gateway, trust).await?,
            false => named::read_text(Path::new(gateway), MOST)
                .map_err(|error| Failure::usage(format!("--gateway: cannot read {gateway}: {error}")))?,
        };
        add(&text, &mut rules);
    }
    if rules.is_empty() {
        return Err(Failure::usage("--gateway: there are no metrics of a gateway; name its admin address"));
    }
    Ok(rules)
}

async fn fetch(url: &str, trust: &Trust) -> Result<String, Failure> {
    let usage = |why: String| Failure::usage(format!("--gateway {url}: {why}"));
    let runtime = |why: String| Failure::runtime(format!("no metrics from {url}: {why}"));
    let base = url.strip_suffix("/metrics").unwrap_or(url);
    let target = base.parse::<Target>().and_then(|target| target.below("/metrics")).map_err(usage)?;
    let place = Place::find(target, trust).await.map_err(runtime)?;
    let request = Request { place, method: Method::GET, headers: HeaderMap::new(), body: Bytes::new() };
    let answer = load::single(&request, LIMIT).await.result.map_err(|trouble| runtime(trouble.words()))?;
    match answer.status {
        StatusCode::OK => Ok(String::from_utf8_lossy(&answer.body).into_owned()),
        status => Err(runtime(format!("it answers {status}; name the gateway's admin address"))),
    }
}

fn add(text: &str, rules: &mut BTreeMap<String, Asked>) {
    for line in text.lines() {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let (Some((name, labels)), Ok(value)) = (series.split_once('{'), value.parse::<f64>()) else { continue };
        let label = |name: &str| {
            // Names of rules have no comma.
            let pair = labels.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\""))?;
            pair.split_once('"').map(|(value, _)| value)
        };
        let Some(rule) = label("rule").filter(|rule| !rule.is_empty()) else { continue };
        match name {
            "semel_requests_total" if label("outcome") == Some("fresh") => {
                rules.entry(rule.to_owned()).or_default().fresh += value;
            }
            "semel_records_asked_again" => rules.entry(rule.to_owned()).or_default().again += value,
            "semel_copy_gap_seconds_bucket" => {
                let Some(bound) = label("le").and_then(|bound| bound.replace("+Inf", "inf").parse().ok()) else {
                    continue;
                };
                let gaps = &mut rules.entry(rule.to_owned()).or_default().gaps;
                match gaps.iter_mut().find(|(known, _)| *known == bound) {
                    Some((_, below)) => *below += value,
                    None => gaps.push((bound, value)),
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "semel_requests_total{rule=\"a\",outcome=\"fresh\"} 200\n\
        semel_requests_total{rule=\"a\",outcome=\"replayed\"} 9000\n\
        semel_records_asked_again{rule=\"a\"} 10\n\
        semel_copy_gap_seconds_bucket{rule=\"a\",le=\"1.0\"} 9985\n\
        semel_copy_gap_seconds_bucket{rule=\"a\",le=\"60.0\"} 9995\n\
        semel_copy_gap_seconds_bucket{rule=\"a\",le=\"+Inf\"} 10000\n\
        semel_copy_gap_seconds_count{rule=\"a\"} 10000\n";

    #[test]
    fn gateways_are_counted_together() {
        let mut rules = BTreeMap::new();
        add(METRICS, &mut rules);
        assert_eq!((rules["a"].never(), rules["a"].gap()), (Some(0.95), Some(Duration::from_mins(1))));
        add(METRICS, &mut rules);
        assert_eq!((rules["a"].never(), rules["a"].copies()), (Some(0.95), 20_000.0));
    }

    #[test]
    fn what_did_not_happen_has_no_share_and_no_gap() {
        assert_eq!((Asked::default().never(), Asked::default().gap()), (None, None));
    }
}

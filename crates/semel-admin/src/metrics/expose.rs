//! Everything as Prometheus text (version 0.0.4), family by family.

use std::fmt::{self, Error};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use semel_core::store::{Durability, FenceStrength, Health};

use crate::Counts;

use super::{Counter, Failure, Histogram, Metrics, Op, Outcome, RuleMetrics, UpstreamCounts, Why};

/// The content type of what [`Metrics::render`] gives.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

impl Metrics {
    /// The whole exposition, with the levels of just now. Costs a walk over all series; call it per scrape.
    ///
    /// # Errors
    /// None in practice: writing to a string does not fail.
    pub fn render(&self, levels: &Levels) -> Result<String, Error> {
        let mut registry = Registry::with_prefix("semel");
        registry.register_collector(Box::new(Scrape { metrics: self.clone(), levels: levels.clone() }));
        let mut out = String::new();
        prometheus_text::encode(&mut out, &registry)?;
        Ok(out)
    }
}

/// What is asked for at a scrape.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    /// The store's answer of just now, where it gave one.
    pub health: Option<Health>,
    /// Records that wait for a person, where the store told.
    pub counts: Option<Counts>,
    /// Whether the process is on its way out.
    pub draining: bool,
}

/// One scrape.
struct Scrape {
    metrics: Metrics,
    levels: Levels,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let e = &mut encoder;
        self.requests(e)?;
        self.rules(e)?;
        self.copies(e)?;
        self.times(e)?;
        self.upstreams(e)?;
        self.levels(e)?;
        self.facts(e)
    }
}

impl Scrape {
    fn requests(&self, e: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let rules = &self.metrics.0.rules;
        let mut family = e.encode_descriptor(
            "requests",
            "Guarded requests, by rule and by what became of them",
            None,
            MetricType::Counter,
        )?;
        for rule in rules {
            for outcome in Outcome::ALL {
                if is_noise(rule, rule.outcome(*outcome)) {
                    continue;
                }
                let labels = [("rule", rule.name()), ("outcome", outcome.label())];
                ConstCounter::new(rule.outcome(*outcome).get()).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Requests that ran without a guard, by rule and reason";
        let mut family = e.encode_descriptor("unguarded", help, None, MetricType::Counter)?;
        for rule in rules {
            for why in Why::ALL {
                // Where a rule is about the request, "no rule" is no reason, and elsewhere it is the only one.
                if (*why == Why::NoRule) != rule.name().is_empty() && rule.unguarded(*why).get() == 0 {
                    continue;
                }
                let labels = [("rule", rule.name()), ("why", why.label())];
                ConstCounter::new(rule.unguarded(*why).get()).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn rules(&self, e: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        type Pick = fn(&RuleMetrics) -> &Counter;
        let families: [(&str, &str, Pick); 5] = [
            ("suspects", "Requests equal in all but the key to another of the same caller", |r| &r.suspects),
            ("lease_lost", "Claims whose record another owner held while the work ran", |r| &r.lease_lost),
            ("panics", "Work that panicked", |r| &r.panics),
            ("overheld", "Work that ran into max_hold and was stopped", |r| &r.overheld),
            ("late_settlements", "Outcomes refused because the record had been settled otherwise", |r| &r.late),
        ];
        for (name, help, pick) in families {
            let mut family = e.encode_descriptor(name, help, None, MetricType::Counter)?;
            for rule in &self.metrics.0.rules {
                if is_noise(rule, pick(rule)) {
                    continue;
                }
                ConstCounter::new(pick(rule).get()).encode(family.encode_family(&[("rule", rule.name())])?)?;
            }
        }
        Ok(())
    }

    fn copies(&self, e: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        // What no rule is about has no record.
        let rules = || self.metrics.0.rules.iter().filter(|rule| !rule.name().is_empty());
        let help = "Records that were asked for again since the start, an estimate";
        let mut family = e.encode_descriptor("records_asked_again", help, None, MetricType::Gauge)?;
        for rule in rules() {
            let records = i64::try_from(rule.again.records()).unwrap_or(i64::MAX);
            ConstGauge::new(records).encode(family.encode_family(&[("rule", rule.name())])?)?;
        }
        let help = "How long after a record was settled its copies came";
        let mut family = e.encode_descriptor("copy_gap_seconds", help, None, MetricType::Histogram)?;
        for rule in rules() {
            let gaps = rule.again.gaps();
            family.encode_family(&[("rule", rule.name())])?.encode_histogram::<NoLabelSet>(
                gaps.sum,
                gaps.count,
                &gaps.buckets,
                None,
            )?;
        }
        Ok(())
    }

    fn times(&self, e: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Time from sending a claim to its grant";
        let claim = self.metrics.claim().snapshot();
        e.encode_descriptor("claim_seconds", help, None, MetricType::Histogram)?.encode_histogram::<NoLabelSet>(
            claim.sum,
            claim.count,
            &claim.buckets,
            None,
        )?;
        let mut family =
            e.encode_descriptor("store_seconds", "Time of the store's calls", None, MetricType::Histogram)?;
        for op in Op::ALL {
            let calls = Histogram::snapshot(self.metrics.store_seconds(*op));
            family.encode_family(&[("op", op.label())])?.encode_histogram::<NoLabelSet>(
                calls.sum,
                calls.count,
                &calls.buckets,
                None,
            )?;
        }
        let help = "Calls of the store that failed";
        let mut family = e.encode_descriptor("store_errors", help, None, MetricType::Counter)?;
        for op in Op::ALL {
            let errors = self.metrics.store_errors(*op).get();
            ConstCounter::new(errors).encode(family.encode_family(&[("op", op.label())])?)?;
        }
        Ok(())
    }

    fn upstreams(&self, e: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(ask) = self.metrics.0.upstreams.get() else { return Ok(()) };
        let all = ask();
        let help = "Requests that a service did not answer, by upstream and by what went wrong";
        let mut family = e.encode_descriptor("upstream_failures", help, None, MetricType::Counter)?;
        for of in &all {
            // In the order of the enum.
            let counts = [of.unreachable, of.broken, of.timed_out];
            for kind in Failure::ALL {
                let count = counts[kind.index()];
                let labels = [("upstream", &*of.name), ("kind", kind.label())];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        type Pick = fn(&UpstreamCounts) -> u64;
        let families: [(&str, &str, Pick); 3] = [
            ("upstream_connections", "Connections to a service that carried a request", |of| of.connections),
            ("upstream_broken_reused", "Requests that broke off on a connection that had carried one before", |of| {
                of.broken_reused
            }),
            ("upstream_retries", "Requests of which nothing was written at first, sent anew", |of| of.sent_anew),
        ];
        for (name, help, pick) in families {
            let mut family = e.encode_descriptor(name, help, None, MetricType::Counter)?;
            for of in &all {
                ConstCounter::new(pick(of)).encode(family.encode_family(&[("upstream", &*of.name)])?)?;
            }
        }
        Ok(())
    }

    fn levels(&self, e: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let inner = &self.metrics.0;
        if let Some(load) = inner.load.get() {
            let load = load();
            gauge(e, "inflight", "Guarded work that runs now", load.running)?;
            gauge(e, "waiters", "Requests that wait for running work", load.waiting)?;
        }
        if let Some(load) = inner.bodies.get() {
            let load = load();
            gauge(e, "request_bodies_bytes", "Bytes of guarded requests' bodies in memory", load.requests)?;
            gauge(e, "answer_bodies_bytes", "Bytes of recorded answers' bodies on their way to clients", load.answers)?;
            count(e, "request_bodies_refused", "Requests refused for want of room for their bodies", load.refused)?;
            let help = "Answers recorded without their body for want of room";
            count(e, "answer_bodies_not_kept", help, load.not_kept)?;
        }
        if let Some(counts) = self.levels.counts {
            gauge(e, "unknown", "Records whose outcome nobody can tell, counted once a minute", counts.unknown)?;
            gauge(e, "parked", "Records that failed too often, counted once a minute", counts.parked)?;
        }
        counter(e, "unknown_expired", "Unknown outcomes that ended unresolved", &inner.unknown_expired)?;
        counter(e, "settlements_abandoned", "Outcomes that could not be recorded in time", &inner.abandoned)?;
        counter(e, "store_missing", "Renewals that found no record", &inner.missing)?;
        counter(e, "store_forgot", "Claims that the store had lost and that were made again", &inner.store_forgot)?;
        counter(e, "store_restored", "Outcomes written anew, as the store had lost their claim", &inner.restored)?;
        counter(e, "breaker_opened", "How often the store was no longer asked by everybody", &inner.breaker_opened)?;
        let state = inner.store_state.get().map(|state| state());
        if let Some(state) = &state {
            gauge(e, "breaker_open", "Whether the store is asked once a second only", u8::from(state.breaker_open))?;
            count(e, "store_lost", "How often the store was found without its records", state.lost)?;
            count(e, "local_joined", "Copies that joined what was under way in this process", state.local.joined)?;
            let help = "Copies that were answered from a remembered outcome";
            count(e, "local_remembered", help, state.local.remembered)?;
            gauge(e, "local_bytes", "Bytes that the remembered outcomes take", state.local.bytes)?;
        }
        let health = self.levels.health.as_ref();
        if let Some(records) = health.and_then(|h| h.records) {
            gauge(e, "store_records", "Records in the store", records)?;
        }
        if let Some(bytes) = health.and_then(|h| h.bytes) {
            gauge(e, "store_bytes", "Bytes that the store's records take", bytes)?;
        }
        gauge(
            e,
            "store_up",
            "Whether the store answers and takes claims",
            u8::from(health.is_some_and(|h| h.writable) && state.is_none_or(|state| !state.full)),
        )?;
        gauge(e, "draining", "Whether the process is on its way out", u8::from(self.levels.draining))
    }

    fn facts(&self, e: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let facts = &self.metrics.0.store;
        let durability = match facts.durability {
            Durability::Power => "power",
            Durability::Process => "process",
            _ => "none",
        };
        let fence = match facts.fence {
            FenceStrength::Strong => "strong",
            FenceStrength::Advisory => "advisory",
        };
        let labels = [("store", facts.name), ("durability", durability), ("fence", fence)];
        e.encode_descriptor("store", "What the store can promise", None, MetricType::Info)?.encode_info(&labels)?;
        e.encode_descriptor("build", "This program", None, MetricType::Info)?
            .encode_info(&[("version", &*self.metrics.0.version)])
    }
}

/// A guarded request has a rule: without one nothing of this kind is ever counted.
fn is_noise(rule: &RuleMetrics, counter: &Counter) -> bool {
    rule.name().is_empty() && counter.get() == 0
}

fn gauge(e: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: impl TryInto<i64>) -> Result<(), Error> {
    let encoder = e.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value.try_into().unwrap_or(i64::MAX)).encode(encoder)
}

fn counter(e: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: &Counter) -> Result<(), Error> {
    count(e, name, help, value.get())
}

fn count(e: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> Result<(), Error> {
    let encoder = e.encode_descriptor(name, help, None, MetricType::Counter)?;
    ConstCounter::new(value).encode(encoder)
}

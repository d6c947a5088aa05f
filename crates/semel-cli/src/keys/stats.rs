//! `semel keys stats`: how many records, how large, how long they still live.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use semel_core::StoreTime;
use semel_core::record::{HEADER_LEN, Payload, Rest};
use semel_core::store::{Entry, StoreAdmin};
use serde::Serialize;

use super::again::{self, Asked};
use super::args::{By, Stats};
use super::pages::Pages;
use super::time;
use crate::exit::{Exit, Failure};
use crate::prove::Trust;
use crate::term::{GLUE, Look, Out, shown};

/// Upper ends of the histogram of the time that records still have, and their names.
const LEFT: [(Duration, &str); 6] = [
    (Duration::from_mins(1), "1min"),
    (Duration::from_mins(10), "10min"),
    (Duration::from_hours(1), "1h"),
    (Duration::from_hours(6), "6h"),
    (Duration::from_hours(24), "1d"),
    (Duration::from_hours(24 * 7), "7d"),
];

/// One group of records.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Group {
    records: u64,
    /// Header and what the record carries; what the store's own keys and indexes take comes on top.
    bytes: u64,
    /// Records by the time they still have: under 1 min, 10 min, 1 h, 6 h, 1 d, 7 d, and more.
    ends_in: [u64; LEFT.len() + 1],
    /// How it is asked for again, where gateways were named.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    again: Option<Again>,
}

/// How the records of a rule are asked for again.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Again {
    /// Share of the records that nobody asked for again, 0 to 1.
    never_asked_again: Option<f64>,
    /// Copies that this was seen of.
    copies: f64,
    /// Within so many seconds 99.9 per cent of the copies came.
    gap_p999_s: Option<u64>,
    /// Records that are ten times as old as that, and what they take: what a shorter time to live would free.
    outlived: u64,
    outlived_bytes: u64,
}

/// Which part of the histogram a record counts for that lives so long yet.
fn bucket(left: Duration) -> usize {
    LEFT.iter().position(|(end, _)| left < *end).unwrap_or(LEFT.len())
}

impl Group {
    fn add(&mut self, entry: &Entry, now: StoreTime) {
        self.records += 1;
        self.bytes += (HEADER_LEN + entry.record.rest.len()) as u64;
        let left = entry.record.expires_at.since(now);
        self.ends_in[bucket(left)] += 1;
        if let Some(again) = &mut self.again {
            again.add(entry, now);
        }
    }

    fn and(mut self, other: &Self) -> Self {
        self.records += other.records;
        self.bytes += other.bytes;
        for (sum, n) in self.ends_in.iter_mut().zip(other.ends_in) {
            *sum += n;
        }
        self
    }
}

/// What lives so many times as long as its last copies come is kept for nobody.
const TENFOLD: u32 = 10;

impl Again {
    fn of(asked: &Asked) -> Self {
        Self {
            never_asked_again: asked.never(),
            copies: asked.copies(),
            gap_p999_s: asked.gap().map(|gap| gap.as_secs()),
            ..Self::default()
        }
    }

    /// The time to live that would do.
    fn enough(&self) -> Option<Duration> {
        self.gap_p999_s.map(|gap| Duration::from_secs(gap) * TENFOLD)
    }

    fn add(&mut self, entry: &Entry, now: StoreTime) {
        let Some(enough) = self.enough() else { return };
        let Ok(rest) = Rest::read(&entry.record.rest) else { return };
        if let Payload::Outcome { settled_at, .. } = rest.payload
            && now.since(settled_at) > enough
        {
            self.outlived += 1;
            self.outlived_bytes += (HEADER_LEN + entry.record.rest.len()) as u64;
        }
    }

    fn words(&self, rule: &str) -> String {
        let Some(never) = self.never_asked_again else {
            return format!("{rule}: nothing ran since its gateways started");
        };
        let mut text = format!("{rule}: {:.1} % of the records were never asked for again", never * 100.0);
        match (self.gap_p999_s, self.enough()) {
            (Some(gap), Some(enough)) => {
                let gap = time::words(Duration::from_secs(gap));
                text.push_str(&format!("; 99.9 % of {} copies came within {gap}", self.copies));
                if self.outlived > 0 {
                    text.push_str(&format!(
                        ". MARK: {} {} that tenfold: a ttl of {} would free {}",
                        self.outlived,
                        if self.outlived == 1 { "record outlives" } else { "records outlive" },
                        time::words(enough),
                        time::bytes(self.outlived_bytes)
                    ));
                }
            }
            _ if self.copies > 0.0 => text.push_str("; copies come after more than 30 days, too"),
            _ => text.push_str("; no copy of a finished one came"),
        }
        text
    }
}

pub(super) async fn run(store: &dyn StoreAdmin, args: &Stats) -> Result<Exit, Failure> {
    if !args.gateway.is_empty() && args.by != By::Rule {
        return Err(Failure::usage("--gateway tells of rules: take --by rule, or leave --gateway out"));
    }
    let asked = match args.gateway.is_empty() {
        true => BTreeMap::new(),
        false => again::read(&args.gateway, &Trust::with(args.ca.as_deref())?).await?,
    };
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut pages = Pages::of(store, args.narrow.filter());
    while let Some((entries, now)) = pages.next().await? {
        for entry in &entries {
            let name = name(args.by, entry, now);
            let again = asked.get(&name).map(Again::of);
            groups.entry(name).or_insert_with(|| Group { again, ..Group::default() }).add(entry, now);
        }
    }
    let mut out = Out::stdout();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&groups).map_err(anyhow::Error::from)?)?,
        false => out.write_all(table(args.by, &groups, Look::of_stdout()).as_bytes())?,
    }
    out.flush()?;
    Ok(Exit::Clean)
}

fn name(by: By, entry: &Entry, now: StoreTime) -> String {
    match by {
        By::Namespace => entry.identity.namespace().as_str().to_owned(),
        By::Kind => entry.identity.kind().name().to_owned(),
        By::State => entry.record.reads_as(now).name().to_owned(),
        By::Rule => Rest::read(&entry.record.rest).map(|rest| rest.meta.rule.to_owned()).unwrap_or_default(),
    }
}

fn table(by: By, groups: &BTreeMap<String, Group>, look: Look) -> String {
    if groups.is_empty() {
        return "no records\n".to_owned();
    }
    let heading = match by {
        By::Namespace => "NAMESPACE",
        By::Rule => "RULE",
        By::State => "STATE",
        By::Kind => "KIND",
    };
    let most = if look.has_edge { 24 } else { usize::MAX };
    let width = groups.keys().map(|name| shown(name).chars().count()).max().unwrap_or(0).clamp(heading.len(), most);
    let mut text = look.strong(&format!("{heading:<width$} {:>9} {:>9}  ENDS IN", "RECORDS", "SIZE"));
    text.push('\n');
    let sum = groups.values().fold(Group::default(), Group::and);
    let all = groups.iter().map(|(name, group)| (name.as_str(), group));
    for (name, group) in all.chain((groups.len() > 1).then_some(("all", &sum))) {
        let name: String =
            if name.is_empty() { "(none)".to_owned() } else { shown(name).chars().take(width).collect() };
        let line = format!("{name:<width$} {:>9} {:>9}  ", group.records, time::bytes(group.bytes));
        let indent = line.chars().count();
        text.push_str(&line);
        text.push_str(&look.rows().wrap(&ends(group), indent).replace(GLUE, " "));
        text.push('\n');
    }
    for (name, again) in groups.iter().filter_map(|(name, group)| Some((name, group.again.as_ref()?))) {
        text.push_str(&look.rows().wrap(&again.words(name), 0));
        text.push('\n');
    }
    text
}

/// `under 1min: 3, under 1h: 12, later: 4`: only what is there, each glued together.
fn ends(group: &Group) -> String {
    let names = LEFT.iter().map(|(_, name)| format!("under {name}")).chain(std::iter::once("later".to_owned()));
    let parts = names.zip(group.ends_in).filter(|(_, n)| *n > 0);
    let glued = |part: String| part.replace(' ', &GLUE.to_string());
    parts.map(|(name, n)| glued(format!("{name}: {n}"))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_for_the_first_bound_that_it_ends_before() {
        let just_before = Duration::from_micros(1);
        for (n, (bound, name)) in LEFT.iter().enumerate() {
            assert_eq!((bucket(*bound - just_before), bucket(*bound)), (n, n + 1), "{name}");
        }
        assert_eq!((bucket(Duration::ZERO), bucket(Duration::MAX)), (0, LEFT.len()));
    }

    #[test]
    fn a_sum_adds_records_bytes_and_each_part_of_the_histogram() {
        let one = Group { records: 2, bytes: 300, ends_in: [1, 0, 0, 0, 0, 0, 1], again: None };
        let other = Group { records: 3, bytes: 40, ends_in: [0, 2, 0, 0, 0, 0, 1], again: None };
        let groups = BTreeMap::from([("a".to_owned(), one), ("b".to_owned(), other)]);
        let text = table(By::Namespace, &groups, Look::plain(100));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["a", "2", "300", "B", "under", "1min:", "1,", "later:", "1"], "{text}");
        assert_eq!(
            rows[3],
            ["all", "5", "340", "B", "under", "1min:", "1,", "under", "10min:", "2,", "later:", "2"],
            "{text}"
        );
    }
}

//! `semel keys stats`: how many records, how large, how long they still live.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use semel_core::StoreTime;
use semel_core::record::{HEADER_LEN, Rest};
use semel_core::store::{Entry, StoreAdmin};
use serde::Serialize;

use super::args::{By, Stats};
use super::pages::Pages;
use super::time;
use crate::exit::{Exit, Failure};
use crate::term::{Look, Out, shown};

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Group {
    records: u64,
    /// Header and what the record carries; what the store's own keys and indexes take comes on top.
    bytes: u64,
    /// Records by the time they still have: under 1 min, 10 min, 1 h, 6 h, 1 d, 7 d, and more.
    ends_in: [u64; LEFT.len() + 1],
}

impl Group {
    fn add(&mut self, entry: &Entry, now: StoreTime) {
        self.records += 1;
        self.bytes += (HEADER_LEN + entry.record.rest.len()) as u64;
        let left = entry.record.expires_at.since(now);
        let bucket = LEFT.iter().position(|(end, _)| left < *end).unwrap_or(LEFT.len());
        self.ends_in[bucket] += 1;
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

pub(super) async fn run(store: &dyn StoreAdmin, args: &Stats) -> Result<Exit, Failure> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut pages = Pages::of(store, args.narrow.filter());
    while let Some((entries, now)) = pages.next().await? {
        for entry in &entries {
            groups.entry(name(args.by, entry, now)).or_default().add(entry, now);
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
        text.push_str(&look.wrap(&ends(group), indent));
        text.push('\n');
    }
    text
}

/// `under 1min 3, 1h 12, more 4`: only what is there.
fn ends(group: &Group) -> String {
    let names = LEFT.iter().map(|(_, name)| format!("under {name}")).chain(std::iter::once("later".to_owned()));
    let parts = names.zip(group.ends_in).filter(|(_, n)| *n > 0);
    parts.map(|(name, n)| format!("{name}:\u{a0}{n}")).collect::<Vec<_>>().join(", ")
}

//! Statuses by which a rule overrides the outcome table.

use std::fmt;
use std::ops::RangeInclusive;

use super::read::{Fault, Node, Read, one_or_many};

/// A set of final statuses (200 to 599). Written as `503`, `"5xx"`, `"500-504"`, or a list of these.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatusSet {
    ranges: Vec<RangeInclusive<u16>>,
}

impl StatusSet {
    /// Exactly these ranges.
    pub(super) fn of(ranges: &[RangeInclusive<u16>]) -> Self {
        Self { ranges: ranges.to_vec() }
    }

    /// Whether the status is in the set. Costs a walk over the few ranges of the file.
    pub fn contains(&self, status: u16) -> bool {
        self.ranges.iter().any(|range| range.contains(&status))
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges as they were written.
    pub fn ranges(&self) -> &[RangeInclusive<u16>] {
        &self.ranges
    }

    /// A status in both sets.
    pub(super) fn common(&self, other: &Self) -> Option<u16> {
        self.ranges.iter().flat_map(Clone::clone).find(|status| other.contains(*status))
    }
}

impl fmt::Display for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none beyond the table");
        }
        for (i, range) in self.ranges.iter().enumerate() {
            let (from, to) = (range.start(), range.end());
            let comma = if i == 0 { "" } else { ", " };
            match (to - from, from % 100) {
                (0, _) => write!(f, "{comma}{from}")?,
                (99, 0) => write!(f, "{comma}{}xx", from / 100)?,
                _ => write!(f, "{comma}{from}-{to}")?,
            }
        }
        Ok(())
    }
}

struct Statuses(RangeInclusive<u16>);

impl Read for Statuses {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let wrong = || Fault::new("names no status").fix("503, \"5xx\" or \"500-504\", from 200 to 599");
        let range = match node.get_ref().as_str() {
            None => {
                let status = u32::read(node).ok().and_then(|n| u16::try_from(n).ok()).ok_or_else(wrong)?;
                status..=status
            }
            Some(text) => match (text.strip_suffix("xx"), text.split_once('-')) {
                (Some(class), _) => {
                    let first = class.parse::<u16>().ok().and_then(|c| c.checked_mul(100)).ok_or_else(wrong)?;
                    first..=first.saturating_add(99)
                }
                (None, Some((from, to))) => {
                    from.trim().parse().map_err(|_| wrong())?..=to.trim().parse().map_err(|_| wrong())?
                }
                (None, None) => {
                    let status = text.parse().map_err(|_| wrong())?;
                    status..=status
                }
            },
        };
        if range.is_empty() || *range.start() < 200 || *range.end() > 599 { Err(wrong()) } else { Ok(Self(range)) }
    }
}

impl Read for StatusSet {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let ranges: Vec<Statuses> = one_or_many(node)?;
        Ok(Self { ranges: ranges.into_iter().map(|s| s.0).collect() })
    }
}

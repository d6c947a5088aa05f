//! Which master has which of the 16,384 slots.

use redis::Value;

use crate::address::Host;

const SLOTS: u16 = 16_384;

/// The slot of a key. Our keys have no braces, so there is no tag to look for.
pub(super) fn slot_of(key: &str) -> u16 {
    crc16(key.as_bytes()) % SLOTS
}

/// How many marks are spread over the slots.
const MARKS: u16 = 16;

/// Keys that lie a sixteenth of the slots apart: whichever master has two sixteenths that follow each other has one of them.
pub(super) fn spread(base: &str) -> Vec<String> {
    let width = SLOTS / MARKS;
    let within = |part: u16| move |key: &String| slot_of(key) / width == part;
    // One of sixteen names fits; of a hundred thousand one certainly does.
    (0..MARKS).filter_map(|part| (0..100_000).map(|n| format!("{base}.{part}.{n}")).find(within(part))).collect()
}

/// CRC-16/XMODEM, as the specification of the Cluster has it.
fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| step(crc)))
}

/// Ranges of slots and their masters, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Slots {
    ranges: Vec<(u16, u16, Host)>,
    replicas: Vec<Host>,
}

impl Slots {
    /// Reads what `CLUSTER SLOTS` says. A node that does not know its own name is the one that was `asked`.
    pub(super) fn read(value: &Value, asked: &Host) -> Option<Self> {
        let Value::Array(list) = value else { return None };
        let mut slots = Self::default();
        for range in list {
            let Value::Array(range) = range else { return None };
            let [Value::Int(from), Value::Int(to), master, replicas @ ..] = range.as_slice() else { return None };
            let (from, to) = (u16::try_from(*from).ok()?, u16::try_from(*to).ok()?);
            slots.ranges.push((from, to, host(master, asked)?));
            slots.replicas.extend(replicas.iter().filter_map(|replica| host(replica, asked)));
        }
        slots.ranges.sort_by_key(|(from, ..)| *from);
        Some(slots)
    }

    /// The master of a slot.
    pub(super) fn master(&self, slot: u16) -> Option<&Host> {
        let at = self.ranges.partition_point(|(from, ..)| *from <= slot).checked_sub(1)?;
        let (_, to, host) = &self.ranges[at];
        if slot <= *to { Some(host) } else { None }
    }

    /// Every master once.
    pub(super) fn masters(&self) -> Vec<Host> {
        let mut masters: Vec<Host> = Vec::new();
        for (_, _, host) in &self.ranges {
            if !masters.contains(host) {
                masters.push(host.clone());
            }
        }
        masters
    }

    /// Everybody who may know the map.
    pub(super) fn everybody(&self) -> impl Iterator<Item = &Host> {
        self.ranges.iter().map(|(_, _, host)| host).chain(&self.replicas)
    }

    /// Whether every slot has a master.
    pub(super) fn is_whole(&self) -> bool {
        let mut next = 0;
        for (from, to, _) in &self.ranges {
            if *from != next {
                return false;
            }
            next = to + 1;
        }
        next == SLOTS
    }
}

fn host(node: &Value, asked: &Host) -> Option<Host> {
    let Value::Array(node) = node else { return None };
    let [name, Value::Int(port), ..] = node.as_slice() else { return None };
    let name = match name {
        Value::BulkString(name) => String::from_utf8(name.clone()).ok()?,
        Value::SimpleString(name) => name.clone(),
        _ => String::new(),
    };
    let name = if name.is_empty() || name == "?" { asked.name.clone() } else { name };
    Some(Host::new(name, u16::try_from(*port).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of("foo"), 12_182);
        assert_eq!(slot_of("bar"), 5_061);
    }

    #[test]
    fn marks_lie_in_every_sixteenth() {
        let parts: Vec<_> = spread("semel:mark").iter().map(|key| slot_of(key) / 1_024).collect();
        assert_eq!(parts, (0..16).collect::<Vec<_>>());
    }

    fn node(name: &str, port: i64) -> Value {
        Value::Array(vec![Value::BulkString(name.into()), Value::Int(port), Value::BulkString(b"id".to_vec())])
    }

    #[test]
    fn the_map_tells_the_master_of_each_slot() {
        let range = |from, to, nodes: &[Value]| Value::Array([&[Value::Int(from), Value::Int(to)], nodes].concat());
        let said =
            Value::Array(vec![range(8_000, 16_383, &[node("b", 2), node("c", 3)]), range(0, 7_999, &[node("", 1)])]);
        let slots = Slots::read(&said, &Host::new("asked", 9)).unwrap();
        assert_eq!(slots.master(0), Some(&Host::new("asked", 1)));
        assert_eq!(slots.master(8_000), Some(&Host::new("b", 2)));
        assert_eq!(slots.masters(), [Host::new("asked", 1), Host::new("b", 2)]);
        assert_eq!(slots.everybody().count(), 3);
        assert!(slots.is_whole());
        let half = Slots::read(&Value::Array(vec![range(5, 9, &[node("b", 2)])]), &Host::new("a", 1)).unwrap();
        assert!(!half.is_whole() && half.master(4).is_none() && half.master(10).is_none());
    }
}

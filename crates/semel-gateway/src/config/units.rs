//! Lengths of time and numbers of bytes, as people write them.

use std::fmt;
use std::time::Duration;

/// The longest time a file may name: a hundred years. What is meant to stay says `"never"` where that is a choice.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

const TIME_UNITS: &[(&str, u64)] = &[
    ("ms", 1),
    ("s", 1_000),
    ("sec", 1_000),
    ("second", 1_000),
    ("seconds", 1_000),
    ("m", 60_000),
    ("min", 60_000),
    ("minute", 60_000),
    ("minutes", 60_000),
    ("h", 3_600_000),
    ("hour", 3_600_000),
    ("hours", 3_600_000),
    ("d", 86_400_000),
    ("day", 86_400_000),
    ("days", 86_400_000),
    ("w", 604_800_000),
    ("week", 604_800_000),
    ("weeks", 604_800_000),
];

const SIZE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Reads `"10s"`, `"250ms"`, `"15min"`, `"1h 30min"`, `"7 days"`. Whole numbers, units from milliseconds to weeks, more than zero.
///
/// # Errors
/// A sentence that begins with what was written: no number, no unit, an unknown unit, nothing, or more than a hundred years.
pub fn duration(text: &str) -> Result<Duration, String> {
    let millis = sum(text, TIME_UNITS, "10s", "ms, s, min, h, days, weeks")?;
    if millis == 0 {
        return Err(format!("`{text}` is no time at all"));
    }
    let time = Duration::from_millis(millis);
    if time > LONGEST { Err(format!("`{text}` is more than a hundred years")) } else { Ok(time) }
}

/// Reads `"8 MiB"`, `"256KiB"`, `"512 B"`. Whole numbers, more than zero.
///
/// # Errors
/// A sentence that begins with what was written.
pub fn size(text: &str) -> Result<u64, String> {
    match sum(text, SIZE_UNITS, "8 MiB", "B, KiB, MiB, GiB, kB, MB, GB")? {
        0 => Err(format!("`{text}` is no size at all")),
        bytes => Ok(bytes),
    }
}

fn sum(text: &str, units: &[(&str, u64)], example: &str, names: &str) -> Result<u64, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(format!("`{text}` is empty; write it like \"{example}\""));
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits == 0 {
            return Err(format!("`{text}` does not begin with a whole number; write it like \"{example}\""));
        }
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        if after.starts_with(['.', ',']) {
            return Err(format!("`{text}` has a fraction; write a whole number of a smaller unit"));
        }
        let letters = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        if unit.is_empty() {
            return Err(format!("`{text}` has no unit; write it like \"{example}\""));
        }
        let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("`{text}` has the unknown unit `{unit}`; units are {names}"));
        };
        let part = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*factor));
        total = part.and_then(|n| total.checked_add(n)).ok_or_else(|| format!("`{text}` is too large"))?;
        rest = after.trim_start();
    }
    Ok(total)
}

/// A time as [`duration`] reads it.
pub(super) fn show_duration(time: Duration) -> String {
    const SHOWN: &[(&str, u128)] = &[(" days", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];
    let mut rest = time.as_millis();
    if rest == 86_400_000 {
        return "24h".to_owned();
    }
    let mut parts = Vec::new();
    for (unit, factor) in SHOWN {
        let n = rest / factor;
        rest %= factor;
        if n > 0 {
            let unit = if n == 1 && *unit == " days" { " day" } else { unit };
            parts.push(format!("{n}{unit}"));
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// A number of bytes. Shown with the largest binary unit that divides it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// As a length in this process's memory.
    pub(crate) fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= factor && self.0.is_multiple_of(factor) {
                return write!(f, "{} {unit}", self.0 / factor);
            }
        }
        write!(f, "{} B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, millis) in [
            ("10s", 10_000),
            ("250ms", 250),
            ("24h", 86_400_000),
            ("15min", 900_000),
            ("15 min", 900_000),
            ("7 days", 604_800_000),
            ("1h 30min", 5_400_000),
            ("1h30m", 5_400_000),
            (" 2 weeks ", 1_209_600_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn a_bad_time_is_told_what_is_bad() {
        for (text, message) in [
            ("", "`` is empty; write it like \"10s\""),
            ("10", "`10` has no unit; write it like \"10s\""),
            ("s", "`s` does not begin with a whole number; write it like \"10s\""),
            ("-3s", "`-3s` does not begin with a whole number; write it like \"10s\""),
            ("1.5s", "`1.5s` has a fraction; write a whole number of a smaller unit"),
            ("3 fortnights", "`3 fortnights` has the unknown unit `fortnights`; units are ms, s, min, h, days, weeks"),
            ("0s", "`0s` is no time at all"),
            ("99999999999999999999s", "`99999999999999999999s` is too large"),
            ("40000 days", "`40000 days` is more than a hundred years"),
        ] {
            assert_eq!(duration(text), Err(message.to_owned()));
        }
    }

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes, shown) in [
            ("8 MiB", 8 << 20, "8 MiB"),
            ("256KiB", 256 << 10, "256 KiB"),
            ("1 MB", 1_000_000, "1000000 B"),
            ("512 B", 512, "512 B"),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
            assert_eq!(Bytes(bytes).to_string(), shown);
        }
        assert_eq!(
            size("8 MIB"),
            Err("`8 MIB` has the unknown unit `MIB`; units are B, KiB, MiB, GiB, kB, MB, GB".to_owned())
        );
        assert_eq!(size("8"), Err("`8` has no unit; write it like \"8 MiB\"".to_owned()));
    }

    #[test]
    fn a_shown_time_is_read_back_as_itself() {
        for millis in [1, 999, 1_000, 61_000, 3_600_000, 86_400_000, 90_061_001, 604_800_000] {
            let time = Duration::from_millis(millis);
            assert_eq!(duration(&show_duration(time)), Ok(time));
        }
    }
}

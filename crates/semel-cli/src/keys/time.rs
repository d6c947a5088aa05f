//! Lengths of time for people: the two largest units.

use std::time::Duration;

/// What is kept until somebody settles it has a hundred years; what has fewer than this was given an end.
pub(super) const NEVER_FROM: Duration = Duration::from_secs(50 * 365 * 86_400);

/// How long until an end: `never`, or as [`words`].
pub(super) fn until(time: Duration) -> String {
    if time >= NEVER_FROM { "never".to_owned() } else { words(time) }
}

/// `3h 12min`, `45s`, `under 1s`.
pub(super) fn words(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let Some(first) = units.iter().position(|(_, length)| seconds >= *length) else { return "under 1s".to_owned() };
    let (name, length) = units[first];
    let whole = format!("{}{name}", seconds / length);
    match units.get(first + 1) {
        Some((name, part)) if seconds % length >= *part => format!("{whole} {}{name}", seconds % length / part),
        _ => whole,
    }
}

/// Bytes with a unit that leaves at most four digits.
pub(super) fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..10_240_000 => format!("{} KiB", n >> 10),
        10_240_000..10_737_418_240 => format!("{} MiB", n >> 20),
        _ => format!("{} GiB", n >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_units_at_most() {
        let of = |s| words(Duration::from_secs(s));
        assert_eq!(
            [of(0), of(59), of(60), of(61), of(3_600), of(11_520), of(86_399), of(90_000)],
            ["under 1s", "59s", "1min", "1min 1s", "1h", "3h 12min", "23h 59min", "1d 1h"]
        );
    }

    #[test]
    fn what_has_no_end_has_no_time() {
        assert_eq!(until(semel_core::policy::NEVER), "never");
        // A year later, and the longest time that a file takes in years.
        assert_eq!(until(semel_core::policy::NEVER - Duration::from_hours(24 * 365)), "never");
        assert_eq!(until(Duration::from_hours(24 * 365 * 10)), "3650d");
    }

    #[test]
    fn sizes_stay_short() {
        assert_eq!(
            [bytes(9_999), bytes(10_240), bytes(20 << 20), bytes(3 << 40)],
            ["9999 B", "10 KiB", "20 MiB", "3072 GiB"]
        );
    }
}

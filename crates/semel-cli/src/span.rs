//! Lengths of time on the command line: written as in `semel.toml`, shown in three figures.

use std::time::Duration;

/// Reads a time as `semel.toml` does (`250ms`, `15min`, `1h 30min`), and zero, which a file has no use for.
///
/// # Errors
/// A sentence that begins with what was written.
pub fn parse(text: &str) -> Result<Duration, String> {
    match text.trim() {
        "0" | "0s" | "0ms" => Ok(Duration::ZERO),
        text => semel_gateway::config::duration(text),
    }
}

/// Three figures and a unit: `0.42 ms`, `15.3 ms`, `152 ms`, `1.20 s`, `75 s`.
pub fn show(length: Duration) -> String {
    let seconds = length.as_secs_f64();
    let (value, unit) = if seconds < 0.9995 { (seconds * 1e3, "ms") } else { (seconds, "s") };
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_in_the_file_or_is_zero() {
        assert_eq!((parse("0"), parse("0s")), (Ok(Duration::ZERO), Ok(Duration::ZERO)));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!((parse("2m"), parse("2min")), (Ok(Duration::from_secs(120)), Ok(Duration::from_secs(120))));
        for wrong in ["", "5", "s", "-1s", "1 fortnight", "1.5s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn three_figures_are_shown() {
        let shown = [420, 15_300, 152_000, 999_900, 1_200_000, 75_000_000].map(|us| show(Duration::from_micros(us)));
        assert_eq!(shown, ["0.42 ms", "15.3 ms", "152 ms", "1.00 s", "1.20 s", "75.0 s"]);
    }
}

//! Lengths of time as a person writes and reads them: `250ms`, `1.5s`, `2m`.

use std::time::Duration;

const UNITS: [(&str, f64); 5] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];

/// Reads a number with a unit (`us`, `ms`, `s`, `m`, `h`); a bare `0` needs none.
///
/// # Errors
/// A sentence that names the accepted form.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - unit.len()];
    let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
    match (number.parse::<f64>(), scale) {
        (Ok(number), Some(scale)) => Duration::try_from_secs_f64(number * scale).map_err(|e| e.to_string()),
        _ => Err("expected a number and a unit, such as 250ms, 1s, 2m".to_owned()),
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
    fn a_number_needs_a_unit_unless_it_is_zero() {
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "5", "s", "-1s", "1 fortnight", "1..2s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn three_figures_are_shown() {
        let shown = [420, 15_300, 152_000, 999_900, 1_200_000, 75_000_000].map(|us| show(Duration::from_micros(us)));
        assert_eq!(shown, ["0.42 ms", "15.3 ms", "152 ms", "1.00 s", "1.20 s", "75.0 s"]);
    }
}

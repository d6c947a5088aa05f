//! The options of a store's URL. The drivers pass over what they do not know; a mistyped `sslmode` would then mean a connection
//! that nobody verifies.

/// Refuses what is not among `known`, by name and never by value. `options[` at the end of a known name stands for all that
/// begin so.
pub(crate) fn refuse_unknown(url: &str, known: &[&str]) -> Result<(), String> {
    let query = url.split('#').next().and_then(|url| url.split_once('?')).map_or("", |(_, query)| query);
    let is_known = |name: &str| known.iter().any(|k| if k.ends_with('[') { name.starts_with(k) } else { name == *k });
    let names = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split('=').next().unwrap_or_default());
    let unknown: Vec<_> = names.map(decoded).filter(|name| !is_known(name)).map(|name| format!("`{name}`")).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let known = known.iter().map(|k| if k.ends_with('[') { format!("{k}…]") } else { (*k).to_owned() });
    let known: Vec<_> = known.collect();
    Err(format!("there is no option {}; there are {}", unknown.join(", "), known.join(", ")))
}

fn decoded(name: &str) -> String {
    let bytes = name.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escaped = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[at], escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["sslmode", "options["];

    #[test]
    fn what_is_known_passes_however_it_is_written() {
        for query in
            ["", "?", "?sslmode=require", "?options[a]=b&sslmode=x", "?options%5Ba%5d=b", "?&sslmode", "#?hush=1"]
        {
            assert_eq!(refuse_unknown(&format!("postgres://u:p@h/db{query}"), KNOWN), Ok(()), "{query}");
        }
    }

    #[test]
    fn what_is_unknown_is_named_and_its_value_is_not_shown() {
        let why = refuse_unknown("postgres://u:p@h/db?sslmod=hush&sslmode=a&Ssl%4dode=hush", KNOWN).unwrap_err();
        assert_eq!(why, "there is no option `sslmod`, `SslMode`; there are sslmode, options[…]");
        for odd in ["?%", "?%4", "?%zz=1", "?é=1", "?=1"] {
            assert!(refuse_unknown(&format!("postgres://h/db{odd}"), KNOWN).is_err(), "{odd}");
        }
    }
}

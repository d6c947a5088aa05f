//! URL-encoded forms: pairs ordered by name.

/// A digest of the pairs in `body`, ordered by name; pairs of one name keep their order.
pub(super) fn digest(body: &[u8]) -> [u8; 32] {
    let mut decoded = Vec::with_capacity(body.len());
    let mut pairs = Vec::new();
    for pair in body.split(|&b| b == b'&').filter(|pair| !pair.is_empty()) {
        let (name, value) = match pair.iter().position(|&b| b == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &[][..]),
        };
        let start = decoded.len();
        decode(name, &mut decoded);
        let middle = decoded.len();
        decode(value, &mut decoded);
        pairs.push((start, middle, decoded.len()));
    }
    // Stable: what a name's values mean may depend on their order.
    pairs.sort_by(|a, b| decoded[a.0..a.1].cmp(&decoded[b.0..b.1]));
    let mut hasher = blake3::Hasher::new();
    for (start, middle, end) in pairs {
        for part in [&decoded[start..middle], &decoded[middle..end]] {
            hasher.update(&(part.len() as u64).to_be_bytes()).update(part);
        }
    }
    *hasher.finalize().as_bytes()
}

fn decode(mut text: &[u8], out: &mut Vec<u8>) {
    while let [first, rest @ ..] = text {
        text = rest;
        let byte = match (*first, rest) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    text = after;
                    high << 4 | low
                }
                _ => b'%',
            },
            (plain, _) => plain,
        };
        out.push(byte);
    }
}

const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

//! The names of keys: `prefix:namespace:kind:hex`, which `SCAN MATCH semel:token:orders:t:*` finds by hand.

use semel_core::identity::Identity;

use crate::address::BadUrl;

/// Of what follows a prefix: the namespace, the kind, and 64 digits.
const LONGEST: usize = 160;

/// Names under one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Result<Self, BadUrl> {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        if prefix.is_empty() || prefix.len() > 32 || !prefix.bytes().all(fits) {
            return Err(BadUrl::new(format!("the prefix {prefix:?} is not 1 to 32 of a-z, 0-9, '.', '_', '-'")));
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    /// The key of a record.
    pub(crate) fn key(&self, id: &Identity) -> String {
        let mut key = String::with_capacity(self.prefix.len() + LONGEST);
        key.push_str(&self.prefix);
        key.push(':');
        id.append_to(&mut key);
        key
    }

    /// Whose record a key is.
    pub(crate) fn identity(&self, key: &[u8]) -> Option<Identity> {
        let key = key.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b":")?;
        std::str::from_utf8(key).ok()?.parse().ok()
    }

    /// What SCAN is to match: all records, or those of one namespace.
    pub(crate) fn pattern(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{}:{namespace}:?:{}", self.prefix, "?".repeat(64)),
            None => format!("{}:*:*:?:{}", self.prefix, "?".repeat(64)),
        }
    }

    /// The key of the store's mark.
    pub(crate) fn mark(&self) -> String {
        format!("{}:mark", self.prefix)
    }

    /// The key of what people did.
    pub(crate) fn audit(&self) -> String {
        format!("{}:audit", self.prefix)
    }

    /// The channel on which settlements of watched records are told; the scripts know it too.
    pub(crate) fn channel(&self) -> String {
        format!("{}:wake", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_whose_record_it_is() {
        let names = Names::new("semel").unwrap();
        let id: Identity = format!("http:orders:k:{}", "0a".repeat(32)).parse().unwrap();
        let key = names.key(&id);
        assert_eq!(key, format!("semel:http:orders:k:{}", "0a".repeat(32)));
        assert_eq!(names.identity(key.as_bytes()), Some(id));
        assert_eq!(Names::new("other").unwrap().identity(key.as_bytes()), None);
        assert_eq!(names.identity(b"semel:mark"), None);
    }

    #[test]
    fn a_prefix_that_would_need_escapes_is_refused() {
        for bad in ["", "a:b", "a*", "{a}", "A", &"x".repeat(33)] {
            assert!(Names::new(bad).is_err(), "{bad}");
        }
    }
}

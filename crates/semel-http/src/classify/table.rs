//! The table of mode `key`.

use http::{StatusCode, header};

use super::{Answered, Classify};
use crate::Mark;

/// What an unclear answer means.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Strictness {
    /// Unknown: the effect may have happened, or may yet. A proxy's 503 or a time-out layer's 408 can follow a committed
    /// effect.
    #[default]
    Strict,
    /// Not happened: only for services whose effect and answer are one transaction.
    Relaxed,
}

/// The outcome table of mode `key`, with a rule's own rows in front.
///
/// | answer | becomes |
/// |---|---|
/// | 2xx, 3xx | kept |
/// | 401 403 407 409 421 423 425 429 | released |
/// | other 4xx | kept: a corrected request is a new intent with a new key |
/// | 408, 5xx, no answer | unknown, or released where the rule is relaxed |
/// | gRPC: `grpc-status`, not the 200 | 7 8 16 released · 0 3 5 6 9 11 12 kept · others unknown, or released |
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    strictness: Strictness,
    own: Vec<(StatusCode, Mark)>,
    release_4xx: bool,
}

impl Outcomes {
    /// The table, strict.
    #[must_use]
    pub fn strict() -> Self {
        Self::default()
    }

    /// The table, relaxed.
    #[must_use]
    pub fn relaxed() -> Self {
        Self { strictness: Strictness::Relaxed, ..Self::default() }
    }

    /// Every 4xx is released: for services that change nothing when they refuse.
    #[must_use]
    pub const fn release_4xx(mut self) -> Self {
        self.release_4xx = true;
        self
    }

    /// These statuses mean that nothing happened: `[503]` for a service that answers 503 only before it begins.
    #[must_use]
    pub fn release_on(self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.on(statuses, Mark::Release)
    }

    /// These statuses are answers to be kept.
    #[must_use]
    pub fn keep_on(self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.on(statuses, Mark::Keep)
    }

    /// After these statuses nobody can tell.
    #[must_use]
    pub fn unknown_on(self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.on(statuses, Mark::Unknown)
    }

    fn on(mut self, statuses: impl IntoIterator<Item = StatusCode>, mark: Mark) -> Self {
        for status in statuses {
            self.own.retain(|(known, _)| *known != status);
            self.own.push((status, mark));
        }
        self
    }

    const fn unclear(&self) -> Mark {
        match self.strictness {
            Strictness::Strict => Mark::Unknown,
            Strictness::Relaxed => Mark::Release,
        }
    }

    fn grpc(&self, answer: &Answered<'_>) -> Option<Mark> {
        if answer.status != StatusCode::OK {
            return None;
        }
        // The first line, found in a pass: a look would have to hash, and answers have few.
        let kind = answer.headers.iter().find(|(name, _)| **name == header::CONTENT_TYPE)?.1;
        if !kind.as_bytes().starts_with(b"application/grpc") {
            return None;
        }
        let status = answer.trailers.and_then(|t| t.get("grpc-status")).or_else(|| answer.headers.get("grpc-status"));
        Some(match status.map(http::HeaderValue::as_bytes) {
            Some(b"0" | b"3" | b"5" | b"6" | b"9" | b"11" | b"12") => Mark::Keep,
            Some(b"7" | b"8" | b"16") => Mark::Release,
            Some(_) | None => self.unclear(),
        })
    }
}

impl Classify for Outcomes {
    fn verdict(&self, answer: &Answered<'_>) -> Mark {
        if let Some((_, mark)) = self.own.iter().find(|(status, _)| *status == answer.status) {
            return *mark;
        }
        if let Some(mark) = self.grpc(answer) {
            return mark;
        }
        match answer.status.as_u16() {
            200..400 => Mark::Keep,
            401 | 403 | 407 | 409 | 421 | 423 | 425 | 429 => Mark::Release,
            408 => self.unclear(),
            400..500 if self.release_4xx => Mark::Release,
            400..500 => Mark::Keep,
            _ => self.unclear(),
        }
    }

    fn failed(&self) -> Mark {
        self.unclear()
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn verdict(table: &Outcomes, status: u16) -> Mark {
        let status = StatusCode::from_u16(status).unwrap();
        table.verdict(&Answered { status, headers: &HeaderMap::new(), trailers: None })
    }

    #[test]
    fn the_table_of_mode_key() {
        let (strict, relaxed) = (Outcomes::strict(), Outcomes::relaxed());
        for status in [200, 201, 202, 204, 303, 304, 400, 402, 404, 405, 410, 412, 413, 415, 422, 451] {
            assert_eq!(verdict(&strict, status), Mark::Keep, "{status}");
            assert_eq!(verdict(&relaxed, status), Mark::Keep, "{status}");
        }
        for status in [401, 403, 407, 409, 421, 423, 425, 429] {
            assert_eq!(verdict(&strict, status), Mark::Release, "{status}");
        }
        for status in [101, 408, 500, 501, 502, 503, 504, 599, 999] {
            assert_eq!(verdict(&strict, status), Mark::Unknown, "{status}");
            assert_eq!(verdict(&relaxed, status), Mark::Release, "{status}");
        }
        assert_eq!(strict.failed(), Mark::Unknown);
        assert_eq!(relaxed.failed(), Mark::Release);
    }

    #[test]
    fn a_rules_own_rows_come_first_and_the_last_word_counts() {
        let table = Outcomes::strict().release_on([StatusCode::SERVICE_UNAVAILABLE]).keep_on([StatusCode::CONFLICT]);
        assert_eq!(verdict(&table, 503), Mark::Release);
        assert_eq!(verdict(&table, 409), Mark::Keep);
        assert_eq!(verdict(&table, 500), Mark::Unknown);
        let table = table.unknown_on([StatusCode::CONFLICT]);
        assert_eq!(verdict(&table, 409), Mark::Unknown);
        let callback = Outcomes::relaxed().release_4xx();
        assert_eq!((verdict(&callback, 404), verdict(&callback, 500)), (Mark::Release, Mark::Release));
    }

    #[test]
    fn grpc_is_judged_by_its_own_status() {
        let judged = |table: &Outcomes, code: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
            let mut trailers = HeaderMap::new();
            if let Some(code) = code {
                trailers.insert("grpc-status", HeaderValue::from_static(code));
            }
            let status = StatusCode::OK;
            table.verdict(&Answered { status, headers: &headers, trailers: Some(&trailers) })
        };
        for kept in ["0", "3", "5", "6", "9", "11", "12"] {
            assert_eq!(judged(&Outcomes::strict(), Some(kept)), Mark::Keep, "{kept}");
        }
        for released in ["7", "8", "16"] {
            assert_eq!(judged(&Outcomes::strict(), Some(released)), Mark::Release, "{released}");
        }
        for unclear in [Some("1"), Some("2"), Some("4"), Some("10"), Some("13"), Some("14"), Some("15"), None] {
            assert_eq!(judged(&Outcomes::strict(), unclear), Mark::Unknown, "{unclear:?}");
            assert_eq!(judged(&Outcomes::relaxed(), unclear), Mark::Release, "{unclear:?}");
        }
    }
}

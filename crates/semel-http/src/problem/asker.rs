//! What a caller can read.

use http::{HeaderMap, HeaderValue, header};

use crate::names::TRACEPARENT;

/// The header fields of a request that decide how a problem is told. Kept aside, since the rest of the request goes to
/// the service.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    accept: Option<HeaderValue>,
    language: Option<HeaderValue>,
    traceparent: Option<HeaderValue>,
}

impl Asker {
    /// The one who sent these header fields.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let mut asker = Self::default();
        // One pass over the names costs less than three looks for what is mostly not there.
        for (name, value) in headers {
            let place = match *name {
                header::ACCEPT => &mut asker.accept,
                header::ACCEPT_LANGUAGE => &mut asker.language,
                _ if *name == TRACEPARENT => &mut asker.traceparent,
                _ => continue,
            };
            // The first of several lines.
            if place.is_none() {
                *place = Some(value.clone());
            }
        }
        asker
    }

    /// Text only where it is wanted more than JSON: `*/*` is not a wish for text.
    pub(super) fn prefers_text(&self) -> bool {
        let (mut text, mut json) = (0, 0);
        for (range, weight) in weighted(self.accept.as_ref()) {
            match range {
                "text/plain" | "text/*" => text = text.max(weight),
                "application/problem+json" | "application/json" | "application/*" | "*/*" => json = json.max(weight),
                _ => {}
            }
        }
        text > json
    }

    pub(super) fn prefers_chinese(&self) -> bool {
        let mut best = (0, false);
        for (language, weight) in weighted(self.language.as_ref()) {
            if weight > best.0 {
                let primary = language.split('-').next().unwrap_or_default();
                best = (weight, primary.eq_ignore_ascii_case("zh"));
            }
        }
        best.1
    }

    /// The trace id of a W3C `traceparent`.
    pub(super) fn trace_id(&self) -> Option<&str> {
        let id = self.traceparent.as_ref()?.to_str().ok()?.split('-').nth(1)?;
        (id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())).then_some(id)
    }
}

/// Ranges with their weights in thousandths.
fn weighted(value: Option<&HeaderValue>) -> impl Iterator<Item = (&str, u32)> {
    value.and_then(|v| v.to_str().ok()).unwrap_or_default().split(',').map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|p| p.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse::<f32>().ok());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
        let weight = (weight.unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0) as u32;
        (name, weight)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(name: http::HeaderName, value: &'static str) -> Asker {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        Asker::of(&headers)
    }

    #[test]
    fn text_is_for_those_who_want_it_more() {
        for (accept, text) in [
            ("text/plain", true),
            ("text/plain, application/json;q=0.5", true),
            ("text/*;q=0.9, */*;q=0.1", true),
            ("text/plain;q=0.5, application/problem+json", false),
            ("text/html, */*;q=0.8", false),
            ("*/*", false),
            ("", false),
            ("text/plain;q=bad", false),
        ] {
            assert_eq!(asker(header::ACCEPT, accept).prefers_text(), text, "{accept}");
        }
        assert!(!Asker::default().prefers_text());
    }

    #[test]
    fn chinese_is_for_those_who_want_it_most() {
        for (languages, chinese) in
            [("zh-CN,zh;q=0.9,en;q=0.8", true), ("en, zh;q=0.9", false), ("ZH", true), ("de", false), ("", false)]
        {
            assert_eq!(asker(header::ACCEPT_LANGUAGE, languages).prefers_chinese(), chinese, "{languages}");
        }
    }

    #[test]
    fn of_several_lines_the_first_counts() {
        let mut headers = HeaderMap::new();
        for accept in ["text/plain", "application/json"] {
            headers.append(header::ACCEPT, HeaderValue::from_static(accept));
        }
        assert!(Asker::of(&headers).prefers_text());
    }

    #[test]
    fn a_trace_id_is_told_only_if_it_is_one() {
        let with = |value| asker(TRACEPARENT.clone(), value).trace_id().map(str::to_owned);
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(with("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").as_deref(), Some(id));
        assert_eq!(with("00-4bf9\"-00f067aa0ba902b7-01"), None);
        assert_eq!(with("x"), None);
    }
}

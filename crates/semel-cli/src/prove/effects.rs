//! How the number of effects is told: asked at a URL, or read off the answers.

use std::time::Duration;

use http::HeaderName;
use http::header::LOCATION;

use super::load::{Answer, Request, single};
use crate::exit::Failure;

/// Which part of an answer names the effect. Two answers with one name speak of one effect.
#[derive(Clone, Debug)]
pub(crate) enum Naming {
    /// Status, `Location` and body together.
    Whole,
    /// A member of a JSON body.
    Pointer(String),
    /// A header field.
    Header(HeaderName),
}

impl Naming {
    /// A flag says which part names the effect.
    pub(crate) fn is_told(&self) -> bool {
        !matches!(self, Self::Whole)
    }

    /// The name in this answer, and whether it is the part that somebody said names the effect. Without that, equal
    /// names may merely come from answers that say nothing.
    pub(crate) fn name(&self, answer: &Answer) -> (String, bool) {
        let told = match self {
            Self::Whole => None,
            Self::Pointer(pointer) => Some(
                serde_json::from_slice::<serde_json::Value>(&answer.body)
                    .ok()
                    .and_then(|body| body.pointer(pointer).map(ToString::to_string))
                    .ok_or_else(|| format!("no {pointer}")),
            ),
            Self::Header(name) => Some(
                answer
                    .headers
                    .get(name)
                    .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                    .ok_or_else(|| format!("no {name}")),
            ),
        };
        match told {
            Some(Ok(name)) => (name, true),
            Some(Err(missing)) => (format!("({missing} in {})", whole(answer)), false),
            None => (whole(answer), false),
        }
    }
}

fn whole(answer: &Answer) -> String {
    let location = answer.headers.get(LOCATION).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let location = location.map(|value| format!(" {value}")).unwrap_or_default();
    format!("{}{location} body {}", answer.status.as_u16(), &answer.digest.to_hex()[..16])
}

/// Asks the counting URL.
pub(crate) async fn ask(request: &Request, pointer: Option<&str>, limit: Duration) -> Result<u64, Failure> {
    let url = request.place.target.url();
    let answer = single(request, limit)
        .await
        .result
        .map_err(|trouble| Failure::runtime(format!("--count-url {url}: {}", trouble.words())))?;
    if !answer.status.is_success() {
        return Err(Failure::runtime(format!("--count-url {url} answered {}", answer.status)));
    }
    let body = String::from_utf8_lossy(&answer.body);
    number_in(&body, pointer).ok_or_else(|| {
        let wanted = pointer.map_or_else(|| "one whole number".to_owned(), |at| format!("a whole number at {at}"));
        let start: String = body.chars().take(60).collect();
        Failure::runtime(format!("--count-url {url} should hold {wanted}, but answered: {start}"))
    })
}

fn number_in(text: &str, pointer: Option<&str>) -> Option<u64> {
    if let Some(pointer) = pointer {
        return serde_json::from_str::<serde_json::Value>(text).ok()?.pointer(pointer)?.as_u64();
    }
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let number = numbers.next()?.parse().ok()?;
    numbers.next().is_none().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::super::answer::tests::answer;
    use super::*;

    #[test]
    fn the_count_is_the_only_number_or_the_one_pointed_at() {
        assert_eq!(number_in("17", None), Some(17));
        assert_eq!(number_in("there are 17 orders\n", None), Some(17));
        assert_eq!(number_in(r#"{"count":17}"#, None), Some(17));
        assert_eq!(number_in("1 of 17", None), None);
        assert_eq!(number_in("1.5", None), None);
        assert_eq!(number_in("none", None), None);
        assert_eq!(number_in(r#"{"a":[1,{"n":17}]}"#, Some("/a/1/n")), Some(17));
        assert_eq!(number_in(r#"{"a":"17"}"#, Some("/a")), None);
    }

    #[test]
    fn an_effect_is_named_by_the_told_part_or_by_the_whole_answer() {
        let first = answer(201, &[("location", "/orders/1"), ("x-id", "1")], r#"{"id":1,"at":"10:00"}"#);
        let again = answer(200, &[("x-id", "1")], r#"{"id":1,"at":"10:01"}"#);
        assert_ne!(Naming::Whole.name(&first), Naming::Whole.name(&again));
        let pointer = Naming::Pointer("/id".to_owned());
        assert_eq!(pointer.name(&first), pointer.name(&again));
        let header = Naming::Header(HeaderName::from_static("x-id"));
        assert_eq!(header.name(&first), header.name(&again));
        let missing = Naming::Pointer("/no".to_owned());
        assert_ne!(missing.name(&first), missing.name(&again));
    }
}

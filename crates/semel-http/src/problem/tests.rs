use std::{collections::HashSet, time::Duration};

use http::{HeaderMap, StatusCode};
use semel_core::{
    StoreTime,
    judge::Recorded,
    record::{Format, Outcome, Withheld},
    store::Did,
};
use serde_json::Value;

use super::*;
use crate::replay::{ReplayHeaders, encode_head};

fn json(problem: &Problem) -> (Response<Bytes>, Value) {
    let answer = problem.answer(&Asker::of(&HeaderMap::new()));
    let document = serde_json::from_slice(answer.body()).unwrap();
    (answer, document)
}

fn recorded() -> Recorded {
    let mut headers = HeaderMap::new();
    headers.insert("location", HeaderValue::from_static("/orders/7"));
    headers.insert("x-secret", HeaderValue::from_static("hidden"));
    let head = encode_head(StatusCode::CREATED, &headers, None, &ReplayHeaders::default());
    Recorded {
        outcome: Outcome::without_body(Format::HTTP, head, Withheld::TooLarge { len: 9 }),
        settled_at: StoreTime::from_micros(1_700_000_000_000_000),
        left: Duration::from_secs(60),
        same_request: false,
    }
}

#[test]
fn names_are_unique_and_statuses_are_errors() {
    let names: HashSet<_> = ProblemKind::ALL.iter().map(|k| k.name()).collect();
    assert_eq!(names.len(), ProblemKind::ALL.len());
    for kind in ProblemKind::ALL {
        let (answer, document) = json(&Problem::new(*kind));
        assert!(kind.status().is_client_error() || kind.status().is_server_error());
        assert_eq!(answer.status(), kind.status());
        assert_eq!(document["type"], format!("urn:semel:problem:{}", kind.name()));
        assert_eq!(document["retryable"], kind.is_retryable());
        assert_eq!(document["status"], kind.status().as_u16());
        assert_eq!(answer.headers()["idempotency-error-source"], "guard");
        assert!(answer.headers().contains_key("idempotency-status"));
    }
}

#[test]
fn every_refusal_has_its_own_name_and_says_what_the_engine_says() {
    let refusals = [
        Refusal::InFlight { retry_after: Duration::from_millis(1_500) },
        Refusal::TooManyWaiters,
        Refusal::TooManyRunning,
        Refusal::Duplicate { message: None, rest_of_window: Some(Duration::from_secs(9)) },
        Refusal::Stranger,
        Refusal::KeyReused,
        Refusal::OutcomeUnknown { since: StoreTime::from_micros(0), last: None },
        Refusal::OutcomeUnavailable { kept: None },
        Refusal::Parked { attempts: 3 },
        Refusal::NotIssued,
        Refusal::StoreUnavailable { did: Did::Nothing, retry_after: None },
        Refusal::StoreFull,
    ];
    for refusal in refusals {
        let problem = Problem::of(&refusal);
        assert_eq!(problem.kind().name(), refusal.name());
        assert_eq!(problem.kind().is_retryable(), refusal.is_retryable(), "{refusal:?}");
        let (answer, _) = json(&problem);
        let expected = (!matches!(refusal, Refusal::Duplicate { .. })).then(|| refusal.retry_after()).flatten();
        assert_eq!(answer.headers().contains_key("retry-after"), expected.is_some(), "{refusal:?}");
    }
    let (answer, _) = json(&Problem::of(&Refusal::InFlight { retry_after: Duration::from_millis(1_500) }));
    assert_eq!(answer.headers()["retry-after"], "2");
}

#[test]
fn an_answer_that_is_gone_leaves_status_location_and_time() {
    let (_, document) = json(&Problem::of(&Refusal::OutcomeUnavailable { kept: Some(Box::new(recorded())) }));
    assert_eq!(document["original_status"], 201);
    assert_eq!(document["location"], "/orders/7");
    assert_eq!(document["settled_at"], "Tue, 14 Nov 2023 22:13:20 GMT");
    assert!(!document.to_string().contains("hidden"));
}

#[test]
fn an_unknown_tells_the_last_status_and_nothing_else_of_the_last_error() {
    let unknown = |last: Box<str>| Refusal::OutcomeUnknown { since: StoreTime::from_micros(0), last: Some(last) };
    let (answer, document) = json(&Problem::of(&unknown(status_words(StatusCode::BAD_GATEWAY))));
    assert_eq!(document["last_status"], 502);
    assert_eq!(answer.headers()["idempotency-status"], "unknown");
    let (_, document) = json(&Problem::of(&unknown("connect to 10.0.0.7 failed".into())));
    assert!(!document.to_string().contains("10.0.0.7"));
}

#[test]
fn a_duplicates_message_is_told_in_the_callers_language() {
    let body = |message: Option<&str>, languages: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert("accept-language", HeaderValue::from_static(languages));
        headers.insert("accept", HeaderValue::from_static("text/plain"));
        let refusal = Refusal::Duplicate { message: message.map(Into::into), rest_of_window: None };
        let answer = Problem::of(&refusal).answer(&Asker::of(&headers));
        assert_eq!(answer.headers()["content-type"], "text/plain; charset=utf-8");
        String::from_utf8(answer.into_body().to_vec()).unwrap()
    };
    assert_eq!(body(None, "en"), "Already submitted.\n");
    assert_eq!(body(None, "zh-CN,en;q=0.5"), "已提交，请勿重复操作。\n");
    let stranger = Problem::of(&Refusal::Stranger).answer(&Asker::default());
    assert!(String::from_utf8_lossy(stranger.body()).contains("other credentials"));
    assert_eq!(body(Some("This order is being submitted."), "zh"), "This order is being submitted.\n");
}

#[test]
fn any_detail_stays_one_json_string() {
    let (_, document) = json(&Problem::new(ProblemKind::KeyInvalid).detail("a \"b\" \\ \n\u{1} ü"));
    assert_eq!(document["detail"], "a \"b\" \\ \n\u{1} ü");
}

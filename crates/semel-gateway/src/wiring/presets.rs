//! The presets of the file against those of the library: one name, one meaning.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, StatusCode};
use semel_http::classify::Answered;
use semel_http::{RequestView, Rule, RuleBuilder, Rules as _, principal};

use super::rules::Table;
use crate::config::{Config, Flags, Source};

/// The rule that a file with these words makes.
fn in_a_file(words: &str) -> Arc<Rule> {
    let text = format!(
        "[upstream.shop]
        urls = [\"http://127.0.0.1:3000\"]
        [principal]
        shared = true
        [[rule]]
        name = \"one\"
        match = \"/*\"
        {words}"
    );
    let config = Config::from_parts(Some(Source::new("semel.toml", text)), &Flags::default()).expect("a good file");
    let request = Request::post("/orders").body(()).expect("a request");
    Table::new(&config).expect("rules").find(&RequestView::of(&request)).expect("the rule")
}

/// Everything about a rule that a preset can be about, in words that can be compared.
fn told(rule: &Rule) -> String {
    let p = &rule.policy;
    let mut out = format!(
        "ttl {:?}, unknown_ttl {:?}, lease {:?}, max_hold {:?}, takeover {:?}, max_attempts {}, {:?}, {:?}, {:?}, max_running {}, \
         {:?}\n{:?}, {:?}, per_route {}, {:?}, {:?}, {:?}, {:?}, {:?}\nfailed {:?}\n",
        p.ttl(),
        p.unknown_ttl(),
        p.lease(),
        p.max_hold(),
        p.takeover(),
        p.max_attempts(),
        p.on_duplicate(),
        p.on_in_flight(),
        p.on_store_error(),
        p.max_running(),
        p.message(),
        rule.missing,
        rule.methods,
        rule.per_route,
        rule.fingerprint,
        rule.credentials,
        rule.replay,
        rule.caps,
        rule.retry_id,
        rule.classify.failed(),
    );
    let headers = HeaderMap::new();
    for status in 100..=999 {
        let status = StatusCode::from_u16(status).expect("three digits");
        let verdict = rule.classify.verdict(&Answered { status, headers: &headers, trailers: None });
        writeln!(out, "{} {verdict:?}", status.as_u16()).expect("a string");
    }
    out
}

#[test]
fn a_preset_of_the_file_is_the_librarys_of_the_same_name() {
    let library = |of: fn(RuleBuilder) -> RuleBuilder| {
        told(&of(Rule::key()).principal(principal::shared()).build().expect("a rule"))
    };
    let all = [
        ("", library(|rule| rule)),
        ("preset = \"payment\"", library(RuleBuilder::payment)),
        ("preset = \"internal\"", library(RuleBuilder::internal)),
        // The file knows the upstream's whole time-out, the library is told it.
        ("preset = \"callback\"", library(|rule| rule.callback(Duration::from_mins(1)))),
    ];
    for (words, library) in &all {
        assert_eq!(told(&in_a_file(words)), *library, "{words}");
    }
    for (n, (words, one)) in all.iter().enumerate() {
        assert!(all[..n].iter().all(|(_, other)| other != one), "{words} says something");
    }
}

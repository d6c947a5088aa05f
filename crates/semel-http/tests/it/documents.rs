//! `docs/http.md` names what is there.

use semel_http::{names::Status, problem::ProblemKind};

const PAGE: &str = include_str!("../../../../docs/http.md");

#[test]
fn the_problems_in_the_book_are_those_of_the_program() {
    let (_, part) = PAGE.split_once("## Problems").expect("the heading");
    let (part, _) = part.split_once("The gateway's transport").expect("the next table");
    let cells = |line: &str| line.trim_matches('|').split('|').take(3).map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    let mut listed: Vec<_> = part.lines().filter(|line| line.starts_with("| `")).map(cells).collect();
    let kind = |k: &ProblemKind| {
        let retryable = if k.is_retryable() { "yes" } else { "no" };
        vec![format!("`{}`", k.name()), k.status().as_u16().to_string(), retryable.to_owned()]
    };
    let mut known: Vec<_> = ProblemKind::ALL.iter().map(kind).collect();
    listed.sort();
    known.sort();
    assert_eq!(listed, known);
}

#[test]
fn the_statuses_in_the_book_are_those_of_the_program() {
    let line = PAGE.lines().find(|line| line.starts_with("| `Idempotency-Status` |")).expect("the row");
    let listed: Vec<&str> = line.split('`').skip(3).step_by(2).collect();
    let all = [
        Status::Fresh,
        Status::Replayed,
        Status::Waited,
        Status::Rejected,
        Status::Bypassed,
        Status::Unrecorded,
        Status::Unknown,
    ];
    assert_eq!(listed, all.map(Status::as_str));
}

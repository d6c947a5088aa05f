//! The document, written by hand: a handful of members of known types.

use std::fmt::Write;

use super::{Member, Problem};

pub(super) fn document(problem: &Problem, detail: &str, trace_id: Option<&str>) -> String {
    let kind = problem.kind;
    let mut out = String::with_capacity(256);
    let _ = write!(
        out,
        r#"{{"type":"urn:semel:problem:{}","title":"{}","status":{},"detail":"#,
        kind.name(),
        problem.status.canonical_reason().unwrap_or_default(),
        problem.status.as_u16(),
    );
    text(&mut out, detail);
    let _ = write!(out, r#","retryable":{}"#, kind.is_retryable());
    if let Some(identity) = problem.identity {
        let _ = write!(out, r#","identity":"{identity}""#);
    }
    if let Some(id) = trace_id {
        out.push_str(r#","trace_id":"#);
        text(&mut out, id);
    }
    for (name, value) in &problem.members {
        let _ = write!(out, r#","{name}":"#);
        match value {
            Member::Text(value) => text(&mut out, value),
            Member::Number(value) => {
                let _ = write!(out, "{value}");
            }
        }
    }
    out.push('}');
    out
}

fn text(out: &mut String, value: &str) {
    out.push('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
}

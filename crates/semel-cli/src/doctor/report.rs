//! What was found, for people and for programs.

use serde_json::json;

use super::finding::{Checked, Level};
use super::questions::Question;
use crate::exit::Failure;
use crate::term::Look;

pub(super) fn words(look: Look, found: &[Checked], questions: &[Question]) -> String {
    let mut text = String::new();
    for checked in found {
        let (word, painted): (&str, fn(Look, &str) -> String) = match checked.level {
            Level::Fine => ("fine", Look::good),
            Level::Note => ("note", |_, word| word.to_owned()),
            Level::Warning => ("warning", Look::open),
            Level::Error => ("error", Look::bad),
        };
        let place = checked.line.map(|line| format!(" line {line}")).unwrap_or_default();
        let label = format!("{word:<8}");
        text.push_str(&label.replacen(word, &painted(look, word), 1));
        text.push_str(&look.wrap(&format!("{}{place}: {}", checked.about, checked.what), 8));
        text.push('\n');
        for (label, said) in [("why: ", &checked.why), ("fix: ", &checked.fix)] {
            if !said.is_empty() {
                text.push_str(&format!("        {label}{}\n", look.wrap(said, 13)));
            }
        }
    }
    if !questions.is_empty() {
        text.push('\n');
        text.push_str(&look.strong("Six questions"));
        text.push('\n');
        for (n, question) in questions.iter().enumerate() {
            text.push_str(&format!("  {}. {}\n     {}\n", n + 1, question.question, look.wrap(&question.answer, 5)));
        }
    }
    text.push('\n');
    text.push_str(&verdict(found));
    text
}

fn verdict(found: &[Checked]) -> String {
    let of = |level, word: &str| {
        let n = found.iter().filter(|checked| checked.level == level).count();
        (n > 0).then(|| format!("{n} {word}{}", if n == 1 { "" } else { "s" }))
    };
    let counts: Vec<String> =
        [of(Level::Error, "error"), of(Level::Warning, "warning")].into_iter().flatten().collect();
    let counts = if counts.is_empty() { "nothing to object to".to_owned() } else { counts.join(", ") };
    let untried = found.iter().find(|checked| checked.untried);
    let but = untried.map(|checked| format!("; the {} was not tried", checked.about)).unwrap_or_default();
    format!("{counts}{but}.\n")
}

pub(super) fn machine(found: &[Checked], questions: &[Question]) -> Result<String, Failure> {
    let value = json!({ "findings": found, "questions": questions });
    Ok(format!("{}\n", serde_json::to_string_pretty(&value).map_err(anyhow::Error::from)?))
}

//! `semel keys list`.

use std::borrow::Cow;
use std::io::Write as _;

use semel_core::store::StoreAdmin;

use super::args::List;
use super::pages::Pages;
use super::time;
use super::view::View;
use crate::exit::{Exit, Failure};
use crate::term::{Look, Out, shown};

pub(super) async fn run(store: &dyn StoreAdmin, args: &List) -> Result<Exit, Failure> {
    let (mut out, look) = (Out::stdout(), Look::of_stdout());
    let most = if args.limit == 0 { usize::MAX } else { args.limit };
    let (mut shown, mut more) = (0, false);
    let mut pages = Pages::of(store, args.narrow.filter());
    'all: while let Some((entries, now)) = pages.next().await? {
        for entry in entries {
            if shown == most {
                more = true;
                break 'all;
            }
            let view = View::of(&entry.identity, &entry.record, now);
            match args.json {
                true => writeln!(out, "{}", serde_json::to_string(&view).map_err(anyhow::Error::from)?)?,
                false => {
                    if shown == 0 {
                        writeln!(out, "{}", look.strong(&heading(look)))?;
                    }
                    writeln!(out, "{}", line(&view, look))?;
                }
            }
            shown += 1;
        }
    }
    out.flush()?;
    if !args.json {
        let mut err = std::io::stderr().lock();
        match (shown, more) {
            (0, _) => writeln!(err, "no records")?,
            (_, true) => writeln!(err, "{shown} shown, there are more: --limit 0 shows all")?,
            (1, false) => writeln!(err, "1 record")?,
            (n, false) => writeln!(err, "{n} records")?,
        }
    }
    Ok(Exit::Clean)
}

/// Columns before the last one, which takes what is left of the line.
const FIXED: usize = 9 + 1 + 16 + 1 + 10 + 1;

fn heading(look: Look) -> String {
    columns(look, "STATE", "IDENTITY", "ENDS IN", "RULE", "KEY")
}

fn line(view: &View, look: Look) -> String {
    let state = format!("{:<9}", view.state);
    let plain = columns(look, view.state, view.short(), &time::until(view.expires_in()), &view.rule, &view.key);
    let rest = plain.get(9..).unwrap_or_default();
    let painted = match view.state {
        "unknown" | "parked" => look.open(&state),
        _ => state,
    };
    format!("{painted}{rest}")
}

fn columns(look: Look, state: &str, identity: &str, ends: &str, rule: &str, key: &str) -> String {
    let room = look.width.saturating_sub(FIXED);
    let rule_width = (room / 2).clamp(8, 24);
    let key_width = room.saturating_sub(rule_width + 1).max(6);
    let (rule, key) = (shown(rule), shown(key));
    let (rule, key) = match look.has_edge {
        true => (cut(&rule, rule_width), cut(&key, key_width)),
        false => (rule, key),
    };
    let text = format!("{state:<9} {identity:<16} {ends:<10} {rule:<rule_width$} {key}");
    text.trim_end().to_owned()
}

fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if text.chars().count() <= width {
        return Cow::Borrowed(text);
    }
    let mut short: String = text.chars().take(width - 1).collect();
    short.push('…');
    Cow::Owned(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_a_narrow_terminal() {
        for width in [60, 80, 120] {
            let look = Look::plain(width);
            let line =
                columns(look, "in-flight", "0123456789abcdef", "23h 59min", &"rule".repeat(20), &"key".repeat(20));
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

//! Nothing is changed by hand that nobody confirmed.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use crate::exit::Failure;

/// Asks on the terminal; without one `--yes` is needed.
pub(super) fn confirm(yes: bool, question: &str) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::usage(format!("{question}\nnobody is here to answer: add --yes")));
    }
    let mut err = std::io::stderr().lock();
    write!(err, "{question} [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

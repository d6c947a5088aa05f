//! Keys that nobody has used before.

use crate::exit::Failure;

/// The prefix and 128 random bits in hexadecimal.
pub(crate) fn fresh(prefix: &str) -> Result<String, Failure> {
    Ok(format!("{prefix}{:016x}{:016x}", random()?, random()?))
}

/// From the system.
pub(crate) fn random() -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Failure::runtime(format!("the system gave no randomness: {error}")))?;
    Ok(u64::from_le_bytes(bytes))
}

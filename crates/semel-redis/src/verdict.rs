//! The one table of what an error means: whether the call can have changed anything, and what kind of trouble it is.

mod codes;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use semel_core::store::{Did, StoreError, StoreErrorKind};

use self::codes::NOT_DONE;

/// What an error means to the call that was sent.
pub(crate) fn of(error: RedisError) -> StoreError {
    match code(&error) {
        Some("OOM") => StoreError::new(Did::Nothing, StoreErrorKind::Full, error),
        Some(_) => StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, error),
        None => StoreError::new(Did::Unknown, StoreErrorKind::Unavailable, error),
    }
}

/// Why, for an error that is told a second time: the words around it come with the second one.
pub(crate) fn cause(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// What an error means where nothing was sent yet.
pub(crate) fn before(error: RedisError) -> StoreError {
    StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, error)
}

/// The code of an answer that says that nothing was done; `None` for everything else: a broken connection, a time-out,
/// an error by something between us and the server.
pub(crate) fn code(error: &RedisError) -> Option<&'static str> {
    let is_servers = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
    let known = |code: &str| NOT_DONE.into_iter().find(|known| *known == code);
    if !is_servers {
        // The log-in of a connection that was not there yet.
        return if error.kind() == ErrorKind::AuthenticationFailed { Some("NOAUTH") } else { None };
    }
    let code = error.code().and_then(known);
    // Before 7.0 the reason stands in the text: `ERR Error running script (…): @user_script:12: -OOM command not …`, and without
    // the dash what the command itself says.
    code.or_else(|| {
        let text = error.detail().filter(|_| error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError))?;
        let within = text.strip_prefix("Error running script ")?;
        within.split(": ").find_map(|part| known(part.trim_start_matches('-').split(' ').next()?))
    })
}

/// Whether the server does not know the command, or not with such words: an older one, or one on which it was renamed.
pub(crate) fn is_not_understood(error: &RedisError) -> bool {
    let says = |words| error.detail().is_some_and(|text| text.starts_with(words));
    error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError)
        && (says("syntax error") || says("unknown command"))
}

/// Whether the server is one that takes no writes: another one does by now, or will.
pub(crate) fn is_demoted(error: &RedisError) -> bool {
    matches!(code(error), Some("READONLY" | "MASTERDOWN"))
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn said(line: &str) -> RedisError {
        match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => error.into(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn what_the_server_refused_was_not_done() {
        for line in [
            "READONLY You can't write against a read only replica.",
            "LOADING Redis is loading the dataset in memory",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "CLUSTERDOWN The cluster is down",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "MOVED 3999 127.0.0.1:6381",
            "ASK 3999 127.0.0.1:6381",
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "NOSCRIPT No matching script. Please use EVAL.",
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            "NOREPLICAS Not enough good replicas to write.",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "CROSSSLOT Keys in request don't hash to the same slot",
            "DENIED Redis is running in protected mode",
            "ERR Error running script (call to f_6b): @user_script:17: @user_script: 17: -READONLY You can't write",
            "ERR Error running script (call to f_6b): @user_script:4: WRONGTYPE Operation against a key holding the wrong",
        ] {
            let error = of(said(line));
            assert_eq!((error.did, error.kind), (Did::Nothing, StoreErrorKind::Unavailable), "{line}");
        }
    }

    #[test]
    fn a_command_that_the_server_does_not_know_is_told_from_one_that_failed() {
        for line in ["ERR syntax error", "ERR unknown command 'HELLO', with args beginning with: "] {
            assert!(is_not_understood(&said(line)), "{line}");
        }
        for line in ["ERR upstream failure: syntax error", "NOPERM unknown command", "OOM command not allowed"] {
            assert!(!is_not_understood(&said(line)), "{line}");
        }
    }

    #[test]
    fn a_full_server_says_so() {
        for line in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "ERR Error running script (call to f_6b): @user_script:17: @user_script: 17: -OOM command not allowed",
        ] {
            assert!(of(said(line)).is_full(), "{line}");
        }
    }

    #[test]
    fn everything_else_is_unknown() {
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
        let script = "ERR Error running script (call to f_6b): @user_script:4: @user_script: 4: bad argument";
        let passed_on = "ERR upstream failure: OOM command not allowed";
        let answers = [said("ERR upstream failure"), said("SOMETHING else"), said(script), said(passed_on)];
        for error in answers.into_iter().chain([broken.into(), late.into()]) {
            let error = of(error);
            assert_eq!((error.did, error.kind), (Did::Unknown, StoreErrorKind::Unavailable), "{error}");
        }
    }
}

//! Times as HTTP writes them.

use std::{
    cell::RefCell,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::HeaderValue;
use semel_core::StoreTime;

/// A store's time, for people: `Tue, 14 Nov 2023 22:13:20 GMT`.
pub(crate) fn http_date(time: StoreTime) -> String {
    let micros = u64::try_from(time.as_micros()).unwrap_or(0);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_micros(micros).min(LAST))
}

/// `now + left` as a header value. Written once a second on each thread: most answers of a moment end at the same time.
pub(crate) fn expires(now: SystemTime, left: Duration) -> Option<HeaderValue> {
    thread_local! {
        static WRITTEN: RefCell<Option<(u64, HeaderValue)>> = const { RefCell::new(None) };
    }
    let since = now.duration_since(UNIX_EPOCH).ok()?.checked_add(left).unwrap_or(LAST).min(LAST);
    let second = since.as_secs();
    WRITTEN.with_borrow_mut(|written| match written {
        Some((of, value)) if *of == second => Some(value.clone()),
        _ => {
            let value = HeaderValue::try_from(httpdate::fmt_http_date(UNIX_EPOCH + since)).ok()?;
            *written = Some((second, value.clone()));
            Some(value)
        }
    })
}

/// HTTP dates end with the year 9999.
const LAST: Duration = Duration::from_secs(253_402_300_799);

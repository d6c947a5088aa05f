//! Times as HTTP writes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use semel_core::StoreTime;

/// A store's time, for people: `Tue, 14 Nov 2023 22:13:20 GMT`.
pub(crate) fn http_date(time: StoreTime) -> String {
    let micros = u64::try_from(time.as_micros()).unwrap_or(0);
    httpdate::fmt_http_date(within(UNIX_EPOCH, Duration::from_micros(micros)))
}

/// `now + left` as a header value.
pub(crate) fn expires(now: SystemTime, left: Duration) -> Option<HeaderValue> {
    HeaderValue::try_from(httpdate::fmt_http_date(within(now, left))).ok()
}

/// HTTP dates end with the year 9999.
fn within(from: SystemTime, by: Duration) -> SystemTime {
    let last = UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    from.checked_add(by).map_or(last, |t| t.min(last))
}

//! The clock, in one place. Wall-clock time is recorded and shown; it decides nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, UTC.
pub fn now_ms() -> i64 {
    since_1970().map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

/// Nanoseconds since 1970, UTC.
pub fn now_ns() -> i64 {
    since_1970().map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
}

#[expect(clippy::disallowed_methods, reason = "the one clock")]
fn since_1970() -> Option<Duration> {
    #[cfg(feature = "testing")]
    if let Some(now) = crate::injected::now_ns() {
        return u64::try_from(now).ok().map(Duration::from_nanos);
    }
    SystemTime::now().duration_since(UNIX_EPOCH).ok()
}

/// `2026-11-30T06:39:02Z` for milliseconds since 1970.
pub fn text(ms: i64) -> String {
    let ms = u64::try_from(ms).unwrap_or(0);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms)).to_string()
}

//! Check of `doctor`: the time of another server, from its `Date` header.

use std::time::Duration;

use chrono::DateTime;
use domain::clock::Timestamp;

/// The time of a `Date` header, which has a resolution of a second.
pub(super) fn date_header(text: &str) -> Option<Timestamp> {
    let time = DateTime::parse_from_rfc2822(text).ok()?;
    Some(Timestamp::new(time.to_utc()).plus(Duration::from_millis(500)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::DoctorReport;

    #[test]
    fn a_large_clock_skew_is_a_problem() {
        let at = |seconds: i64| Timestamp::from_micros(1_795_251_552_000_000 + seconds * 1_000_000);
        for (seconds, level) in [
            (0, "ok"),
            (-2, "ok"),
            (5, "warning"),
            (-5, "warning"),
            (60, "problem"),
        ] {
            let mut report = DoctorReport::default();
            report.skew("clock", at(seconds), at(0));
            assert!(report.render(false).starts_with(level), "{seconds}");
        }
        let time = date_header("Sat, 21 Nov 2026 08:59:12 GMT").unwrap();
        assert_eq!(time, at(0).plus(Duration::from_millis(500)));
    }
}

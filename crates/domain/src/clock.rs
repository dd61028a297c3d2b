//! Timestamps and clocks.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// An instant in UTC with microseconds. Every store keeps it exactly; the wire shows it with `Z`.
///
/// It is held as microseconds since the Unix epoch, as in rows. It is converted to a calendar date only for display.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Truncates to microseconds, the precision of Postgres. Years outside 0001..=9999 are clamped, because neither the
    /// wire format nor the stores can hold them.
    pub fn new(instant: DateTime<Utc>) -> Self {
        Self::from_micros(instant.timestamp_micros())
    }

    pub fn to_utc(self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0).unwrap_or_default()
    }

    /// Microseconds since the Unix epoch.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// From microseconds since the Unix epoch, clamped as in [`Timestamp::new`].
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(MIN_MICROS, MAX_MICROS))
    }

    /// Later by `span`, saturating.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros_of(span)))
    }

    /// Earlier by `span`, saturating.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self::from_micros(self.0.saturating_sub(micros_of(span)))
    }

    /// Time passed since `earlier`; zero if it lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        let passed = self.0.saturating_sub(earlier.0);
        Duration::from_micros(u64::try_from(passed).unwrap_or_default())
    }
}

/// The microseconds of a span, saturating.
fn micros_of(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// 0001-01-01T00:00:00Z.
const MIN_MICROS: i64 = -62_135_596_800_000_000;
/// 9999-12-31T23:59:59.999999Z.
const MAX_MICROS: i64 = 253_402_300_799_999_999;

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({self})")
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 with six fractional digits and `Z`; fixed width, so the text sorts as time does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_utc().to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl FromStr for Timestamp {
    type Err = chrono::ParseError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        DateTime::parse_from_rfc3339(text).map(|t| Self::new(t.to_utc()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

pub trait Clock: Send + Sync + 'static {
    /// The current time, truncated to microseconds.
    fn now(&self) -> Timestamp;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the only reader of the system time"
    )]
    fn now(&self) -> Timestamp {
        Timestamp::new(Utc::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_fixed_width_and_round_trips() {
        for micros in [
            0,
            1,
            -1,
            1_795_251_552_215_877,
            MIN_MICROS,
            MAX_MICROS,
            i64::MAX,
            i64::MIN,
        ] {
            let at = Timestamp::from_micros(micros);
            let text = at.to_string();
            assert_eq!(text.len(), 27, "{text}");
            assert_eq!(text.parse::<Timestamp>().unwrap(), at);
            assert_eq!(serde_json::json!(at), text);
        }
    }

    #[test]
    fn plus_and_minus_saturate_at_the_representable_years() {
        let (first, last) = (
            Timestamp::from_micros(MIN_MICROS),
            Timestamp::from_micros(MAX_MICROS),
        );
        let (hour, forever) = (Duration::from_secs(3600), Duration::MAX);
        assert_eq!((last.plus(hour), first.plus(forever)), (last, last));
        assert_eq!((first.minus(hour), last.minus(forever)), (first, first));
        assert_eq!(first.plus(hour).since(first), hour);
        assert_eq!(first.since(last), Duration::ZERO);
        assert_eq!(first.plus(hour).minus(hour), first);
    }
}

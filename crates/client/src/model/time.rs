//! Times.

use std::fmt;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

/// A time, written in the service's notation: UTC, microseconds, `Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", from = "DateTime<Utc>")]
pub struct UtcTime(pub DateTime<Utc>);

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_rfc3339_opts(SecondsFormat::Micros, true))
    }
}

impl From<UtcTime> for String {
    fn from(time: UtcTime) -> Self {
        time.to_string()
    }
}

impl From<DateTime<Utc>> for UtcTime {
    fn from(time: DateTime<Utc>) -> Self {
        Self(time)
    }
}

//! Times as the service writes them: UTC, microseconds, `Z`.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize as _, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(
    time: &DateTime<Utc>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time.to_rfc3339_opts(SecondsFormat::Micros, true))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<DateTime<Utc>, D::Error> {
    DateTime::deserialize(deserializer)
}

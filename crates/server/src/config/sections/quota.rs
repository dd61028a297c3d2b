//! Section `quota`.

use domain::user::usage::{Quota, QuotaLimits};
use settings::{SettingReader, parse_size};

/// Storage limits per user, and report limits per sandbox.
pub(in crate::config) fn read(reader: &SettingReader<'_>) -> QuotaLimits {
    let count = |key| Some(reader.number(key, 0..=1_000_000_000_000)).filter(|count| *count > 0);
    QuotaLimits {
        report_bytes_per_minute: size(reader, "quota.report_bytes_per_minute"),
        ..QuotaLimits::default()
    }
    .with(Quota::Conversations, count("quota.conversations"))
    .with(Quota::Events, count("quota.events"))
    .with(Quota::EventBytes, size(reader, "quota.event_bytes"))
    .with(Quota::RequestBytes, size(reader, "quota.request_bytes"))
    .with(Quota::Secrets, count("quota.secrets"))
    .with(Quota::PendingMessages, count("quota.pending_messages"))
}

fn size(reader: &SettingReader<'_>, key: &str) -> Option<u64> {
    let what = "a number and a unit (KiB, MiB, GiB, TiB), or 0";
    Some(reader.parsed(key, what, parse_size)).filter(|bytes| *bytes > 0)
}

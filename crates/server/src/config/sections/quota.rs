//! Section `quota`.

use domain::user::usage::{Quota, QuotaLimits};
use settings::SettingReader;

/// Storage limits per user, and report limits per sandbox.
pub(in crate::config) fn read(reader: &SettingReader<'_>) -> QuotaLimits {
    let count = |key| reader.count_limit(key, 1_000_000_000_000);
    let bytes = |key| reader.size_limit(key);
    QuotaLimits {
        report_bytes_per_minute: bytes("quota.report_bytes_per_minute"),
        ..QuotaLimits::default()
    }
    .with(Quota::Conversations, count("quota.conversations"))
    .with(Quota::Events, count("quota.events"))
    .with(Quota::EventBytes, bytes("quota.event_bytes"))
    .with(Quota::RequestBytes, bytes("quota.request_bytes"))
    .with(Quota::Secrets, count("quota.secrets"))
    .with(Quota::PendingMessages, count("quota.pending_messages"))
}

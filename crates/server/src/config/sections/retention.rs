//! Section `retention`.

use application::Retention;
use settings::SettingReader;

/// How long unused data is kept.
pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Retention {
    Retention {
        start_tasks: reader.limit("retention.start_tasks"),
        deleted_conversations: reader.limit("retention.deleted_conversations"),
        pending_messages: reader.limit("retention.pending_messages"),
        audit: reader.limit("retention.audit"),
    }
}

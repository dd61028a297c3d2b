//! Section `log`.

use tracing_subscriber::filter::Targets;

use super::reader::Reader;

/// How the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// What is logged, and how.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    /// From which level on, also by module.
    pub(crate) level: Targets,
    /// How it looks.
    pub(crate) format: Format,
}

impl Log {
    pub(super) fn read(reader: &Reader<'_>) -> Self {
        Self {
            level: reader.parsed(
                "log.level",
                "error, warn, info, debug or trace, or directives such as info,store_sql=debug",
                |text| text.parse().ok(),
            ),
            format: reader.parsed("log.format", "text or json", |text| match text {
                "text" => Some(Format::Text),
                "json" => Some(Format::Json),
                _ => None,
            }),
        }
    }
}

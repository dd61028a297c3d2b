//! Section `log`.

use settings::SettingReader;
use tracing_subscriber::filter::{LevelFilter, Targets};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, Clone)]
pub(crate) struct LogSettings {
    /// The minimum level, also by module.
    pub(crate) level: Targets,
    pub(crate) format: LogFormat,
}

impl LogSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        Self {
            level: reader.parsed(
                "log.level",
                "error, warn, info, debug or trace, or directives such as info,store_sql=debug",
                levels,
            ),
            format: reader.choice(
                "log.format",
                &[("text", LogFormat::Text), ("json", LogFormat::Json)],
            ),
        }
    }
}

/// A default level and levels of modules; the last one of a module counts. `None` if invalid. [`Targets`]'s own parser
/// accepts nearly everything as a module.
fn levels(text: &str) -> Option<Targets> {
    let parts = text.split(',').map(str::trim);
    let mut parts = parts.filter(|part| !part.is_empty()).peekable();
    parts.peek()?;
    parts.try_fold(Targets::new(), |targets, part| match part.split_once('=') {
        Some((module, level)) if is_module(module) && !level.is_empty() => {
            Some(targets.with_target(module, level.parse::<LevelFilter>().ok()?))
        }
        Some(_) => None,
        None => match part.parse::<LevelFilter>() {
            Ok(level) => Some(targets.with_default(level)),
            Err(_) => is_module(part).then(|| targets.with_target(part, LevelFilter::TRACE)),
        },
    })
}

fn is_module(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-');
    !text.is_empty() && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_level_applies_to_all_modules_or_to_one() {
        let enabled = |text: &str| {
            let targets = levels(text).unwrap();
            let would_enable = |target: &str, level: Level| targets.would_enable(target, &level);
            assert!(!would_enable("http_api", Level::DEBUG), "{text}");
            (
                would_enable("http_api", Level::INFO),
                would_enable("application::db", Level::DEBUG),
            )
        };
        for (text, expected) in [
            ("info", (true, false)),
            ("INFO", (true, false)),
            ("info,", (true, false)),
            ("warn", (false, false)),
            ("off", (false, false)),
            ("info,application=debug", (true, true)),
            ("info, application=debug", (true, true)),
            ("application=debug", (false, true)),
            ("info,application", (true, true)),
            ("application=off,info", (true, false)),
        ] {
            assert_eq!(enabled(text), expected, "{text}");
        }
    }

    #[test]
    fn an_invalid_level_is_refused() {
        for text in [
            "",
            ",",
            "application=",
            "=debug",
            "application=loud",
            "[span]=debug",
            "application[{user}]=debug",
            "a b=info",
        ] {
            assert!(levels(text).is_none(), "{text}");
        }
    }
}

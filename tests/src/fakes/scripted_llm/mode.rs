//! Modes that a model name or path segment selects.

use std::time::Duration;

/// The response to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelBehavior {
    /// Follows the script.
    FollowScript,
    /// Responds with text even when tools are offered.
    TextOnly,
    /// Responds with 401.
    Refuse,
    /// Responds with 500.
    Fail,
    /// Never responds.
    Hang,
}

/// Behavior, delay and steps, parsed from `refuse`, `slow-300`, `steps-20+slow-300`, …
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// The response.
    pub behavior: ModelBehavior,
    /// The delay before each response.
    pub delay: Duration,
    /// Terminal calls before `finish`.
    pub steps: usize,
}

impl Default for Mode {
    fn default() -> Self {
        Self {
            behavior: ModelBehavior::FollowScript,
            delay: Duration::ZERO,
            steps: 1,
        }
    }
}

impl Mode {
    /// Parses a model name or path segment; ignores unknown words.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        let mut mode = Self::default();
        let words = name.rsplit('/').next().unwrap_or(name);
        for word in words.split('+') {
            let (verb, number) = match word.split_once('-') {
                Some((verb, digits)) => (verb, digits.parse::<u32>().ok()),
                None => (word, None),
            };
            match (verb, number) {
                ("refuse", None) => mode.behavior = ModelBehavior::Refuse,
                ("fail", None) => mode.behavior = ModelBehavior::Fail,
                ("hang", None) => mode.behavior = ModelBehavior::Hang,
                ("talk", None) => mode.behavior = ModelBehavior::TextOnly,
                ("slow", Some(ms)) => mode.delay = Duration::from_millis(u64::from(ms)),
                ("steps", Some(n)) => mode.steps = usize::try_from(n).unwrap_or(usize::MAX),
                _ => {}
            }
        }
        mode
    }

    /// The mode of a request: that of the path segment before `v1`, else that of the model name.
    #[must_use]
    pub fn of(path: &str, model: &str) -> Self {
        let first = path.trim_start_matches('/').split('/').next().unwrap_or("");
        if first.is_empty() || first == "v1" || first == "chat" {
            Self::parse(model)
        } else {
            Self::parse(first)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_combine_and_unknown_words_are_ignored() {
        assert_eq!(Mode::parse("openai/scripted"), Mode::default());
        assert_eq!(Mode::parse("gpt-4"), Mode::default());
        let long = Mode::parse("openai/steps-20+slow-300");
        assert_eq!((long.steps, long.delay), (20, Duration::from_millis(300)));
        assert_eq!(Mode::parse("refuse").behavior, ModelBehavior::Refuse);
    }

    #[test]
    fn path_segment_overrides_the_model_name() {
        assert_eq!(
            Mode::of("/fail/v1/chat/completions", "refuse").behavior,
            ModelBehavior::Fail
        );
        assert_eq!(
            Mode::of("/v1/chat/completions", "refuse").behavior,
            ModelBehavior::Refuse
        );
        assert_eq!(
            Mode::of("/chat/completions", "hang").behavior,
            ModelBehavior::Hang
        );
    }
}
